"""``hetsched simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetsched.app.language_simulating import SimulatedLanguage
from hetsched.app.sessions import is_plan_file
from hetsched.app.simulating import Simulated, simulate
from hetsched.cli import options, traces
from hetsched.cli.progress import progress


def simulate_one(
    target: Path,
    *,
    soc: str | None,
    duration_s: float | None,
    ambient_c: float,
    policy: str,
    period_s: float | None,
    precision: str,
    dim: Sequence[str],
    level: int,
    trace: Path | None,
    quiet: bool,
    what_if: Sequence[str] = (),
) -> Simulated | SimulatedLanguage:
    """Simulate a plan file, or plan a model first."""
    traces.check_name(trace, (target, soc))
    with progress("simulating", quiet) as bar:
        result = simulate(
            target, soc, duration_s=duration_s, ambient_c=ambient_c, policy=policy, period_s=period_s, progress=bar.share,
            level=level, **plan_options(target, precision, dim, what_if=what_if),
        )  # fmt: skip
    traces.write(result.trace, trace)
    return result


def show_simulation(result: Simulated | SimulatedLanguage, trace: Path | None) -> None:
    """Print how it went."""
    from hetsched.cli import show, show_language

    if isinstance(result, SimulatedLanguage):
        show_language.simulation(result, trace)
    else:
        show.simulation(result, trace)


def plan_options(
    target: Path, precision: str, dim: Sequence[str], ranges: Path | None = None, what_if: Sequence[str] = ()
) -> dict[str, Any]:
    """Options that only a model (not a plan file) takes."""
    from hetsched.errors import OptionError

    if is_plan_file(target):
        if dim or what_if or precision != "auto" or ranges is not None:
            raise OptionError(f"{target} is already a plan: --dim, --precision, --ranges and --set belong to 'hetsched plan'")
        return {}
    return {"dims": options.dims(dim), "precision": precision, "ranges": ranges, "overrides": options.settings(what_if)}
