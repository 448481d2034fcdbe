"""Predicted latencies of measured rows as a function of the parameters: the cost model, vectorised over rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hetsched.soc_files import load_soc
from hetsched_cost_models import hexagon
from hetsched_cost_models.fit.dataset import CHIPS, COLUMNS, Row, graphs
from hetsched_cost_models.fit.priors import FIXED
from hetsched_cost_models.work import FloatArray, IntArray

_PRECISION = {"float": 0, "w8a8": 1, "w8a16": 2}
#: Bytes of an activation and of a weight in float16, w8a8, w8a16; the host holds floats in four.
_ACTIVATION, _WEIGHT, _HOST = np.array([2.0, 1.0, 2.0]), np.array([2.0, 1.0, 1.0]), 4.0


@dataclass(frozen=True, slots=True)
class Chip:
    """Published figures of a chip: the units, and the clock of the fastest core."""

    unit: hexagon.Unit
    host_hz: float

    @staticmethod
    def of(chipset: str) -> Chip:
        """The chip of AI Hub rows, from its SoC file alone: a fit needs no parameters of an earlier one."""
        soc = load_soc(CHIPS[chipset])
        npu = next(x for x in soc.processors if x.kind == "npu")
        peak = {name: figure.value for name, figure in npu.clusters[0].peak_ops_s.items()}
        vector = npu.vector_bytes_s.value if npu.vector_bytes_s is not None else FIXED["reference/vector_bytes_s"][0]
        host = max(c.top.hz for x in soc.processors if x.kind == "cpu" for c in x.clusters)
        return Chip(hexagon.unit(peak, vector, npu.bandwidth_bytes_s.value, npu.onchip_bytes.value), host)


@dataclass(eq=False)
class Problem:
    """Rows of one chip and the distinct operators behind them; rows that differ in their fixed cost alone share a *case*."""

    rows: Sequence[Row]
    chip: Chip
    _case_of_row: IntArray = field(init=False)

    def __post_init__(self) -> None:
        index: dict[tuple[str, int, bool, bool], int] = {}
        cases = [(r.model, _PRECISION[r.precision], r.copies, r.runtime == "litert") for r in self.rows]
        self._case_of_row = np.array([index.setdefault(c, len(index)) for c in cases], np.int64)
        work = graphs()
        tables = [work[model].table for model, *_ in index]
        owner = np.repeat(np.arange(len(index)), [len(t) for t in tables])
        keys = np.array([[p, copies, paced] for _, p, copies, paced in index], float).reshape(-1, 3)[owner]
        columns = dict(zip(COLUMNS, np.concatenate(tables).T, strict=True))
        self._owner, self._cases, self._count = owner, len(index), columns["count"]
        self._precision, self._copies, self._paced = keys[:, 0].astype(np.int64), keys[:, 1], keys[:, 2]
        self._load = _load(columns, self._precision)
        self._edges = np.array([self._edge_s(r) for r in self.rows])
        self.log_measured = np.log([r.seconds for r in self.rows])

    def _edge_s(self, row: Row) -> float:
        """Conversion of inputs and outputs, as the cost table charges it (``transfers``)."""
        work, width = graphs()[row.model], _ACTIVATION[_PRECISION[row.precision]]
        rate = min(self.chip.unit.vector_bytes_s, self.chip.unit.bandwidth_bytes_s)
        return float((work.inputs + work.outputs) * (_HOST + width) / rate)

    def work_s(self, p: Mapping[str, float]) -> FloatArray:
        """[rows] seconds of all operators."""
        unit, load = self.chip.unit, self._load
        pace = 1.0 + self._paced * (p["pace/litert"] - 1.0)
        parts = hexagon.parts_of(load, unit, self._precision, self._copies, p)
        spilled, wait, ahead = (b / unit.bandwidth_bytes_s for b in (parts.spilled, parts.waited, parts.ahead))
        free = np.maximum(pace * parts.compute_s, spilled)
        shared = self._sum(ahead) / np.maximum(self._sum(free), 1e-30)
        seconds = wait + np.maximum(free, spilled + free * shared[self._owner])
        clock = p["reference/vector_bytes_s"] / unit.vector_bytes_s
        seconds = seconds + pace * clock * hexagon.dispatch(load.kind, load.tokens, p)
        return np.asarray(self._sum(seconds)[self._case_of_row])

    def _sum(self, values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(self._owner, values * self._count, self._cases), float)

    def log_predicted(self, p: Mapping[str, float]) -> FloatArray:
        """[rows] natural logarithm of the predicted seconds."""
        scale = hexagon.fixed_scale(self.chip.unit.vector_bytes_s, self.chip.host_hz, p)
        fixed = scale * np.array([p[f"fixed/{r.runtime}/{r.precision}"] for r in self.rows])
        return np.asarray(np.log(fixed + self._edges + self.work_s(p)))


def _load(c: Mapping[str, FloatArray], precision: IntArray) -> hexagon.Load:
    """Bytes at the rows' precisions, as :func:`hetsched_cost_models.streaming.load_of` counts them."""
    wide = _ACTIVATION[precision]
    moved = c["elems"] * wide + c["other_bytes"]
    width = moved / np.maximum(c["elems"] + c["other_bytes"] / 4.0, 1.0)
    weights = c["weights"] * _WEIGHT[precision] + c["weight_bytes"]
    return hexagon.Load(
        c["kind"].astype(np.int64), c["macs"], moved, c["written"] * width, c["once"] * width, c["functions"] * wide, weights,
        c["heads"], c["tokens"],
    )  # fmt: skip
