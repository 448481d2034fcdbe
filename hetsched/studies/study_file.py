"""Study files: which scenarios a study has. ``docs/studies.md`` describes the format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hetsched import plain_yaml, wrong_fields
from hetsched.errors import OptionError
from hetsched.studies.spread import spread

MAX_FILE_BYTES = 1 << 20
MAX_SCENARIOS = 100_000
#: Digits that sampled values keep: enough for any figure, and short enough to read.
SAMPLED_DIGITS = 4
Key = Annotated[str, Field(min_length=1, max_length=200)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)


class Range(_Part):
    """Values between two numbers, spread evenly or, with ``scale: log``, evenly by ratio."""

    low: float = Field(alias="from")
    high: float = Field(alias="to")
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"from ({self.low:g}) must be less than to ({self.high:g})")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"a logarithmic scale begins above 0, not at {self.low:g}")
        return self

    def at(self, share: float) -> float:
        """The value at a share (0 to 1) of the way."""
        value = self.low + share * (self.high - self.low) if self.scale == "linear" else self.low * (self.high / self.low) ** share
        return float(f"{value:.{SAMPLED_DIGITS}g}")


class Sample(_Part):
    """``count`` scenarios drawn over ranges and choices. A larger count begins with the same scenarios."""

    count: int = Field(ge=1, le=MAX_SCENARIOS)
    seed: int = Field(0, ge=0)
    over: dict[Key, Range | Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(min_length=1)

    def points(self) -> list[dict[str, Any]]:
        """The drawn values."""
        axes = list(self.over.items())
        return [
            {k: a.at(u) if isinstance(a, Range) else a[int(u * len(a))] for (k, a), u in zip(axes, row, strict=True)}
            for row in spread(self.count, len(axes), self.seed)
        ]  # fmt: skip


class Study(_Part):
    """A study file.

    Every scenario has the inputs of ``base``; ``variants`` are named sets of inputs, ``grid`` lists values by input, ``sample`` draws
    some. The scenarios are all combinations of the three, later ones overriding earlier.
    """

    schema_version: Literal[1] = 1
    title: str = Field(min_length=1, max_length=200)
    question: str = Field("", max_length=2000)
    curves: bool = True
    base: dict[Key, Any] = Field(default_factory=dict)
    variants: dict[Key, dict[Key, Any]] = Field(default_factory=dict)
    grid: dict[Key, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(default_factory=dict)
    sample: Sample | None = None

    @model_validator(mode="after")
    def _not_too_many(self) -> Study:
        count = max(1, len(self.variants)) * (1 if self.sample is None else self.sample.count)
        for key, values in self.grid.items():
            seen: set[str] = set()
            for value in map(repr, values):
                if value in seen:
                    raise ValueError(f"the grid has {value} twice for {key!r}: keep one")
                seen.add(value)
            count *= len(values)
        if count > MAX_SCENARIOS:
            raise ValueError(f"the study has {count} scenarios: at most {MAX_SCENARIOS} are allowed")
        return self

    def scenarios(self) -> list[dict[str, Any]]:
        """The inputs of every scenario, the last axis changing fastest; nested mappings have dotted keys.

        Examples:
            >>> Study(title="t", base={"dims": {"batch": 1}}, grid={"ambient_c": (25, 35)}).scenarios()
            [{'dims.batch': 1, 'ambient_c': 25}, {'dims.batch': 1, 'ambient_c': 35}]
        """
        named = [{"variant": name, **flat(inputs)} for name, inputs in self.variants.items()] or [{}]
        drawn = [flat(p) for p in self.sample.points()] if self.sample is not None else [{}]
        cells = [flat(dict(zip(self.grid, values, strict=True))) for values in product(*self.grid.values())]
        base = flat(self.base)
        return [{**base, **variant, **cell, **point} for variant in named for cell in cells for point in drawn]

    def renamed(self, name: Callable[[str], str]) -> Study:
        """The study with the one name of every input, however the file writes it.

        Raises:
            OptionError: a part of it has an input twice, by two names.
        """

        def named(values: Mapping[str, Any]) -> dict[str, Any]:
            seen: dict[str, str] = {}
            for key in values:
                twin = seen.setdefault(name(key), key)
                if twin != key:
                    raise OptionError(f"{twin!r} and {key!r} are the same input: keep one")
            return {name(k): v for k, v in values.items()}

        return self.model_copy(
            update={
                "base": named(flat(self.base)), "grid": named(self.grid),
                "variants": {label: named(flat(v)) for label, v in self.variants.items()},
                "sample": None if self.sample is None else self.sample.model_copy(update={"over": named(self.sample.over)}),
            }
        )  # fmt: skip

    def fixed(self, inputs: Mapping[str, Any]) -> Study:
        """The study with some inputs the same in every scenario; an axis over one of them goes."""
        keys = set(inputs)

        def others(values: Mapping[str, Any]) -> dict[str, Any]:
            return {k: v for k, v in flat(values).items() if k not in keys}

        sample = self.sample
        if sample is not None:
            over = {k: v for k, v in sample.over.items() if k not in keys}
            sample = sample.model_copy(update={"over": over}) if over else None
        return self.model_copy(
            update={
                "base": {**flat(self.base), **inputs}, "sample": sample, "grid": {k: v for k, v in self.grid.items() if k not in keys},
                "variants": {name: others(v) for name, v in self.variants.items()},
            }
        )  # fmt: skip


def flat(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings as dotted keys.

    Examples:
        >>> flat({"soc": "host", "set": {"npu.int8_tops": 100}})
        {'soc': 'host', 'set.npu.int8_tops': 100}
    """
    out: dict[str, Any] = {}
    for key, value in inputs.items():
        if isinstance(value, Mapping):
            out |= {f"{key}.{k}": v for k, v in flat(value).items()}
        else:
            out[key] = value
    return out


def read_study(path: Path) -> Study:
    """Read and validate a study file.

    Raises:
        OptionError: absent, too large or malformed; one sentence with the file, the key and the value.
    """
    if not path.is_file():
        raise OptionError(f"there is no study file {str(path)!r}: 'hetsched study --list' names those that ship with hetsched")
    raw = plain_yaml.read(path, "the study file", MAX_FILE_BYTES)
    if not isinstance(raw, dict):
        raise OptionError(f"{path} holds {wrong_fields.short(raw)}, not a mapping: a study file starts with 'title: ...'")
    try:
        return Study.model_validate(raw)
    except ValidationError as e:
        raise OptionError(f"{path} is not a valid study: {wrong_fields.fault(e, Study, raw)}") from e
