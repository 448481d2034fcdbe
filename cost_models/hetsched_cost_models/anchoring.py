"""A cost table corrected by anchors, and the shipped table of public ones.

``data/anchors.csv`` holds measured latencies by structural hash (:mod:`hetsched.graph_hash`), ``data/anchor_intervals.csv`` how
far corrected predictions were off; both are made by ``python -m hetsched_cost_models.anchor_table``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log
from pathlib import Path

import numpy as np

from hetsched.anchors import Anchor, factors
from hetsched.costs import CostTable, FloatArray
from hetsched.segments import schedule
from hetsched.socs import Processor, SoC

_DATA = Path(__file__).parent / "data"
#: Parts for cars and industry: the clocks and memory of their boards are not those of phones.
_BOARDS = frozenset({"qcs9075", "sa8295p", "sa8775p"})


@dataclass(frozen=True, slots=True)
class PublicAnchor:
    """One row of the shipped table: what a known network took on a chip's NPU, the network wholly on it."""

    graph: str
    model: str
    chip: str
    runtime: str
    precision: str
    latency_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Interval:
    """80 % interval of an anchored prediction as factors, and the pairs of rows and models that it rests on."""

    low: float
    high: float
    pairs: int
    models: int
    basis: str


def anchored(table: CostTable, anchors: Iterable[Anchor]) -> CostTable:
    """The table times the anchors' factors (:func:`hetsched.anchors.factors`).

    Of every processor kind with a factor, the compute, traffic, overhead and energy of its alternatives and the launch of its
    queues are multiplied. What passes between an accelerator and another processor (signals, transfers) goes with the
    accelerator's factor, so that the latency of a plan with everything on one changes by exactly its factor. Bandwidths and the
    bytes of weights stay.
    """
    scale = factors(anchors, table.soc)
    if not scale:
        return table
    queue = np.array([scale.get(q.kind, 1.0) for q in table.queues])
    away = np.array([1.0 if q.kind == "cpu" else f for q, f in zip(table.queues, queue.tolist(), strict=True)])
    domain = np.array([away[d.queue] for d in table.domains])
    per_alternative, between, moves = queue[table.alt_queue], _pairs(away), _pairs(domain)[np.newaxis]
    return replace(
        table,
        compute_s=table.compute_s * per_alternative, overhead_s=table.overhead_s * per_alternative,
        dram_bytes=table.dram_bytes * per_alternative, energy_j=table.energy_j * per_alternative,
        cache_bytes=table.cache_bytes * per_alternative if len(table.cache_bytes) else table.cache_bytes,
        launch_s=table.launch_s * queue, launch_energy_j=table.launch_energy_j * queue,
        sync_s=table.sync_s * between, sync_energy_j=table.sync_energy_j * between,
        conversion_s=table.conversion_s * moves, maintenance_s=table.maintenance_s * moves,
        transfer_energy_j=table.transfer_energy_j * moves,
    )  # fmt: skip


def _pairs(factor: FloatArray) -> FloatArray:
    """[n, n] factor of what happens between two places: that of the one that has one, of two the geometric mean."""
    a, b = factor[:, np.newaxis], factor[np.newaxis, :]
    return np.asarray(np.where(a == 1.0, b, np.where(b == 1.0, a, np.sqrt(a * b))))


def on_kind(table: CostTable, kind: str) -> float:
    """Seconds of a whole model on the processor of one kind, with the CPU's where it is refused.

    Of several queues of the kind the first of those with most cores counts.

    Raises:
        OptionError: the SoC has no processor of the kind.
    """
    queue = queues_of_kind(table, kind)[0]
    choice = [next((a for a in r if table.alt_queue[a] == queue), r[0]) for r in map(table.alternatives, range(len(table.op_names)))]
    return schedule(table, range(len(table.op_names)), choice).latency_s


def queues_of_kind(table: CostTable, kind: str) -> tuple[int, ...]:
    """Indices of the queues with most cores of a processor kind, ascending.

    Raises:
        OptionError: the SoC has no processor of the kind.
    """
    own = [i for i, q in enumerate(table.queues) if q.kind == kind]
    most = max((len(table.queues[i].cores) for i in own), default=0)
    return tuple(i for i in own if len(table.queues[i].cores) == most) or (table.queue_index(kind),)


