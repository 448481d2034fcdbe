"""Fit chassis to the runs, write the SoC files and the drawing, print the figures: ``python -m hetsched_simulations.chassis [--check]``.

``--check`` writes nothing. The exit code is 1 if a goal is missed or, with ``--check``, if a file is not what the fit writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetsched_simulations.chassis import socs
from hetsched_simulations.chassis.fitting import GRID, RATIO_GOAL, TIME_GOAL, Bench, Left
from hetsched_simulations.chassis.plots import Panel, svg
from hetsched_simulations.chassis.runs import DATA, runs

DRAWING = Path("docs/thermal.svg")
FITTED = DATA / "fitted.csv"


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the table."""

    what: str
    goal: str
    measured: str
    met: bool | None


def main(arguments: Sequence[str]) -> int:
    """Fit, write, print."""
    bench = Bench(runs())
    p = bench.fit(bench.runs)
    left = bench.left_out(lambda r: r.name)
    stale = _stale(bench, p, left)
    if "--check" not in arguments:
        for path, text in stale.items():
            path.write_text(text, encoding="utf-8")
        stale = {}
    for x in left:
        _show_run(x)
    found = list(figures(bench, p, left))
    print(f"{'what':<62} {'goal':>8}  {'measured':<50} ok")
    for f in found:
        print(f"{f.what:<62} {f.goal:>8}  {f.measured:<50} {'' if f.met is None else 'yes' if f.met else 'NO'}")
    for path in stale:
        print(f"{path.name} is not what the fit writes: run make fit-thermal")
    return 1 if stale or any(f.met is False for f in found) else 0


def _stale(bench: Bench, p: Mapping[str, float], left: Sequence[Left]) -> dict[Path, str]:
    """Files that are not what the fit writes, and what it writes."""
    texts = {FITTED: "parameter,value\n" + "".join(f"{n},{v:g}\n" for n, v in p.items())}
    if DRAWING.parent.is_dir():
        texts[DRAWING] = svg([Panel(x.outcome.run, bench.played(x.outcome.run, x.fit).averaged()) for x in left])
    texts |= {path: socs.text(i, path, p) for i, path in socs.files().items()}
    return {path: text for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text}


def figures(bench: Bench, p: Mapping[str, float], left: Sequence[Left]) -> Iterator[Figure]:
    """How far runs are off that the fit has not seen; for information also those of whole SoCs, and those it has seen."""
    yield from _errors("each run left out", left, True)
    yield from _errors("all runs of a SoC left out", bench.left_out(lambda r: r.soc), False)
    yield from _errors("of the runs fitted", [Left(bench.outcome(r, p), p) for r in bench.runs], False)
    yield Figure("fitted parameters", "", ", ".join(f"{n} {v:g}" for n, v in p.items()), None)
    yield Figure("runs a fitted parameter", "", f"{len(bench.runs)} / {len(GRID)} = {len(bench.runs) / len(GRID):.1f}", None)


def _errors(which: str, found: Sequence[Left], judged: bool) -> Iterator[Figure]:
    points = np.array([abs(x.outcome.points) for x in found])
    late = np.array([abs(x.outcome.late) for x in found if x.outcome.late is not None])
    for what, errors, goal, unit in (("steady to peak", points, RATIO_GOAL, " points"), ("time to -25 %", late, TIME_GOAL, " %")):
        median = float(np.median(errors))
        text = f"{100 * median:.1f}{unit} ({len(errors)} runs, {int((errors <= goal).sum())} within)"
        yield Figure(
            f"{what}, {which}: median",
            f"<= {100 * goal:g}{unit[:2].rstrip('p')}" if judged else "",
            text,
            median <= goal if judged else None,
        )


def _show_run(left: Left) -> None:
    x = left.outcome
    times = "" if x.run.quarter_s is None else f", -25 % after {x.run.quarter_s:.0f} s, simulated {_seconds(x.quarter_s)}"
    watts = "" if x.run.power_w is None else f", {x.run.power_w:.1f} W, simulated {x.watts:.1f} W"
    print(f"  {x.run.name:<20} steady {x.run.ratio:.0%}, simulated {x.ratio:.0%}{times}{watts}")


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
