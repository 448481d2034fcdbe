"""How long a network takes on CPU cores, on a GPU or on a Neural Engine: one form a kind, over all rows at once.

    cpu:  pace[engine] * sum( max( 2 macs / (rate * u[class] * k / (k + 24)) + bytes / (v * rate), streamed / bandwidth ) + op_s )
    gpu:  fixed + sum( max( 2 (macs + fill) / (rate * u[class] * k / (k + k0)) + bytes / (v * rate), weights / bandwidth ) + op_s )
    npu:  fixed * 42 GB/s / bandwidth + max( sum( 2 macs ) / (peak * u), weights / bandwidth )

``rate`` of a GPU is its float16 peak over the engine's pace; that of a CPU, at the precision, is one core's times
``n / (1 + serial (n - 1))`` of ``n`` threads. Engines that hand out work as threads become free run at the average core's rate, those
that share an operator evenly at the slowest one's. A depthwise convolution costs by what it writes, whatever its window. Where Winograd
kernels apply, a 3 x 3 convolution is a product of depth ``k / 9`` with a quarter of the multiplications (INT8: 4 of 9), and transforms of
what it reads and writes. An engine with kernels for SME computes products and 1 x 1 convolutions, in INT8 every convolution, on the
matrix unit that the cores of a cluster share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hetsched_cost_models.fit.processor_data import COLUMNS, Chip, Core, Row, chips, graphs, published
from hetsched_cost_models.operators import CLASSES, VECTOR_KINDS
from hetsched_cost_models.residency import spill
from hetsched_cost_models.work import FloatArray

#: Cost of a byte of these kinds over that of others.
_HEAVY = ("softmax", "norm", "response", "transcendental", "gelu", "transpose", "resize")
_HEAVY_FACTOR = 2.5
#: Engines with Winograd kernels, and how many times fewer multiplications those need: tiles of 4 x 4 outputs in float, 2 x 2 in INT8.
_WINOGRAD, _FEWER, _FEWER_I8 = ("ncnn", "mnn"), 4.0, 2.25
#: Engines whose threads take the next piece of work as they become free, and that have kernels for INT8 matrix instructions.
_DYNAMIC = _MATRIX_I8 = ("ort", "executorch")
#: Engines with kernels for SME, and a unit's float32 rate over one core's NEON: M4's 2.0 TFLOP/s (tzakharko/m4-sme-exploration) over
#: 32 operations a cycle at 4.4 GHz. Its INT8 rate is twice that.
_SME, SME_OVER_NEON = ("executorch",), 14.2
#: Depth of a product at which CPU cores reach half of their share. Fitted, it goes to 50 and networks left out are worse.
DEPTH_HALF = 24.0
#: Window of the depthwise convolution that its share of the peak is for.
WINDOW = 9.0
#: Chips whose ncnn rows were taken on computers; on phones an inference through Vulkan has a fixed cost of its own.
_COMPUTERS = ("snapdragon-x-elite", "apple-m1", "apple-m3")
#: Chips whose GPUs have no float16 arithmetic in Vulkan (VK_KHR_shader_float16_int8 is of October 2018; estimated from their age): ncnn
#: multiplies in float32 there, at half the rate.
_NO_HALF = ("snapdragon-660", "snapdragon-810", "snapdragon-821", "snapdragon-835", "kirin-970")
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
        self.square = columns["winograd"] > 0
        self.visible = (kind != VECTOR_KINDS.index("view")).astype(float)
        self.heavy = np.where(np.isin(kind, [VECTOR_KINDS.index(k) for k in _HEAVY]), _HEAVY_FACTOR, 1.0)
        self.depthwise = np.isin(cls, [i for i, c in enumerate(CLASSES) if c.startswith("depthwise")])
        self.kxk = np.isin(cls, [CLASSES.index(c) for c in ("conv", "conv3x3", "transposed")])
        self.grouped, self.matrix = cls == CLASSES.index("grouped"), cls != CLASSES.index("vector")
        self.precision, self.engine = np.array([r.precision for r in rows]), np.array([r.engine for r in rows])
        self.bytes = np.array([_BYTES[r.precision] for r in rows])
        self.integer = (self.precision == "i8")[self.row]
        self.winograd = np.isin(self.engine, _WINOGRAD)[self.row] & self.square
        self.log_measured = np.log([r.seconds for r in rows])
        self.models = np.array([r.model for r in rows])
        self.where = [chips()[r.chip] for r in rows]
        self._place()

    def _place(self) -> None:
        """Peaks, bandwidths and cache sizes of every row."""
        used = [cores_of_row(r, c) if r.unit == "cpu" else () for r, c in zip(self.rows, self.where, strict=True)]
        peaks = [[_peak(c, r) for c in u] for r, u in zip(self.rows, used, strict=True)]
        shared = [np.mean if r.engine in _DYNAMIC else min for r in self.rows]
        self.core = np.array([float(f(x)) if x else 1.0 for f, x in zip(shared, peaks, strict=True)])
        self.core_f32 = np.array([float(f([c.f32 for c in u])) if u else 1.0 for f, u in zip(shared, used, strict=True)])
        self.threads = np.array([max(1.0, len(u)) for u in used])
        self.little = np.array([float(bool(u) and u[-1].little) for u in used])
        best = np.array([u[0].i8 / u[0].f32 if u else 1.0 for u in used])
        self.mmla = (best >= 6.0) & np.isin(self.engine, _MATRIX_I8)
        self.dot = (best > 3.0) & ~self.mmla
        unit = np.array([SME_OVER_NEON * u[0].f32 if u and u[0].sme else 0.0 for u in used]) * np.isin(self.engine, _SME)
        self.unit = (unit * np.where(self.precision == "i8", 2.0, 1.0))[self.row]
        self.on_unit = (self.unit > 0) & self.matrix & ~self.depthwise & (self.integer | ~self.kxk)
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

    def utilisation(self, p: Mapping[str, float]) -> FloatArray:
        """Share of the peak by class, per operator."""
        rest = np.where(self.grouped, p.get("grouped", p["depthwise"]), p["conv1x1"])
        return np.where(self.kxk, p["conv"], np.where(self.depthwise, p["depthwise"], rest))


def _peak(core: Core, row: Row) -> float:
    """Operations per second at a row's precision; kernels without matrix instructions reach half of such an INT8 peak."""
    if row.precision == "i8":
        return core.i8 if row.engine in _MATRIX_I8 else min(core.i8, 4.0 * core.f32)
    return core.f16 if row.precision == "f16" else core.f32


