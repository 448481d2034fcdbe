"""How long a network takes on CPU cores, on a GPU or on a Neural Engine: one form a kind, over all rows at once.

    cpu:  pace[engine] * sum( max( 2 macs / (rate * u[class] * k / (k + k0)) + bytes / (v * rate), streamed / bandwidth ) + op_s )
    gpu:  fixed + sum( max( 2 (macs + fill) / (rate * u[class] * k / (k + k0)) + bytes / (v * rate), weights / bandwidth ) + op_s )
    npu:  fixed * 42 GB/s / bandwidth + max( sum( 2 macs ) / (peak * u), weights / bandwidth )

``rate`` of a CPU is that of its slowest core in use (threads share work evenly) times threads to an exponent below 1, at the
precision; of a GPU its float16 peak over the engine's pace. Engines with Winograd kernels have another ``u`` for 3x3 convolutions in float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hetsched_cost_models.fit.processor_data import COLUMNS, Chip, Core, Row, chips, graphs, published
from hetsched_cost_models.operators import CLASSES, VECTOR_KINDS
from hetsched_cost_models.roofline import spill
from hetsched_cost_models.work import FloatArray

#: Cost of a byte of these kinds over that of others.
_HEAVY = ("softmax", "norm", "transcendental", "transpose", "resize")
_HEAVY_FACTOR = 2.5
_WINOGRAD = ("ncnn", "tnn", "mnn")
#: Chips whose ncnn rows were taken on computers; on phones an inference through Vulkan has a fixed cost of its own.
_COMPUTERS = ("snapdragon-x-elite", "apple-m1", "apple-m3")
#: Bytes a second of the Neural Engine (A17 Pro's) at which the fixed cost holds; elsewhere it goes with memory.
ANE_BANDWIDTH = 42e9
_BYTES = {"f32": 4.0, "f16": 2.0, "i8": 1.0, "mix": 4.0}


def cores_of_row(row: Row, chip: Chip) -> tuple[Core, ...]:
    """The cores that a row's threads run on: the fastest of those that it may use."""
    wanted = {"big": [c for c in chip.cores if not c.little], "little": [c for c in chip.cores if c.little] or list(chip.cores[-4:])}
    usable = wanted.get(row.cores) or list(chip.cores)
    return tuple(usable[: row.threads] if row.threads else usable)


