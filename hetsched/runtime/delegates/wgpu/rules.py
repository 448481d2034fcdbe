"""One rule per operator type: None if there is a GPU kernel for an operator, or the reason why not. No device, no kernels here."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hetsched.graph import DType, Graph, Op, Tensor
from hetsched.runtime.delegates.wgpu import names
from hetsched.runtime.stored import requantized
from hetsched.runtime.support import Rule, third_of_gemm

#: Types that device memory holds.
_LIES = frozenset({DType.F32, DType.F16, DType.I8, DType.U8, DType.BOOL, DType.I32, DType.I64})
_FLOATS = frozenset({DType.F32, DType.F16})
_BYTES = frozenset({DType.I8, DType.U8})
_WHOLE = frozenset({DType.I64, DType.I32})


def _stored_real(t: Tensor) -> bool:
    """Whether a tensor holds reals that kernels read: floats, bytes with one scale, or a constant of any kind that can be decoded."""
    if t.is_constant:
        return t.quantization is not None or t.dtype.is_float
    if t.quantization is not None:
        return t.dtype in _BYTES and t.quantization.granularity == "tensor"
    return t.dtype in _FLOATS


def _why(t: Tensor) -> str:
    q = t.quantization
    return f"tensor {t.name!r} is {t.dtype.value}{f' quantized per {q.granularity}' if q is not None else ''}"


def _tensors(op: Op, graph: Graph, count: int = 0) -> list[Tensor]:
    inputs = op.inputs[:count] if count else op.inputs
    return [graph.tensors[n] for n in (*inputs, *op.outputs) if n]


def _reals(tensors: list[Tensor]) -> str | None:
    bad = next((t for t in tensors if not _stored_real(t)), None)
    return None if bad is None else f"{_why(bad)}, and its kernel takes floats or bytes with one scale"


def _constants(op: Op, graph: Graph, start: int) -> str | None:
    bad = next((n for n in op.inputs[start:] if n and not graph.tensors[n].is_constant), None)
    return None if bad is None else f"its input {bad!r} is computed while running, and the kernel needs it as a constant"


def _real(count: int = 0, constant_from: int = 99) -> Rule:
    """Reals in the first ``count`` inputs (0: all) and the outputs; constants from an input on."""
    return lambda op, graph: _reals(_tensors(op, graph, count)) or _constants(op, graph, constant_from)


def _numbers(op: Op, graph: Graph) -> str | None:
    """Reals, or whole numbers of 32 and 64 bits."""
    if all(t.dtype in _WHOLE and t.quantization is None for t in _tensors(op, graph)):
        known = op.type in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Neg", "Abs", "Sign", "Relu")
        return None if known else f"there is no GPU kernel for {op.type} of integers"
    return _reals(_tensors(op, graph))


def _moves(count: int, constant_from: int = 99) -> Rule:
    """Elements of any type that device memory holds go from the first ``count`` inputs (0: all) to the outputs."""

    def rule(op: Op, graph: Graph) -> str | None:
        tensors = _tensors(op, graph, count)
        bad = next((t for t in tensors if not _stored_real(t) and (t.dtype not in _LIES or t.quantization is not None)), None)
        if bad is not None:
            return f"{_why(bad)}, which GPU memory does not hold"
        names = [n for n in (op.inputs[:count] if count else op.inputs) if n]
        return requantized(op, graph, names) or _constants(op, graph, constant_from)

    return rule


def _compares(op: Op, graph: Graph) -> str | None:
    reads = [graph.tensors[n] for n in op.inputs]
    whole = all(t.quantization is None and t.dtype in (*_WHOLE, DType.BOOL) for t in reads)
    return None if whole else _reals(reads)


def _logical(op: Op, graph: Graph) -> str | None:
    bad = next((t for t in _tensors(op, graph) if t.dtype is not DType.BOOL), None)
    return None if bad is None else f"{_why(bad)}, and its kernel takes booleans"


def _casts(op: Op, graph: Graph) -> str | None:
    bad = next((t for t in _tensors(op, graph) if t.dtype not in _LIES), None)
    return None if bad is None else f"{_why(bad)}, which GPU memory does not hold"


def _convolution(op: Op, graph: Graph) -> str | None:
    x = graph.tensors[op.inputs[0]]
    if len(x.shape) not in (3, 4):
        return f"its input {x.name!r} has {len(x.shape)} dimensions; there are kernels for 1-D and 2-D convolution (3 and 4 dimensions)"
    return _reals(_tensors(op, graph)) or _constants(op, graph, 1)


def _gemm(op: Op, graph: Graph) -> str | None:
    return third_of_gemm(op, graph) or _reals(_tensors(op, graph))


def _n_bits(op: Op, graph: Graph) -> str | None:
    w = graph.tensors[op.inputs[1]]
    if w.quantization is None:
        return f"its weight {w.name!r} has groups that are out of order, or zero points that are floats"
    return _reals([graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]]) or _constants(op, graph, 1)


def _quantizes(op: Op, graph: Graph) -> str | None:
    side = int(op.type == "DequantizeLinear")
    real, stored = (graph.tensors[n] for n in ((op.inputs[0], op.outputs[0]) if side == 0 else (op.outputs[0], op.inputs[0])))
    if real.dtype not in _FLOATS or stored.dtype not in _BYTES:
        return (
            f"tensors {real.name!r} and {stored.name!r} are {real.dtype.value} and {stored.dtype.value}; its kernel is for floats and bytes"
        )
    if graph.tensors[op.inputs[1]].elements != 1:
        return "its kernel takes one scale, and it has one a channel or block"
    return _constants(op, graph, 1)


def _reduces(op: Op, graph: Graph) -> str | None:
    why = _reals(_tensors(op, graph, 1)) or _constants(op, graph, 1)
    if why is not None:
        return why
    rank = len(graph.tensors[op.inputs[0]].shape)
    given = graph.tensors[op.inputs[1]].numpy().reshape(-1).tolist() if len(op.inputs) > 1 and op.inputs[1] else op.attr_ints("axes", ())
    axes = sorted(int(a) % rank for a in given)
    apart = bool(axes) and axes != list(range(axes[0], axes[-1] + 1))
    return f"it reduces the axes {axes}, and its kernel takes neighbours" if apart else None


def _normalizes(op: Op, graph: Graph) -> str | None:
    if any(op.outputs[1:]):
        return "its outputs for mean and deviation are not computed"
    x, scale = (graph.tensors[n] for n in op.inputs[:2])
    if not scale.is_constant and op.attr_float("offset", 0.0):
        return f"its scale {scale.name!r} is computed while running, and the kernel adds the offset ahead"
    n = math.prod(x.shape[op.attr_int("axis", -1) % len(x.shape) :]) if op.type != "InstanceNormalization" else x.shape[1]
    short = next(
        (graph.tensors[i] for i in op.inputs[1:] if i and not graph.tensors[i].is_constant and graph.tensors[i].elements != n), None
    )
    if short is not None:
        return f"its input {short.name!r} has {short.elements} values, and the kernel takes {n} where they are computed while running"
    return _reals(_tensors(op, graph))


def _pools(op: Op, graph: Graph) -> str | None:
    x = graph.tensors[op.inputs[0]]
    if len(x.shape) not in (3, 4):
        return f"its input {x.name!r} has {len(x.shape)} dimensions; there are kernels for 1-D and 2-D pooling"
    return "its second output (indices) is not computed" if any(op.outputs[1:]) else _reals(_tensors(op, graph))


def _indexes(op: Op, graph: Graph) -> str | None:
    indices = graph.tensors[op.inputs[1]]
    if indices.dtype not in _WHOLE:
        return f"{_why(indices)}, and its kernel takes int64 or int32 indices"
    return _moves(1)(op, graph)


def _gathers_tuples(op: Op, graph: Graph) -> str | None:
    return "it gathers within batches, which has no kernel" if op.attr_int("batch_dims", 0) else _indexes(op, graph)


def _resizes(op: Op, graph: Graph) -> str | None:
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if len(x.shape) < 2 or y.shape[:-2] != x.shape[:-2]:
        return f"it resizes {list(x.shape)} to {list(y.shape)}; the kernel resizes the last two dimensions"
    if op.attr_int("antialias", 0) or "axes" in op.attrs or op.attr_str("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "antialias, axes and kept aspect ratios have no kernel"
    if op.attr_str("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return "its coordinate transformation tf_crop_and_resize has no kernel"
    return (_moves(1, 1) if op.attr_str("mode", "nearest") == "nearest" else _real(1, 1))(op, graph)


def _chain(op: Op, graph: Graph) -> str | None:
    bad = next((o for o in op.body if o.type not in (*names.UNARY, *names.BINARY, *names.COPIES, "Clip")), None)
    if bad is not None or not op.body:
        return "it has no body" if bad is None else f"its part {bad.name!r} ({bad.type}) cannot be computed in a fused chain"
    clips = [graph.tensors[n] for o in op.body if o.type == "Clip" for n in o.inputs[1:] if n]
    moving = next((t.name for t in clips if not t.is_constant), None)
    if moving is not None:
        return f"the bound {moving!r} of its Clip is computed while running"
    parameters = {n for o in op.body if o.type in ("Clip", *names.COPIES) for n in o.inputs[1:] if n}
    return _reals([graph.tensors[n] for n in (*op.inputs, *op.outputs) if n and n not in parameters])


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Conv", "FusedConv", "ConvTranspose", "FusedConvTranspose"), _convolution),
    **dict.fromkeys(("MatMul", "FusedMatMul"), _real()), **dict.fromkeys(("Gemm", "FusedGemm"), _gemm), "MatMulNBits": _n_bits,
    **dict.fromkeys((*names.UNARY, *names.BINARY), _numbers), "Clip": _real(1, 1), "FusedElementwise": _chain,
    **dict.fromkeys(names.COMPARISONS, _compares), **dict.fromkeys((*names.LOGIC, "Not"), _logical), "Where": _moves(0), "Cast": _casts,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantizes), "BatchNormalization": _real(1, 1),
    **dict.fromkeys((*names.VIEWS, "Transpose", "Slice", "Split", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Pad"), _moves(1, 1)),
    "Concat": _moves(0), "Gather": _indexes, "GatherElements": _indexes, "GatherND": _gathers_tuples, "Resize": _resizes,
    **dict.fromkeys(("LayerNormalization", "RMSNorm", "InstanceNormalization"), _normalizes),
    "LRN": _real(),
    **dict.fromkeys(("Softmax", "FusedSoftmax", "LogSoftmax"), _real()), **dict.fromkeys(names.REDUCTIONS, _reduces),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _real()), **dict.fromkeys(("MaxPool", "AveragePool"), _pools),
    **dict.fromkeys(("ArgMax", "ArgMin"), lambda op, graph: _reals([graph.tensors[op.inputs[0]]])),
}  # fmt: skip