def _work(model: str) -> FloatArray:
    """[operators, columns]; a network known by its counts alone is one operator."""
    if model in graphs():
        return graphs()[model]
    macs, weights = published()[model]
    return np.array([[CLASSES.index("conv1x1"), VECTOR_KINDS.index("matrix"), macs, 256.0, 256.0, 0.0, weights, 0.0]])


def cpu(s: Stack, p: Mapping[str, float]) -> FloatArray:
    """Logarithms of seconds on CPU cores."""
    threads = s.threads / (1.0 + p["serial"] * (s.threads - 1.0))
    scale = threads * np.where(s.little > 0, p["little"], 1.0) * np.where(s.family == "apple-cpu", p["rate/apple-cpu"], 1.0)
    integers = p["i8"] * np.where(s.mmla, p["i8/mmla"], np.where(s.dot, p["i8/dot"], 1.0))
    rate = scale * s.core * np.where(s.precision == "i8", integers, np.where(s.precision == "f16", p["f16"], 1.0))
    vector_rate = p["vector"] * scale * s.core_f32
    size = s.elements * s.bytes[s.row]
    work_s = _matrix(s, p, rate, size / vector_rate[s.row]) + s.visible * size * s.heavy / vector_rate[s.row]
    resident = spill(s.sums(s.weights) * s.bytes / s.onchip)
    streamed = s.weights * (s.bytes * resident)[s.row] + s.visible * size * spill(size / s.onchip[s.row])
    seconds = s.sums(np.maximum(work_s, streamed / s.bandwidth[s.row]) + s.visible * p["op_s"])
    return np.asarray(np.log(seconds) + _paces(s.engine, p) + np.where(s.precision == "mix", np.log(p["pace/mix"]), 0.0))


def _matrix(s: Stack, p: Mapping[str, float], rate: FloatArray, pass_s: FloatArray) -> FloatArray:
    """Seconds of every operator's multiply-accumulates on CPU cores; ``pass_s``: of one pass over what it reads and writes."""
    own = (s.engine == "executorch")[s.row] & s.depthwise
    share = np.where(own, p["depthwise/executorch"], s.utilisation(p)) * s.depth(DEPTH_HALF)
    macs = np.where(s.depthwise, s.macs * WINDOW / np.maximum(s.k, 1.0), s.macs)
    plain = 2.0 * macs / np.where(s.on_unit, s.unit * p["sme"] * s.depth(DEPTH_HALF), rate[s.row] * share)
    fewer = np.where(s.integer, _FEWER_I8, _FEWER) * p["conv1x1"] * s.k / (s.k + 9.0 * DEPTH_HALF)
    tiles = 2.0 * s.macs / (rate[s.row] * np.maximum(fewer, 1e-9)) + p["transform"] * pass_s
    return np.asarray(np.where(s.winograd, tiles, plain))


def gpu(s: Stack, p: Mapping[str, float]) -> FloatArray:
    """Logarithms of seconds on a GPU."""
    family = sum((np.where(s.family == f, np.log(p[f"rate/{f}"]), 0.0) for f in ("mali", "apple-gpu")), np.zeros(len(s.rows)))
    rate = s.peak * np.exp(family - _paces(s.engine, p))
    chip = [r.chip for r in s.rows]
    wide = (s.engine == "ncnn") & np.isin(chip, _NO_HALF)
    work = s.macs * np.where(wide, 2.0, 1.0)[s.row] + p["fill"] * s.matrix
    matrix = 2.0 * work / (rate[s.row] * s.utilisation(p) * s.depth(p["k0"]))
    vector = s.visible * 2.0 * s.elements / (p["vector"] * rate[s.row])
    fixed = np.where((s.engine == "ncnn") & ~np.isin(chip, _COMPUTERS), p["fixed_s/ncnn"], p["fixed_s"])
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
