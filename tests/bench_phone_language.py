#!/usr/bin/env python3
"""Plans of language models on phones beside published rates: tokens a second of both phases, and how far they are apart.

python tests/bench_phone_language.py [CHIP]        (one chip alone, for example snapdragon-8-gen-3)

Every public rate of the cost model's data whose model has a configuration in `phone_language_models.py` and whose bits a plan of it can
have, on the processor and through the engine that the row names; and rates that no fit saw (`language_checks.csv`). Rows with so many
threads that no queue has, in llama.cpp's k-quants or in 8 bits on a GPU are left out: they need the model file, or a queue of their own.
"""

from __future__ import annotations

import csv
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from phone_language_models import folder_of, known_as

import hetsched
from hetsched.app.language import PlannedLanguage
from hetsched_cost_models.fit.language_data import ROWS_FILE, rates

CHECKS_FILE = ROWS_FILE.parent / "language_checks.csv"
#: Of a prompt or a context that a source does not state: those of common benchmarks.
PROMPT, CONTEXT = 512, 128
GENERATED = 64
FAR = 0.25


@dataclass(frozen=True)
class Published:
    """A rate as it was published; prompt and context 0: not stated. ``blind``: no fit saw it."""

    model: str
    bits: float
    chip: str
    unit: str
    engine: str
    prompt: int
    context: int
    prefill: float
    decode: float
    source: str
    blind: bool


@dataclass(frozen=True)
class Compared:
    """A published figure of one phase, and the plan's with its interval."""

    row: Published
    phase: str
    published: float
    predicted: float
    interval: tuple[float, float]

    @property
    def ratio(self) -> float:
        """Predicted over published."""
        return self.predicted / self.published


def fitted_rows() -> Iterator[Published]:
    """Rows of the fits that a plan of a configuration can have, each once."""
    seen = set()
    for r in rates():
        row = Published(r.model, r.bits, r.chip, r.unit, r.engine, r.prompt, r.context, r.prefill, r.decode, r.source, False)
        if r.threads == 0 and r.k_quants < 1.0 and r.engine != "t-mac" and row not in seen:
            seen.add(row)
            yield row


def blind_rows() -> Iterator[Published]:
    """Published rates that no fit saw."""
    with CHECKS_FILE.open(encoding="utf-8", newline="") as f:
        for r in csv.DictReader(f):
            prompt, prefill, decode = int(r["prompt"]), float(r["prefill_tok_s"] or 0), float(r["decode_tok_s"])
            yield Published(
                r["model"], float(r["bits"]), r["chip"], r["unit"], r["engine"], prompt, prompt, prefill, decode, r["source"], True
            )  # fmt: skip


def precision_of(row: Published) -> str | None:
    """What to plan so that weights have the row's bits, nearly; None: no plan of a 16-bit configuration has them."""
    if row.bits == 16.0:
        return "auto"
    if 4.0 <= row.bits < 6.0:
        return "w4a8"
    eight = {"cpu": "w8a8-dynamic", "npu": "w8a16"} if row.bits in (8.0, 8.5) else {}
    return eight.get(row.unit) if row.unit == "cpu" or row.engine == "qnn" else None


@cache
def planned(folder: Path, chip: str, unit: str, engine: str, precision: str, prompt: int) -> PlannedLanguage:
    """Everything on one kind of processor, and on the CPU what that cannot run."""
    how = {"solver": "single:cpu"} if unit == "cpu" else {"solver": "vendor", "forbidden": {"*": "npu" if unit == "gpu" else "gpu"}}
    found = hetsched.plan(
        folder, chip, prompt=prompt, generate=GENERATED, runtime=engine, precision=precision, simulated=False, public_anchors=False, **how
    )
    assert isinstance(found, PlannedLanguage)
    return found


def compared(rows: Iterable[Published], parent: Path) -> Iterator[Compared]:
    """The rows that can be planned, phase by phase."""
    for row in rows:
        name, precision = known_as(row.model), precision_of(row)
        if name is None or precision is None:
            continue
        folder = folder_of(name, parent)
        for phase, published in (("prefill", row.prefill), ("decode", row.decode)):
            if not published:
                continue
            tokens = row.prompt or PROMPT if phase == "prefill" else max(1, (row.context or row.prompt or CONTEXT))
            p = planned(folder, row.chip, row.unit, row.engine, precision, tokens).prediction
            rate, interval = (p.prefill_rate, p.prefill_rate_interval) if phase == "prefill" else (p.decode_rate, p.decode_rate_interval)
            yield Compared(row, phase, published, rate, interval)


def line(c: Compared) -> str:
    """One row of the table."""
    low, high = c.interval
    row = c.row
    what = f"{row.model[:28]:<28} {row.bits:>5.4g} {row.chip:<24} {row.unit:<3} {row.engine:<10} {c.phase:<7} {row.prompt or '-':>5}"
    within = "yes" if low <= c.published <= high else "NO"
    return f"{what} {c.predicted:>8.1f} {c.published:>8.1f} {c.ratio:>6.2f} {within:>4}  {row.source}"


def summary(what: str, found: Sequence[Compared]) -> str:
    """Median error, share within a quarter and in the interval; every model x chip x processor x engine counts alike."""
    groups: dict[tuple[str | None, ...], list[Compared]] = {}
    for c in found:
        groups.setdefault((known_as(c.row.model), c.row.chip, c.row.unit, c.row.engine), []).append(c)
    each = [statistics.median(abs(c.ratio - 1.0) for c in own) for own in groups.values()]
    inside = [statistics.mean(c.interval[0] <= c.published <= c.interval[1] for c in own) for own in groups.values()]
    near = statistics.mean(e <= FAR for e in each)
    return (
        f"{what:<44} {len(found):>4} rows, {len(groups):>3} groups: median error {statistics.median(each):.1%}, "
        f"within {FAR:.0%}: {near:.0%}, in the interval: {statistics.mean(inside):.0%}"
    )


def main(arguments: Sequence[str]) -> int:
    """Print every row, then the summaries."""
    with tempfile.TemporaryDirectory() as parent:
        rows = [r for r in (*fitted_rows(), *blind_rows()) if not arguments or r.chip == arguments[0]]
        found = []
        print("predicted and published tokens a second, their ratio, and whether the published one is in the 80 % interval")
        for c in compared(rows, Path(parent)):
            found.append(c)
            print(line(c), flush=True)
    if not found:
        print(f"no published rate can be planned on {' '.join(arguments) or 'any chip'}", file=sys.stderr)
        return 2
    for phase in ("prefill", "decode"):
        own = [c for c in found if c.phase == phase]
        here = [c for c in own if c.row.chip == "snapdragon-8-gen-3" and c.row.unit == "cpu"]
        picks = {
            "Llama 3.2 on the 8 Gen 3's CPU": [c for c in here if "llama-3.2" in str(known_as(c.row.model))],
            "no fit saw them": [c for c in own if c.row.blind],
            **{f"{unit.upper()}s": [c for c in own if c.row.unit == unit] for unit in ("cpu", "gpu", "npu")},
            "all": own,
        }
        for what, picked in picks.items():
            if picked:
                print(summary(f"{phase}, {what}", picked))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
