"""What was measured on this machine, and the file it is kept in."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

#: Raise it when a measurement means something else than before.
VERSION = 1


@dataclass(frozen=True, slots=True)
class HostMeasurement:
    """Rates of this machine. One core unless the name says otherwise; bytes, operations (one MAC is two) and seconds.

    ``rates`` holds achieved operations per second of this project's kernels by class and precision (``conv/f32``).
    ``vector_bytes_s`` is the rate of a plain elementwise operator on data in cache; ``vector`` holds the cost per byte of
    the other kinds relative to it.
    """

    version: int
    fingerprint: str
    model: str
    cores: tuple[int, ...]
    read_one_bytes_s: float
    read_all_bytes_s: float
    peak_f32_ops_s: float
    peak_i8_ops_s: float
    rates: dict[str, float]
    vector_bytes_s: float
    vector: dict[str, float]
    op_overhead_s: float
    launch_s: float
    sync_s: float

    def as_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return {**asdict(self), "cores": list(self.cores)}

    @classmethod
    def from_dict(cls, raw: Any) -> HostMeasurement | None:
        """The measurement, or None if it is not one of this version."""
        if not isinstance(raw, dict) or raw.get("version") != VERSION or set(raw) != {f.name for f in fields(cls)}:
            return None
        numbers = [v for k, v in raw.items() if k.endswith(("_s", "_bytes_s", "_ops_s"))]
        tables = (
            [*raw["rates"].values(), *raw["vector"].values()]
            if isinstance(raw["rates"], dict) and isinstance(raw["vector"], dict)
            else [-1]
        )
        if not all(isinstance(n, int | float) and 0 < n < 1e18 for n in (*numbers, *tables)):
            return None
        return cls(**{**raw, "cores": tuple(raw["cores"])})


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/hetsched``, or ``~/.cache/hetsched``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hetsched"


def cache_file(fingerprint: str) -> Path:
    """Where the measurement of the machine with this fingerprint is kept."""
    return cache_folder() / f"host-{fingerprint}.json"


def read_cached(fingerprint: str) -> HostMeasurement | None:
    """The kept measurement; None if there is none, or if it is damaged or of another version."""
    try:
        measured = HostMeasurement.from_dict(json.loads(cache_file(fingerprint).read_bytes()))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return measured if measured is not None and measured.fingerprint == fingerprint else None


def write_cached(measured: HostMeasurement) -> Path | None:
    """Keep a measurement (temporary name, then rename). None where the folder cannot be written: it is measured again."""
    path = cache_file(measured.fingerprint)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(measured.as_dict(), sort_keys=True, indent=1) + "\n", "utf-8")
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        return None
    return path
