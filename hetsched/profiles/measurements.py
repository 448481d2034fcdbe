"""``measurements.json``: the times of operators as ``hetsched import -o measurements.json`` writes them, for ``plan --measured``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hetsched.errors import TraceError
from hetsched.profiles.timings import Profile, Timing

VERSION = 1
_KEY = "measurements_version"


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


def from_document(document: Mapping[str, Any], where: str) -> Profile:
    """Read it back.

    Raises:
        TraceError: another version, or a field that is absent or of another kind.
    """
    if document[_KEY] != VERSION:
        raise TraceError(f"{where} has the version {document[_KEY]!r}, this hetsched reads {VERSION}: import the profile again")
    rows = document.get("ops")
    if not isinstance(rows, list):
        raise TraceError(f"{where} has no list 'ops': import the profile again")
    texts = [document.get(k, "") for k in ("format", "model", "soc")]
    notes = document.get("notes", [])
    if not all(isinstance(t, str) for t in texts) or not isinstance(notes, list) or not all(isinstance(n, str) for n in notes):
        raise TraceError(f"{where} has a name or a note that is not text: import the profile again")
    timings = tuple(_timing(row, f"{where}, operator {i}") for i, row in enumerate(rows))
    return Profile(texts[0] or "measurements", timings, tuple(notes), texts[1], texts[2])


def _timing(row: Any, where: str) -> Timing:
    if not isinstance(row, dict):
        raise TraceError(f"{where} is not a mapping: import the profile again")
    seconds, shape = row.get("seconds"), row.get("shape")
    texts = [row.get(k, "") for k in ("name", "type", "queue", "precision")]
    sized = shape is None or (isinstance(shape, list) and all(isinstance(d, int) and not isinstance(d, bool) for d in shape))
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not sized or not all(isinstance(t, str) for t in texts):
        raise TraceError(f"{where} needs 'seconds' (a number), 'shape' (sizes or null), and text for the rest: import the profile again")
    name, kind, queue, precision = texts
    return Timing(name, kind, float(seconds), queue or "cpu", None if shape is None else tuple(shape), precision)
