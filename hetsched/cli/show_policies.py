"""One scenario under several policies: a column a policy, a row a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from hetsched.app.circumstances import lying
from hetsched.cli import show
from hetsched.cli.show_simulation import SIMULATED, at_levels, battery

Summary: TypeAlias = Mapping[str, Any]
#: What is told of a run: a heading, and its cell by the run's summary.
Rows: TypeAlias = Sequence[tuple[str, Callable[[Summary], str]]]


def comparison(soc_name: str, summaries: Mapping[str, Summary]) -> None:
    """What each policy got done, and what that did to the phone.

    Args:
        soc_name: of the phone.
        summaries: of the runs, by policy; all of inferences, or all of chats.
    """
    some = next(iter(summaries.values()))
    told = [*(_ANSWERS if "tokens" in some else _INFERENCES), *_PHONE]
    cells = [[head, *(cell(s) for s in summaries.values())] for head, cell in told]
    rows = [row for row in cells if any(c != NOTHING for c in row[1:])]
    where = f"{some['model']} on {soc_name} at {some['ambient_c']:g} °C{lying(some['case'])}, {show.seconds(some['duration_s'])}"
    columns = range(1, len(summaries) + 1)
    show.table(where, ["", *summaries], rows, numeric=columns, whole=0, spare=[*reversed(columns[1:])])
    if some.get("note"):
        show.line(some["note"])
    for policy, s in summaries.items():
        if s["levels"] is not None:
            show.line(f"{policy}: at level {at_levels(s['levels'])}")
        if s["battery"]:
            show.line(f"{policy}: battery {battery(s['battery'])}")
    for basis in (SIMULATED, *(f"({b})" for b in (some["power_basis"], some["heat_basis"]) if b)):
        show.line(basis)
    for s in summaries.values():
        if s["trace_path"] is not None:
            show.line(f"trace: {s['trace_path']}")


NOTHING = "-"


def _latency(which: str) -> Callable[[Summary], str]:
    return lambda s: show.seconds(s["latency_ms"][which] / 1e3)


def _rate(when: str) -> Callable[[Summary], str]:
    return lambda s: f"{s['decode_tok_s'][when]:.3g}"


def _missed(s: Summary) -> str:
    found = s["arrivals"]
    return NOTHING if not found or found["missed"] is None else f"{found['missed']:.1%}"


def _first_token(s: Summary) -> str:
    return show.seconds(s["ttft_ms"]["median"] / 1e3) if s["ttft_ms"] else NOTHING


def _skin(s: Summary) -> str:
    return f"{s['thermal_status']['skin_c']['max']:.1f} °C" if s["thermal_status"] else NOTHING


def _status(s: Summary) -> str:
    return str(s["thermal_status"]["worst"]) if s["thermal_status"] else NOTHING


def _hottest(s: Summary) -> str:
    heat = s["peak_temperatures_c"]
    return f"{max(heat.values()):.1f} °C" if heat else NOTHING


def _throttled(s: Summary) -> str:
    return f"{s['throttled']['seconds'] / s['duration_s']:.0%}" if s["throttled"]["steps"] else "never"


_INFERENCES: Rows = (
    ("inferences", lambda s: str(s["inferences"])), ("latency, median", _latency("median")), ("latency, p90", _latency("p90")),
    ("latency, p99", _latency("p99")), ("missed", _missed),
)  # fmt: skip
_ANSWERS: Rows = (
    ("tokens of answers", lambda s: str(s["tokens"])), ("tok/s, first minute", _rate("first_minute")),
    ("tok/s, last minute", _rate("last_minute")), ("first token, median", _first_token),
    ("a token takes", lambda s: show.joules(s["energy_per_token_j"])),
)  # fmt: skip
_PHONE: Rows = (
    ("skin at most", _skin), ("status at worst", _status), ("hottest part", _hottest), ("time throttled", _throttled),
    ("energy, whole phone", lambda s: show.joules(sum(s["energy_j"].values()))), ("power", lambda s: f"{s['average_power_w']:.2f} W"),
    ("switches", lambda s: "0" if s["levels"] is None else str(s["levels"]["switches"])),
)  # fmt: skip
