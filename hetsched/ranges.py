"""Activation ranges: what ``hetsched calibrate-ranges`` writes beside a model, and what static integers are made of.

The file is JSON, byte-stable for the same model, inputs and options; no clock time and no machine path in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hetsched import wrong_fields
from hetsched.errors import RangesError
from hetsched.files import write_atomically

SUFFIX = ".ranges.json"
#: A ranges file larger than this is none.
MAX_BYTES = 64 << 20
MAX_CHANNELS = 1 << 20

Method = Literal["minmax", "percentile", "mse"]
Granularity = Literal["tensor", "channel"]
_Bounds = Annotated[tuple[float, ...], Field(min_length=1, max_length=MAX_CHANNELS)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TensorRange(_Strict):
    """The smallest and the largest value that a tensor's integers must reach."""

    min: float
    max: float

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"its minimum {self.min:g} is above its maximum {self.max:g}")
        return self


class ChannelRange(_Strict):
    """One range for each index of ``axis``."""

    axis: int = Field(ge=0, le=16)
    min: _Bounds
    max: _Bounds

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if len(self.min) != len(self.max):
            raise ValueError(f"it has {len(self.min)} minima and {len(self.max)} maxima")
        bad = next((i for i, (low, high) in enumerate(zip(self.min, self.max, strict=True)) if low > high), None)
        if bad is not None:
            raise ValueError(f"the minimum of its channel {bad} is above its maximum")
        return self


class CalibratedModel(_Strict):
    """The model that was run: its file's name and hash, and the dims that were bound."""

    name: str
    sha256: str
    dims: dict[str, int] = {}


class ActivationRanges(_Strict):
    """The contents of a ranges file.

    ``percentile`` is the share of values kept, in percent, where ``method`` is ``percentile``. ``symmetric`` ranges reach as
    far below zero as above. ``ranges`` are by the name of the tensor in the model file.
    """

    schema_version: Literal[1] = 1
    model: CalibratedModel
    method: Method
    percentile: Annotated[float, Field(gt=50, le=100)] | None = None
    granularity: Granularity
    symmetric: bool
    samples: int = Field(ge=1)
    ranges: Mapping[str, TensorRange | ChannelRange]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.granularity == "tensor":
            odd = next((n for n, r in self.ranges.items() if isinstance(r, ChannelRange)), None)
            if odd is not None:
                raise ValueError(f"{odd!r} has ranges per channel in a file of ranges per tensor")
        return self

    def to_json(self) -> str:
        """Byte-stable JSON with a final newline."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False) + "\n"

    def save(self, path: Path) -> None:
        """Write the file (to a temporary name, then renamed).

        Raises:
            OptionError: ``path`` cannot be written.
        """
        write_atomically(path, self.to_json().encode())

    def check_model(self, sha256: str, path: Path) -> None:
        """Refuse ranges of another model.

        Raises:
            RangesError: the model's hash is not the one that was calibrated; ``path`` is the ranges file.
        """
        if self.model.sha256 != sha256:
            raise RangesError(
                f"{path} holds ranges of another model or version ({self.model.name}): run 'hetsched calibrate-ranges' again, or remove it"
            )


def beside(model: Path) -> Path:
    """Where the ranges of a model file are looked for.

    Examples:
        >>> beside(Path("models/net.onnx")).name
        'net.onnx.ranges.json'
    """
    return model.with_name(model.name + SUFFIX)


def read_ranges(path: Path) -> ActivationRanges:
    """Read and validate a ranges file.

    Raises:
        RangesError: absent, too large, not JSON, or not ranges; the message names what and where.
    """
    if not path.is_file():
        raise RangesError(f"there is no ranges file {path}: make it with 'hetsched calibrate-ranges'")
    if path.stat().st_size > MAX_BYTES:
        raise RangesError(f"the ranges file {path} is larger than 64 MiB: it is none")
    try:
        return ActivationRanges.model_validate_json(path.read_bytes())
    except ValidationError as e:
        fault = wrong_fields.fault(e, ActivationRanges)
        raise RangesError(f"{path} is not a valid ranges file: {fault}; make it again with 'hetsched calibrate-ranges'") from e
    except RecursionError as e:
        raise RangesError(f"{path} is not a valid ranges file: it is nested too deeply") from e
