"""What an operator costs on a tiled accelerator: a matrix unit, a vector unit, and weights that stream from DRAM beside them.

    compute = macs / (peak * rate[kind] * rate[precision]) + vector bytes / (vector rate * vector)
    waited  = weights * s(weights / prefetch),       s(x) = x^2 / (1 + x^2)
    spilled = bytes * s(bytes / (heads * C)),        s(x) = x^4 / (1 + x^4)

*Vector bytes* are what an operator reads and writes times its kind's factor; a convolution pays for what it writes only (the
matrix unit reads its input as a stream), a product for what it writes and, once, for each tensor that it reads. Weights that
fit half of the on-chip memory are fetched ahead, while earlier operators compute; larger ones are waited for. The graph takes

    sum of waits + max(sum of compute, sum of memory) + dispatch of every operator

and :mod:`hetsched_cost_models.streaming` makes a sum over operators of it. ``docs/cost_model.md`` says how the parameters were
fitted and what else was tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hetsched_cost_models.residency import share, spill
from hetsched_cost_models.tiles import KINDS
from hetsched_cost_models.work import BoolArray, FloatArray, IntArray

#: Precisions in the order of the arrays, as alternatives are named.
PRECISIONS = ("f16", "w8a8", "w8a16", "w4a16", "f8")
#: Classes of matrix work; ``rate/<class>`` is relative to a plain convolution's.
_MATRIX = ("conv1x1", "conv", "grouped", "gemm", "matmul")
_CONVOLUTIONS = ("conv1x1", "conv", "grouped")
#: Kinds that ONNX Runtime's partition pays more for, beside everything on rows of tokens: layouts are converted around them.
_LAID_OUT = ("move", "view", "join", "resize", "gemm")
_VIEW = KINDS.index("view")


@dataclass(frozen=True, eq=False)
class Load:
    """What operators handle at one precision: ``macs`` of whole blocks, the rest bytes (:class:`hetsched_cost_models.tiles.Tiles`)."""

    kind: IntArray
    macs: FloatArray
    moved: FloatArray
    written: FloatArray
    once: FloatArray
    functions: FloatArray
    weights: FloatArray
    heads: FloatArray
    tokens: FloatArray


@dataclass(frozen=True, slots=True)
class Unit:
    """A chip's figures: MACs per second, vector and memory bytes per second, bytes on chip; INT4 is with 4-bit weights."""

    float_macs_s: float
    int8_macs_s: float
    int4_macs_s: float
    float8_macs_s: float
    vector_bytes_s: float
    bandwidth_bytes_s: float
    onchip_bytes: float


def unit(peak_ops_s: Mapping[str, float], vector_bytes_s: float, bandwidth_bytes_s: float, onchip_bytes: float) -> Unit:
    """A chip's figures from its peak rates.

    Without a float16 rate it computes floats at a quarter of the INT8 rate, without an INT4 rate it unpacks 4-bit weights to
    8 bits, without an FP8 rate it widens 8-bit floats.
    """
    int8 = peak_ops_s.get("i8", max(peak_ops_s.values()))
    half = peak_ops_s.get("f16", int8 / 4.0)
    rates = (half / 2.0, int8 / 2.0, peak_ops_s.get("i4", int8) / 2.0, peak_ops_s.get("f8", half) / 2.0)
    return Unit(*rates, vector_bytes_s, bandwidth_bytes_s, onchip_bytes)


@dataclass(frozen=True, eq=False)
class Parts:
    """Per op: seconds of the two units, bytes of activations that spill, bytes of weights waited for and fetched ahead.

    ``work_s``: seconds of the two units at full activity, the matrix unit at a plain convolution's rate at the precision.
    """

    compute_s: FloatArray
    work_s: FloatArray
    spilled: FloatArray
    waited: FloatArray
    ahead: FloatArray