class Stack:
    """Operators of all rows, one after the other, and what each row runs on."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        tables = [_work(r.model) for r in rows]
        self.row = np.repeat(np.arange(len(rows)), [len(t) for t in tables])
        columns = dict(zip(COLUMNS, np.concatenate(tables).T, strict=True))
        cls, kind = columns["cls"].astype(int), columns["kind"].astype(int)
        self.macs, self.k, self.elements, self.weights = (columns[c] for c in ("macs", "k", "elements", "weights"))
        self.visible = (kind != VECTOR_KINDS.index("view")).astype(float)
        self.heavy = np.where(np.isin(kind, [VECTOR_KINDS.index(k) for k in _HEAVY]), _HEAVY_FACTOR, 1.0)
        self.depthwise = np.isin(cls, [i for i, c in enumerate(CLASSES) if c.startswith("depthwise")])
        self.kxk = np.isin(cls, [CLASSES.index("conv"), CLASSES.index("transposed")])
        self.grouped, self.matrix = cls == CLASSES.index("grouped"), cls != CLASSES.index("vector")
        self.precision, self.engine = np.array([r.precision for r in rows]), np.array([r.engine for r in rows])
        self.bytes = np.array([_BYTES[r.precision] for r in rows])
        self.winograd = (np.isin(self.engine, _WINOGRAD) & (self.precision != "i8"))[self.row] & self.kxk
        self.log_measured = np.log([r.seconds for r in rows])
        self.models = np.array([r.model for r in rows])
        self.where = [chips()[r.chip] for r in rows]
        self._place()

    def _place(self) -> None:
        """Peaks, bandwidths and cache sizes of every row."""
        used = [cores_of_row(r, c) if r.unit == "cpu" else () for r, c in zip(self.rows, self.where, strict=True)]
        name = {"i8": "i8", "f16": "f16"}
        slowest = [min((getattr(c, name.get(r.precision, "f32")) for c in u), default=1.0) for r, u in zip(self.rows, used, strict=True)]
        self.slowest, self.slowest_f32 = np.array(slowest), np.array([min((c.f32 for c in u), default=1.0) for u in used])
        self.threads = np.array([max(1.0, len(u)) for u in used])
        self.little = np.array([float(bool(u) and u[-1].little) for u in used])
        best = np.array([u[0].i8 / u[0].f32 if u else 1.0 for u in used])
        self.dot, self.mmla = ((best > 3.0) & (best < 6.0)).astype(float), (best >= 6.0).astype(float)
        self.bandwidth, self.onchip = np.array([c.bandwidth for c in self.where]), np.array([c.onchip for c in self.where])
        units = [{"gpu": c.gpu, "npu": c.npu}.get(r.unit) for r, c in zip(self.rows, self.where, strict=True)]
        self.family = np.array([u.family if u else c.family for u, c in zip(units, self.where, strict=True)])
        self.peak = np.array(
            [
                1.0 if u is None else u.i8 if r.precision == "i8" and r.unit == "npu" else u.f16
                for r, u in zip(self.rows, units, strict=True)
            ]
        )
        self.unit_bandwidth = np.array([u.bandwidth if u else 1.0 for u in units])

    def sums(self, per_op: FloatArray) -> FloatArray:
        """[rows] totals of what is per operator."""
        return np.bincount(self.row, per_op, len(self.rows)).astype(np.float64)

    def depth(self, half: float) -> FloatArray:
        """Share of its rate that a product of depth k reaches."""
        return np.where(self.matrix & ~self.depthwise, self.k / (self.k + half), 1.0)

    def utilisation(self, p: Mapping[str, float], winograd: bool) -> FloatArray:
        """Share of the peak by class, per operator."""
        plain = np.where(
            self.kxk,
            p["conv"],
            np.where(self.depthwise, p["depthwise"], np.where(self.grouped, p.get("grouped", p["depthwise"]), p["conv1x1"])),
        )
        return np.where(self.winograd, p["winograd"], plain) if winograd else plain


def _work(model: str) -> FloatArray:
    """[operators, columns]; a network known by its counts alone is one operator."""
    if model in graphs():
        return graphs()[model]
    macs, weights = published()[model]
    return np.array([[CLASSES.index("conv1x1"), VECTOR_KINDS.index("matrix"), macs, 256.0, 256.0, 0.0, weights]])


def cpu(s: Stack, p: Mapping[str, float]) -> FloatArray:
    """Logarithms of seconds on CPU cores."""
    scale = (
        s.threads ** p["threads"] * np.where(s.little > 0, p["little"], 1.0) * np.where(s.family == "apple-cpu", p["rate/apple-cpu"], 1.0)
    )
    integers = p["i8"] * np.where(s.mmla > 0, p["i8/mmla"], np.where(s.dot > 0, p["i8/dot"], 1.0))
    share = np.where(s.precision == "i8", integers, np.where(s.precision == "f16", p["f16"], 1.0))
    rate = scale * s.slowest * share
    size = s.elements * s.bytes[s.row]
    matrix = 2.0 * s.macs / (rate[s.row] * s.utilisation(p, winograd=True) * s.depth(p["k0"]))
    vector = s.visible * size * s.heavy / (p["vector"] * (scale * s.slowest_f32)[s.row])
    resident = spill(s.sums(s.weights) * s.bytes / s.onchip)
    streamed = s.weights * (s.bytes * resident)[s.row] + s.visible * size * spill(size / s.onchip[s.row])
    op = p["op_s"] + p["barrier_s"] * (s.threads > 1)
    seconds = s.sums(np.maximum(matrix + vector, streamed / s.bandwidth[s.row]) + s.visible * op[s.row])
    return np.asarray(np.log(seconds) + _paces(s.engine, p) + np.where(s.precision == "mix", np.log(p["pace/mix"]), 0.0))


def gpu(s: Stack, p: Mapping[str, float]) -> FloatArray:
    """Logarithms of seconds on a GPU."""
    family = sum((np.where(s.family == f, np.log(p[f"rate/{f}"]), 0.0) for f in ("mali", "apple-gpu")), np.zeros(len(s.rows)))
    rate = s.peak * np.exp(family - _paces(s.engine, p))
    work = s.macs + p["fill"] * s.matrix
    matrix = 2.0 * work / (rate[s.row] * s.utilisation(p, winograd=False) * s.depth(p["k0"]))
    vector = s.visible * 2.0 * s.elements / (p["vector"] * rate[s.row])
    fixed = np.where((s.engine == "ncnn") & ~np.isin([r.chip for r in s.rows], _COMPUTERS), p["fixed_s/ncnn"], p["fixed_s"])
    streamed = 2.0 * s.weights / s.unit_bandwidth[s.row]
    return np.asarray(np.log(fixed + s.sums(np.maximum(matrix + vector, streamed) + s.visible * p["op_s"])))


def npu(s: Stack, p: Mapping[str, float]) -> FloatArray:
    """Logarithms of seconds on a Neural Engine, all compute units allowed."""
    compute = 2.0 * s.sums(s.macs) / (s.peak * p["rate"])
    streamed = s.sums(s.weights) * np.where(s.precision == "i8", 1.0, 2.0) / s.unit_bandwidth
    fixed = p["fixed_s"] * np.where(s.precision == "i8", p["fixed/i8"], 1.0) * ANE_BANDWIDTH / s.unit_bandwidth
    return np.asarray(np.log(fixed + np.maximum(compute, streamed)))


def _paces(engine: npt.NDArray[np.str_], p: Mapping[str, float]) -> FloatArray:
    """Logarithms of the engines' factors; an engine without one is the reference."""
    return sum(
        (np.where(engine == n.removeprefix("pace/"), np.log(v), 0.0) for n, v in p.items() if n.startswith("pace/")), np.zeros(len(engine))
    )