@lru_cache(maxsize=1)
def _table() -> Mapping[str, tuple[PublicAnchor, ...]]:
    out: dict[str, list[PublicAnchor]] = {}
    for row in _rows("anchors.csv"):
        found = PublicAnchor(
            row["graph"], row["model"], row["chip"], row["runtime"], row["precision"], float(row["latency_ms"]) / 1e3, row["source"]
        )
        out.setdefault(found.graph, []).append(found)
    return {k: tuple(v) for k, v in out.items()}


def public_anchors(graph: str) -> tuple[PublicAnchor, ...]:
    """Shipped measurements of the network with this structural hash, in the order of the file; none for an unknown network."""
    return _table().get(graph, ())


def closest(rows: Iterable[PublicAnchor], soc: SoC, runtime: str, precision: str) -> PublicAnchor | None:
    """The row that says most about a plan: of its precision, on an NPU of its family, by chip, then by runtime, then by rate.

    A plan with the runtime ``default`` is compared with ``qnn``, whose operators and overheads it assumes.
    """
    from hetsched.soc_files import list_socs, load_soc

    wanted, known = _runtime(runtime), set(list_socs())
    left = [r for r in rows if r.precision == precision and (r.chip in known or r.chip == soc.id)]
    same = [r for r in left if r.chip == soc.id]
    chips = {c: load_soc(c) for c in sorted({r.chip for r in left})} if not same else {soc.id: soc}
    near = same or [r for r in left if _same_family(chips[r.chip], soc)]
    ranked = sorted(near, key=lambda r: (r.runtime != wanted, _distance(chips[r.chip], soc), r.chip, r.runtime))
    return ranked[0] if ranked else None


def are_similar(a: SoC, b: SoC) -> bool:
    """Whether two SoCs are of phones or laptops and have NPUs of one family whose largest peak rates are within a factor of two."""
    return _same_family(a, b) and _distance(a, b) <= log(2.0) and not {a.id, b.id} & _BOARDS


def calibrated(a: SoC, b: SoC) -> bool:
    """Whether the intervals speak of these chips: their NPUs are of one family, which public rows were measured on."""
    npu = _npu(a)
    return _same_family(a, b) and npu is not None and npu.family == "hexagon"


def _same_family(a: SoC, b: SoC) -> bool:
    mine, other = _npu(a), _npu(b)
    return mine is not None and other is not None and (a.family, mine.family) == (b.family, other.family)


def _npu(soc: SoC) -> Processor | None:
    return next((p for p in soc.processors if p.kind == "npu"), None)


def _distance(a: SoC, b: SoC) -> float:
    """How far apart two NPUs' largest peak rates are, as |log ratio|."""
    top = [max(float(f) for c in p.clusters for f in c.peak_ops_s.values()) for p in map(_npu, (a, b)) if p is not None]
    return abs(log(top[0] / top[1])) if len(top) == 2 else inf


def relation(anchor_runtime: str, runtime: str, *, same_chip: bool, similar: bool) -> str:
    """What an anchor and a plan share: ``same-chip``, ``same-chip-other-runtime``, ``similar-chip`` or ``other-chip``.

    ``similar`` is what :func:`are_similar` says of the two chips.
    """
    if not same_chip:
        return "similar-chip" if similar else "other-chip"
    return "same-chip" if _runtime(anchor_runtime) == _runtime(runtime) else "same-chip-other-runtime"


def _runtime(name: str) -> str:
    return "qnn" if name == "default" else name


@lru_cache(maxsize=1)
def intervals() -> Mapping[str, Interval]:
    """Calibrated intervals by :func:`relation`."""
    return {
        row["relation"]: Interval(float(row["low"]), float(row["high"]), int(row["pairs"]), int(row["models"]), row["basis"])
        for row in _rows("anchor_intervals.csv")
    }


def _rows(name: str) -> list[dict[str, str]]:
    path = _DATA / name
    if not path.is_file():
        return []
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))