def parts_of(load: Load, unit: Unit, precision: IntArray, copies: FloatArray, p: Mapping[str, float]) -> Parts:
    """What the units and the memory do for every op.

    Args:
        load: one entry an op.
        unit: the chip.
        precision: index into :data:`PRECISIONS`, per op.
        copies: 1 where the runtime converts layouts (the parameter ``layout`` applies), else 0; per op.
        p: the parameters by name.
    """
    kind = load.kind
    peaks = np.array([unit.float_macs_s, unit.int8_macs_s, unit.int8_macs_s, unit.int4_macs_s, unit.float8_macs_s])
    # No latency with 4-bit weights or 8-bit floats was fitted: their share of the peak is that of 8-bit weights, of 16-bit floats.
    rates = (peaks * np.array([p[f"rate/{name}"] for name in ("f16", "w8a8", "w8a16", "w8a16", "f16")]))[precision]
    matrix = load.macs / (rates * _by_kind({k: p.get(f"rate/{k}", 1.0) for k in _MATRIX}, np.inf)[kind])
    laid_out = _is(kind, *_LAID_OUT) | (load.tokens > 0)
    slower = np.where(laid_out, 1.0 + copies * (p["layout"] - 1.0), 1.0)
    vector = vector_bytes(load, precision, p) / (unit.vector_bytes_s * p["vector"])
    compute = matrix + vector * slower
    visible = kind != _VIEW
    spilled = load.moved * spill(load.moved / load.heads / unit.onchip_bytes) * visible
    weights = load.weights * visible
    waited = weights * share(weights / (p["prefetch"] * unit.onchip_bytes), 2)
    return Parts(compute, load.macs / rates + vector, spilled, waited, weights - waited)


def vector_bytes(load: Load, precision: IntArray, p: Mapping[str, float]) -> FloatArray:
    """Bytes of the vector unit, each kind's times its factor; integers look functions up in tables."""
    kind = load.kind
    whole = {k: p.get(f"vector/{k}", 1.0) for k in KINDS if k not in _CONVOLUTIONS and k != "gemm"}
    written = {**dict.fromkeys(_CONVOLUTIONS, p["vector/conv"]), "gemm": p["vector/gemm"]}
    looked_up = np.array([1.0, p["function/w8a8"], p["function/w8a16"], p["function/w8a16"], 1.0])[precision]
    careful = np.array([1.0, p["norm/w8a8"], p["function/w8a16"], p["function/w8a16"], 1.0])[precision]
    scale = np.where(_is(kind, "norm", "softmax"), careful, np.where(_is(kind, "function"), looked_up, 1.0))
    narrow = np.where(_is(kind, *_CONVOLUTIONS), np.array([1.0, p["conv/w8a8"], 1.0, 1.0, 1.0])[precision], 1.0)
    total = load.moved * _by_kind(whole, 0.0)[kind] * scale + load.written * _by_kind(written, 0.0)[kind] * narrow
    total = total + np.where(_is(kind, "gemm"), load.once * p["vector/gemm_read"], 0.0)
    return np.asarray(total + 2.0 * p["vector/function"] * looked_up * load.functions)


def dispatch(kind: IntArray, tokens: FloatArray, p: Mapping[str, float]) -> FloatArray:
    """Seconds per op that no arithmetic explains: scheduling, layout changes around products and rows of tokens.

    They are those of a chip whose vector rate is ``reference/vector_bytes_s``; others scale by it.
    """
    visible = kind != _VIEW
    return np.asarray(visible * p["op_s"] + _is(kind, "gemm") * p["gemm_s"] + (visible & (tokens > 0)) * p["token_s"])


def fixed_scale(vector_bytes_s: float, host_hz: float, p: Mapping[str, float]) -> float:
    """How much longer a graph's fixed cost takes than on the chip that it was fitted on: part of it is the NPU's, part the host's."""
    own = p["fixed_on_unit"]
    return own * p["reference/vector_bytes_s"] / vector_bytes_s + (1.0 - own) * p["reference/host_hz"] / host_hz


def _is(kind: IntArray, *names: str) -> BoolArray:
    return np.isin(kind, [KINDS.index(n) for n in names])


def _by_kind(values: Mapping[str, float], default: float) -> FloatArray:
    return np.array([values.get(k, default) for k in KINDS])
