"""The verb *regress*: plan, simulate and run a stored set of scenarios again, and say which figures left their intervals."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

import hetsched
from hetsched import wrong_fields
from hetsched.app.planned import Planned
from hetsched.app.running import run
from hetsched.app.scenario_runs import Simulations, of_plan
from hetsched.errors import HetschedError, OptionError
from hetsched.files import check_destination, write_atomically
from hetsched.scenarios import Prepared
from hetsched.soc_quantities import Number, Strict
from hetsched.socs import HOST

MAX_FILE_BYTES = 1 << 24
#: Half the width of the interval of a figure that only code changes: predictions and simulations are deterministic, and what moves
#: them by less (an order of floating-point sums, another version of a library) is no change that a team decides on.
TOLERANCE = 0.02
#: What a measured latency may rise over the slowest of its rounds: machines differ by so much from day to day (estimated).
NOISE = 0.15
ROUNDS, REPEATS = 5, 10
#: What a comparison with the reference may lose: another order of sums does as much (estimated).
COSINE, SNR_DB, ERROR = 1e-4, 1.0, 0.5

Origin = Literal["predicted", "simulated", "measured", "numerics"]
Progress = Callable[[str, float], None]


class Kept(Strict):
    """A figure and where it may be. ``better``: which way is an improvement."""

    value: Number
    low: Number
    high: Number
    origin: Origin
    better: Literal["less", "more"]


class Case(Strict):
    """A scenario, as a study file has it, and its figures."""

    inputs: dict[str, Any]
    figures: dict[str, Kept]


class Baseline(Strict):
    """A stored set. ``machine`` tells where the measured latencies were taken: elsewhere they are not compared."""

    schema_version: Literal[1] = 1
    hetsched: str
    machine: str
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Moved:
    """A figure that left its interval; ``now`` None: there is none any more, for a ``reason``."""

    case: str
    figure: str
    was: Kept
    now: float | None
    reason: str = ""

    @property
    def verdict(self) -> Literal["better", "worse", "gone"]:
        """Which way it went."""
        if self.now is None:
            return "gone"
        return "better" if (self.now < self.was.value) == (self.was.better == "less") else "worse"

    @property
    def change(self) -> float | None:
        """By which share of what it was."""
        return None if self.now is None or not self.was.value else self.now / self.was.value - 1.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "case": self.case, "figure": self.figure, "origin": self.was.origin, "was": self.was.value,
            "interval": [self.was.low, self.was.high], "now": self.now, "change": self.change, "verdict": self.verdict,
            "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True)
class Regression:
    """What was compared: how many cases and figures, which of these moved, and figures that were passed over, with the reason."""

    cases: int
    figures: int
    moved: tuple[Moved, ...]
    skipped: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``regress --json``."""
        return {
            "cases": self.cases, "figures": self.figures, "moved": [m.to_dict() for m in self.moved], "skipped": list(self.skipped),
            "passed": not self.moved,
        }  # fmt: skip


def record(inputs: Sequence[Mapping[str, Any]], files: Path, path: Path, progress: Progress | None = None) -> Baseline:
    """Take the figures of some scenarios as a baseline and write it.

    Args:
        inputs: of every scenario, as a study lists them.
        files: where models are looked for first.
        path: the baseline's file.
        progress: called with what is done and the share.

    Raises:
        HetschedError: a scenario makes no sense or cannot be planned, simulated or run.
    """
    cases = []
    for k, given in enumerate(inputs):
        if progress is not None:
            progress(_called(given), k / len(inputs))
        scenario = Simulations().prepare(given, files)
        cases.append(Case(inputs={**given, **_files(scenario, path.parent.resolve())}, figures=_figures(scenario)))
    found = Baseline(hetsched=hetsched.__version__, machine=_machine(), cases=tuple(cases))
    write_atomically(path, (json.dumps(found.model_dump(mode="json"), indent=1, allow_nan=False) + "\n").encode())
    return found


def regress(path: Path, progress: Progress | None = None) -> Regression:
    """Plan, simulate and run the scenarios of a baseline again and compare.

    Args:
        path: the baseline's file.
        progress: called with what is done and the share.

    Raises:
        OptionError: there is no baseline, or it is malformed.
        InputError: a model or a SoC of it is gone.
    """
    stored = read_baseline(path)
    here, moved, skipped, count = _machine(), list[Moved](), list[str](), 0
    for k, case in enumerate(stored.cases):
        name = _called(case.inputs)
        if progress is not None:
            progress(name, k / len(stored.cases))
        scenario = Simulations().prepare(case.inputs, path.parent)
        reason, now = "it is not told any more", dict[str, Kept]()
        try:
            now = _figures(scenario)
        except HetschedError as e:
            reason = str(e)
        for figure, was in case.figures.items():
            if was.origin == "measured" and stored.machine != here:
                skipped.append(f"{name}: {figure} was measured on another machine ({stored.machine})")
                continue
            count += 1
            value = now[figure].value if figure in now else None
            if value is None or not was.low <= value <= was.high:
                moved.append(Moved(name, figure, was, value, reason if value is None else ""))
    return Regression(len(stored.cases), count, tuple(moved), tuple(skipped))


