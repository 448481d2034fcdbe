"""What was measured on this machine, and the file it is kept in."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

#: Raise it when a measurement means something else than before.
VERSION = 5
#: A measurement is good when its typical repeat is at most this much slower than the best one, and poor beyond the other
#: figure: somebody else used the machine.
GOOD_SPREAD, POOR_SPREAD = 0.1, 0.3
#: It is poor, too, when others kept more than this share of a core busy: cores share caches, memory and often units.
POOR_OTHERS = 0.3


@dataclass(frozen=True, slots=True)
class HostMeasurement:
    """Rates of this machine. One core unless the name says otherwise; bytes, operations (one MAC is two) and seconds.

    ``rates`` holds achieved operations per second of this project's kernels by class and precision (``conv/f32``).
    ``vector_bytes_s`` is the rate of a plain elementwise operator; ``vector`` holds the cost per byte of the other kinds
    relative to it, of what matrix work reads and writes (``matrix/conv/f32``), and of each of its results (``result/conv/f32``).
    ``serial_share`` is what more cores
    of one queue do not speed up: n are n / (1 + share (n - 1)) times as fast as one.

    Quality: ``spread`` is the typical probe's, how much slower than its best repeat its typical repeat was (0.1: 10 %);
    ``others`` is how many cores other programs kept busy meanwhile. ``sync_estimated`` says that ``sync_s`` is an assumption,
    because no undisturbed signal could be timed. ``probe_s`` are the fastest repeats that all rates come from, in the order of
    the probes, so that a later measurement can keep the faster of both.
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
    sync_estimated: bool
    serial_share: float
    spread: float
    others: float
    probe_s: tuple[float, ...]

    @property
    def poor(self) -> bool:
        """Whether the machine was so busy that the rates may be too low."""
        return self.spread > POOR_SPREAD or self.others > POOR_OTHERS

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of a plan should know about the measurement; empty if it is good."""
        out = []
        if self.poor:
            out.append(
                f"this machine was busy when it was measured (others used {self.others:.1f} cores, repeats were {100 * self.spread:.0f} % "
                "apart), so its rates may be too low: run 'hetsched calibrate' when it is quiet"
            )
        if self.sync_estimated and len(self.cores) > 1:
            out.append(
                f"the cost of a signal between two cores is assumed ({1e6 * self.sync_s:g} us): it could not be measured undisturbed"
            )
        return tuple(out)

    def as_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return {**asdict(self), "cores": list(self.cores), "probe_s": list(self.probe_s)}

    @classmethod
    def from_dict(cls, raw: Any) -> HostMeasurement | None:
        """The measurement, or None if it is not one of this version."""
        if not isinstance(raw, dict) or raw.get("version") != VERSION or set(raw) != {f.name for f in fields(cls)}:
            return None
        numbers = [v for k, v in raw.items() if k.endswith("_s") and k != "probe_s"]
        tables = (
            [*raw["rates"].values(), *raw["vector"].values()]
            if isinstance(raw["rates"], dict) and isinstance(raw["vector"], dict)
            else [-1]
        )
        if not all(isinstance(n, int | float) and 0 < n < 1e18 for n in (*numbers, *tables, *raw["probe_s"])):
            return None
        quality = (raw["serial_share"], raw["spread"], raw["others"])
        if not isinstance(raw["sync_estimated"], bool) or not all(isinstance(n, int | float) and 0 <= n < 1e6 for n in quality):
            return None
        return cls(**{**raw, "cores": tuple(raw["cores"]), "probe_s": tuple(raw["probe_s"])})


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
