"""What the fields of a SoC file are made of: numbers, lists and market places that say where they come from.

Every one has exactly one origin: ``source`` (a document or a measurement) or ``estimated`` (the basis of the estimate).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from hetsched.wrong_fields import FAR_OFF


def spelt(pattern: str, words: str) -> AfterValidator:
    """Text that a pattern matches from its first to its last letter; ``words`` say what that is."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"it must be {words}")
        return text

    return AfterValidator(check)


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("it must be a number")
    return value


Name = Annotated[
    str, Field(max_length=64), spelt(r"[a-z0-9][a-z0-9_.:-]*", "lower-case letters, digits and . _ : -, beginning with a letter or digit")
]
Number = Annotated[float, BeforeValidator(_no_truth)]
"""A number as YAML has it, or as text (``3e9`` without a dot is text there); true and false are none."""


class Strict(BaseModel):
    """Frozen; unknown fields, infinities and NaN are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def check_origin(source: str | None, estimated: str | None, what: str) -> None:
    """Exactly one origin, and one that says something.

    Raises:
        ValueError: none, two, or an empty one; pydantic adds the field.
    """
    given = [text for text in (source, estimated) if text is not None]
    if len(given) != 1 or not given[0].strip():
        raise ValueError(f"{what} either 'source: ...' or 'estimated: <basis>'")


class Figure(Strict):
    """A number with where it comes from: exactly one of ``source`` and ``estimated`` (the basis of the estimate)."""

    value: Number = Field(ge=0)
    source: str | None = None
    estimated: str | None = None
    was: float | None = None
    """The file's own value, where the user has set another (what-if hardware)."""

    @model_validator(mode="after")
    def _origin(self) -> Self:
        check_origin(self.source, self.estimated, "a figure needs")
        return self

    def __float__(self) -> float:
        return self.value


def within(low: float, high: float) -> AfterValidator:
    """A figure that no machine has is a slip of units or an attack: it would end as a division by zero or as infinity."""

    def check(figure: Figure) -> Figure:
        if not low <= figure.value <= high:
            said = f"the value {figure.value:g} makes no sense here: it must be from {low:g} to {high:g}"
            raise PydanticCustomError(FAR_OFF, "{said}", {"said": said})
        return figure

    return AfterValidator(check)


Watts = Annotated[Figure, within(0, 1e4)]
Seconds = Annotated[Figure, within(0, 1e3)]
Bytes = Annotated[Figure, within(0, 1e18)]
Rate = Annotated[Figure, within(1e3, 1e18)]
"""Bytes or operations per second."""
Share = Annotated[Figure, within(1e-6, 10)]
PerByte = Annotated[Figure, within(0, 1e-3)]
"""Joules or seconds per byte."""


class Features(Strict):
    """Instruction-set extensions that kernels can use (``dotprod, i8mm, sve2, sme, sme2, bf16, fp16``), with their origin."""

    value: tuple[Name, ...] = Field(max_length=64)
    source: str | None = None
    estimated: str | None = None

    @model_validator(mode="after")
    def _origin(self) -> Self:
        check_origin(self.source, self.estimated, "features need")
        return self


Tier = Literal["embedded", "mid", "premium", "flagship", "laptop", "automotive"]
#: From cheap to dear.
TIERS: tuple[Tier, ...] = ("embedded", "mid", "premium", "flagship", "laptop", "automotive")


class Market(Strict):
    """What a SoC is sold for, and since when. Prices are not published; tier and age stand for them."""

    tier: Tier
    release: Annotated[str, spelt(r"20\d\d-(0[1-9]|1[0-2])", "a year and a month, such as '2023-10'")]
    """Year and month of the announcement."""
    source: str | None = None
    estimated: str | None = None

    @model_validator(mode="after")
    def _origin(self) -> Self:
        check_origin(self.source, self.estimated, "the market place needs")
        return self