def check_place(path: Path, study: str | None) -> None:
    """Whether a baseline may be written: a plan or another file in JSON is never replaced by one.

    Raises:
        OptionError: it may not.
    """
    check_destination(path, (study,), option="")
    try:
        there = json.loads(path.read_bytes()) if path.is_file() else None
    except (ValueError, RecursionError):  # damaged, and perhaps a baseline
        return
    if isinstance(there, dict) and "cases" not in there:
        raise OptionError(f"cannot write {path}: a file that is no baseline is there; choose another place")


def read_baseline(path: Path) -> Baseline:
    """Read and validate a baseline.

    Raises:
        OptionError: absent, too large or malformed.
    """
    if not path.is_file():
        raise OptionError(f"there is no baseline {str(path)!r}: make one with 'hetsched regress {path} --record STUDY'")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise OptionError(f"{path} has {path.stat().st_size} bytes: a baseline has at most {MAX_FILE_BYTES}")
    text = path.read_bytes()
    try:
        return Baseline.model_validate_json(text)
    except ValidationError as e:
        raise OptionError(f"{path} is not a valid baseline: {wrong_fields.fault(e, Baseline)}; record it again with --record") from e


def _files(scenario: Prepared, folder: Path) -> dict[str, str]:
    """The inputs that name files, as they are called from a folder."""
    task = scenario.task
    values = {"model": task["model"], "soc": task["soc"], **task["plan"], **task["scenario"]}
    return {k: os.path.relpath(v, folder) for k, v in values.items() if isinstance(v, str) and Path(v).is_absolute()}


def _called(inputs: Mapping[str, Any]) -> str:
    """A case in a few words: its model, its SoC and what else it says."""
    rest = [f"{k}={v}" for k, v in inputs.items() if k not in ("model", "soc")]
    return " ".join([Path(str(inputs.get("model", ""))).stem, f"on {inputs.get('soc', HOST)}", *rest])


def _machine() -> str:
    from hetsched_cost_models.host.detect import detect

    return detect().fingerprint


def _figures(scenario: Prepared) -> dict[str, Kept]:
    """Everything that can be told of a scenario, with its interval."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        Simulations().plan(scenario, path)
        planned = of_plan(path, scenario.task["level"])
        out = {} if planned.soc.is_host else _predicted(planned)
        out |= _around({"peak_memory_mb": planned.summary()["peak_memory_mb"]}, "predicted")
        if planned.soc.is_host:
            return out | _measured(planned)
        found = Simulations().measure(scenario, path, curves=False).figures
        return out | _around({k: found[k] for k in SIMULATED if k in found}, "simulated")


#: Predicted figures that are compared, by their keys in ``plan --json``.
PREDICTED = ("latency_ms", "energy_mj", "ttft_ms", "prefill_tok_s", "decode_tok_s", "energy_per_token_j")
#: Simulated ones, by their columns in a study.
SIMULATED = (
    "rate", "rate_first_minute", "rate_last_minute", "p50_ms", "p90_ms", "p99_ms", "energy_j", "skin_c", "hottest_c", "tokens",
)  # fmt: skip
#: Figures of which more is better.
MORE = ("rate", "tok_s", "tokens", "cosine", "snr_db")


def _predicted(planned: Planned) -> dict[str, Kept]:
    summary = planned.summary()
    return _around({k: summary.get(k) for k in PREDICTED}, "predicted")


def _around(values: Mapping[str, Any], origin: Origin) -> dict[str, Kept]:
    """Figures with :data:`TOLERANCE` on both sides; simulated ones are named so where a prediction has the same name."""
    out = {}
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            room = abs(value) * TOLERANCE
            key = f"simulated {name}" if origin == "simulated" else name
            out[key] = Kept(value=value, low=value - room, high=value + room, origin=origin, better=_better(name))
    return out


def _better(name: str) -> Literal["less", "more"]:
    return "more" if name.endswith(MORE) or name.startswith("rate") else "less"


def _measured(planned: Planned) -> dict[str, Kept]:
    """A run on this machine: the median of several rounds, and how its numbers compare with the reference."""
    first = run(planned, check=True, repeat=REPEATS)
    rounds = [float(np.median(first.result.latencies_s)) * 1e3]
    rounds += [float(np.median(run(planned, repeat=REPEATS).result.latencies_s)) * 1e3 for _ in range(ROUNDS - 1)]
    middle, slowest = float(np.median(rounds)), max(rounds)
    high = slowest + max(slowest - min(rounds), NOISE * middle)
    out = {"run latency_ms": Kept(value=middle, low=0.0, high=high, origin="measured", better="less")}
    report = first.check
    if report is None:
        return out
    failed = float(len(report.failures))
    out["tensors that fail"] = Kept(value=failed, low=0.0, high=failed, origin="numerics", better="less")
    for c in report.checks:
        d = c.difference
        if c.is_output and c.verdict != "constant":
            out[f"{c.tensor} cosine"] = Kept(value=d.cosine, low=d.cosine - COSINE, high=1.0 + COSINE, origin="numerics", better="more")
            worst = d.max_abs * (1 + ERROR) + 1e-12
            out[f"{c.tensor} max_abs"] = Kept(value=d.max_abs, low=0.0, high=worst, origin="numerics", better="less")
            if np.isfinite(d.snr_db):
                out[f"{c.tensor} snr_db"] = Kept(value=d.snr_db, low=d.snr_db - SNR_DB, high=1e3, origin="numerics", better="more")
    return out
