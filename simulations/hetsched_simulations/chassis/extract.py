"""Makes the data of the chassis fit: ``python -m hetsched_simulations.chassis.extract [MEASUREMENTS]``.

Every group of rows of ``thermal.csv`` (device, workload, metric) becomes a run or is left out with the reason. A run's peak is its own
first sample if it starts cool; one that starts warm is throttled from its first second, and its peak is what ``llm.csv`` has of the
same model, engine and phone when cool.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hetsched_simulations.chassis.plans import LEFT_OUT, PHONES, TAKEN, Taken
from hetsched_simulations.chassis.runs import LEFT_OUT_FILE, QUARTER, RUNS_FILE, SERIES_FILE, Series, first_below

MEASUREMENTS = Path("../shared/measurements")
MINUTE_S = 60.0
STEADY_SHARE = 1 / 3
"""The steady rate is the mean over this last part of a run."""
ROOM_C = 25.0
"""Around the phone where nothing is said (assumed); a phone that starts cooler is taken to be in a cooler place."""
COLUMNS = [
    "run",
    "phone",
    "maker",
    "area_m2",
    "mass_kg",
    "soc",
    "queue",
    "workload",
    "seconds",
    "rest_s",
    "rest_share",
    "ambient_c",
    "start_c",
    "traffic_bytes_s",
    "steady_from_s",
    "steady_to_s",
    "ratio",
    "quarter_s",
    "power_w",
    "tier",
    "source",
]
Row = dict[str, str]


def main(arguments: Sequence[str]) -> int:
    """Write the three files; 1 if a group of rows is neither taken nor left out."""
    folder = Path(arguments[0]) if arguments else MEASUREMENTS
    with (folder / "thermal.csv").open(encoding="utf-8", newline="") as f:
        found = list(csv.DictReader(f))
    with (folder / "llm.csv").open(encoding="utf-8", newline="") as f:
        cool = list(csv.DictReader(f))
    own = {t.run: [r for r in found if _is(t, r)] for t in TAKEN}
    peaks = {t.run: _peak(t, own[t.run], cool) for t in TAKEN}
    _write(RUNS_FILE, COLUMNS, (_run(t, own[t.run], peaks[t.run]) for t in TAKEN))
    points = ((t.run, f"{s:g}", f"{v:.4g}") for t in TAKEN for s, v in _series(t, own[t.run], peaks[t.run]))
    _write(SERIES_FILE, ("run", "t_s", "fraction"), points)
    groups = list(dict.fromkeys((r["device"], r["workload"]) for r in found))
    taken = [g for g in groups if any(_is(t, {"device": g[0], "workload": g[1]}) for t in TAKEN)]
    reasons = {g: why for g in groups for device, workload, why in LEFT_OUT if device in g[0] and workload in g[1] and g not in taken}
    _write(LEFT_OUT_FILE, ("device", "workload", "reason"), ((*g, reasons[g]) for g in groups if g in reasons))
    unknown = [g for g in groups if g not in taken and g not in reasons]
    print(f"{len(TAKEN)} runs, {len(reasons)} groups of rows left out")
    for g in unknown:
        print(f"neither taken nor left out: {g[0]}, {g[1]}")
    return 1 if unknown else 0


def _is(taken: Taken, row: Row) -> bool:
    return taken.device in row["device"] and re.search(taken.workload, row["workload"]) is not None


def _rates(own: Sequence[Row]) -> list[tuple[float, float]]:
    """(seconds, runs or tokens a second); medians of a minute count in its middle."""
    out = []
    for r in own:
        if r["value"] and "fraction" not in r["metric"] and r["state"] != "recovery":
            minute = r["metric"] == "median_ms per minute"
            out.append((float(r["t_s"] or 0) + (MINUTE_S / 2 if minute else 0.0), 1e3 / float(r["value"]) if minute else float(r["value"])))
    return out


def _peak(taken: Taken, own: Sequence[Row], cool: Sequence[Row]) -> float:
    """The first rate, or that of the same model, engine and phone when cool."""
    if taken.cool_as is None:
        return _rates(own)[0][1]
    return max(
        float(r["decode_tok_s"])
        for r in cool
        if (r["model"], r["engine"]) == taken.cool_as and taken.phone in r["device"] and r["source"].endswith("decode-cells.jsonl")
    )


def _series(taken: Taken, own: Sequence[Row], peak: float) -> Series:
    """Seconds and fractions of the peak, in order."""
    rates = _rates(own)
    times = taken.times or [t for t, _ in rates]
    points = [(t, v / peak) for t, (_, v) in zip(times, rates, strict=True)]
    return tuple(sorted(points + [(float(r["t_s"]), float(r["value"])) for r in own if "fraction" in r["metric"]]))


def _run(taken: Taken, own: Sequence[Row], peak: float) -> Iterator[str]:
    series, phone = _series(taken, own, peak), PHONES[taken.phone]
    minutes = "per minute" in own[0]["metric"]
    seconds = taken.seconds or series[-1][0] + (MINUTE_S / 2 if minutes else 0.0)
    steady_from = taken.steady_from_s or seconds * (1 - STEADY_SHARE)
    steady = [v for t, v in series if t >= steady_from]
    start = float(own[0]["temp_c"]) if minutes else taken.start_c
    quarter = first_below(series, QUARTER) if taken.timed else None
    power = next((r["power_w"] for r in own if r["power_w"]), "")
    traffic = taken.weight_gb * 1e9 * peak if "tok_s" in own[0]["metric"] else 0.0
    yield from (
        taken.run, taken.phone, phone.maker, f"{phone.area_m2:.4g}", f"{phone.grams / 1000:g}", taken.soc, taken.queue,
        own[0]["workload"], f"{seconds:g}", f"{taken.rest_s:g}", f"{taken.rest_share:g}", f"{min(ROOM_C, start):g}", f"{start:g}",
        f"{traffic:.4g}", f"{steady_from:g}", f"{seconds:g}", f"{sum(steady) / len(steady):.4g}",
        "" if quarter is None else f"{quarter:.4g}", power, own[0]["tier"], own[0]["source"],
    )  # fmt: skip


def _write(path: Path, columns: Sequence[str], found: Iterable[Iterable[str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([columns, *found])
    path.write_text(text.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
