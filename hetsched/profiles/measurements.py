"""``measurements.json``: the times of operators as ``hetsched import -o measurements.json`` writes them, for ``plan --measured``."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hetsched import wrong_fields
from hetsched.errors import TraceError
from hetsched.profiles.timings import LONGEST_S, Profile, Timing

VERSION: Literal[1] = 1
_KEY = "measurements_version"
_Text = Annotated[str, Field(max_length=4096)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class _Op(_Strict):
    name: _Text = ""
    type: _Text = ""
    shape: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Of its first output."""
    precision: Annotated[str, Field(max_length=40)] = ""
    queue: Annotated[str, Field(max_length=64)] = ""
    """Empty: not known."""
    seconds: Annotated[float, Field(ge=0, le=LONGEST_S)]


class _Document(_Strict):
    measurements_version: Literal[1]
    format: _Text = "measurements"
    """Of the profile that the times are from."""
    model: _Text = ""
    soc: _Text = ""
    runs: Annotated[int, Field(ge=0)] = 0
    notes: tuple[_Text, ...] = ()
    ops: tuple[_Op, ...]


def recognises(document: Any) -> bool:
    """Whether a JSON document is of this format, of any version."""
    return isinstance(document, dict) and _KEY in document


def to_json(profile: Profile) -> str:
    """Byte-stable JSON with a final newline: each operator once, the median over the runs."""
    rows = [
        {
            "name": t.name, "type": t.type, "shape": None if t.shape is None else list(t.shape), "precision": t.precision,
            "queue": t.queue, "seconds": t.seconds,
        }
        for t in profile.per_op()
    ]  # fmt: skip
    document = {
        _KEY: VERSION, "format": profile.format, "model": profile.model, "soc": profile.soc, "runs": profile.runs,
        "notes": list(profile.notes), "ops": rows,
    }  # fmt: skip
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"


def from_json(text: str, where: str) -> Profile:
    """Read it back.

    Raises:
        TraceError: another version, or a field that is absent, unknown or of another kind.
    """
    try:
        found = _Document.model_validate_json(text)
    except ValidationError as e:
        again = "import the profile again"
        raise TraceError(f"{where} is not a valid file of measurements: {wrong_fields.fault(e, _Document)} ({again})") from e
    timings = tuple(Timing(o.name, o.type, o.seconds, o.queue, o.shape, o.precision) for o in found.ops)
    return Profile(found.format, timings, found.notes, found.model, found.soc)
