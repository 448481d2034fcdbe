"""What the host can run: one rule per operator type, read by the cost model, the app and the numba delegate.

Nothing here imports numba. The kernels behind each type are chosen in :mod:`hetsched.runtime.lower`; a test keeps the two
lists equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from hetsched.graph import DType, Graph, Op, Tensor
from hetsched.runtime import language_rules as language
from hetsched.runtime import layer_rules as layers
from hetsched.runtime.stored import absorbs, requantized

Rule: TypeAlias = Callable[[Op, Graph], str | None]

_FEW_BITS = frozenset({DType.I4, DType.U4, DType.I2, DType.U2})
_STORED = frozenset({DType.I8, DType.U8, DType.I16, DType.U16, DType.I32})
_MOVABLE = frozenset(
    {DType.F32, DType.F64, DType.F16, DType.I64, DType.I32, DType.I16, DType.I8, DType.U64, DType.U32, DType.U16, DType.U8, DType.BOOL}
)
_CASTABLE = frozenset({DType.F64, DType.F32, DType.I64, DType.I32, DType.I16, DType.U16, DType.I8, DType.U8, DType.BOOL, DType.F16})
_INDEX = frozenset({DType.I64, DType.I32})


def node_names(op: Op) -> str:
    """The user's own nodes behind an op, for messages."""
    return ", ".join(repr(n) for n in op.origin) or repr(op.name)


def supported(op: Op, graph: Graph, precision: str) -> str | None:
    """None if this machine's kernels can run ``op`` at ``precision`` (``f32``, ``w8a8``); otherwise the reason why not."""
    rule = RULES.get(op.type)
    if rule is None or op.domain not in ("", "ai.onnx"):
        name = op.type if op.domain in ("", "ai.onnx") else f"{op.domain}.{op.type}"
        return f"there is no CPU kernel for {name}"
    if precision not in ("f32", "w8a8"):
        hint = "; plan it as f32 or w8a8" if precision.startswith(("f", "bf")) else "; it needs f32, or w8a8"
        return f"the CPU kernels do not compute in {precision}{hint}"
    if precision == "w8a8" and op.type not in MATRIX_TYPES and not _touches_quantized(op, graph):
        return f"{op.type} has no weights and no quantized tensor: its only precision on the CPU is f32"
    reason = unreadable_constant(op, graph, language.readable(op, precision)) or rule(op, graph)
    if reason is None and precision == "w8a8" and op.type in (*MATRIX_TYPES, "MatMulNBits"):
        reason = language.integer_groups(op, graph) if language.in_groups(op, graph) else _integer_matrix(op, graph)
    if reason is None and precision == "w8a8" and op.type == "MoE":
        reason = language.integer_experts(op, graph)
    return reason


def unreadable_constant(op: Op, graph: Graph, schemes: frozenset[str] = frozenset()) -> str | None:
    """Why a constant of ``op`` cannot be read: it is stored in blocks other than ``schemes``, or as bfloat16. None if all can."""
    for t in (graph.tensors[n] for n in graph.constants(op)):
        if t.quantization is not None and t.quantization.scheme in schemes:
            continue
        if t.dtype is DType.BF16 or (t.quantization is not None and t.quantization.block_bytes):
            stored = t.quantization.scheme if t.quantization is not None else "bf16"
            return f"there is no kernel yet for weights stored as {stored}, and its constant {t.name!r} is one"
    return None


def _tensors(op: Op, graph: Graph) -> list[Tensor]:
    return [graph.tensors[n] for n in (*op.inputs, *op.outputs) if n]


def _touches_quantized(op: Op, graph: Graph) -> bool:
    return any(t.quantization is not None for t in _tensors(op, graph))


def _is_real(t: Tensor) -> bool:
    if language.in_blocks(t):
        return t.is_constant  # :func:`unreadable_constant` has looked at how
    if t.quantization is not None and t.is_constant and t.quantization.scale:
        return t.dtype in _STORED or t.dtype in _FEW_BITS
    if t.quantization is not None:
        return t.dtype in _STORED and t.quantization.granularity != "group"
    return t.dtype is DType.F32


def _why(t: Tensor) -> str:
    grouped = t.quantization is not None and t.quantization.granularity == "group"
    return f"tensor {t.name!r} is {t.dtype.value}{' quantized in groups' if grouped else ''}"


def _first(tensors: list[Tensor], fits: Callable[[Tensor], bool], wants: str) -> str | None:
    bad = next((t for t in tensors if not fits(t)), None)
    return None if bad is None else f"{_why(bad)}, and its kernel takes {wants}"


def _real(op: Op, graph: Graph) -> str | None:
    """Every data tensor is float32, or integers that stand for reals."""
    outputs = [graph.tensors[o] for o in op.outputs if o]
    bad = _first(outputs, lambda t: _is_real(t) and t.dtype in (DType.F32, DType.I8, DType.U8), "float32 or 8-bit quantized tensors")
    return bad or _first([graph.tensors[n] for n in op.inputs if n], _is_real, "float32 or quantized tensors")


def _leading_real(count: int) -> Rule:
    """The first ``count`` inputs and the first output are reals; the others are parameters."""

    def rule(op: Op, graph: Graph) -> str | None:
        reads = [graph.tensors[n] for n in op.inputs[:count] if n]
        bad = _first([*reads, graph.tensors[op.outputs[0]]], _is_real, "float32 or quantized tensors")
        return bad or _parameters(op, graph, count)

    return rule


def _parameters(op: Op, graph: Graph, start: int) -> str | None:
    """Inputs from ``start`` on must be known before running."""
    bad = next((n for n in op.inputs[start:] if n and not graph.tensors[n].is_constant), None)
    return None if bad is None else f"its input {bad!r} is computed while running, and the kernel needs it as a constant"


def _number(op: Op, graph: Graph) -> str | None:
    """Reals, or integers that are numbers."""
    if all(t.dtype in _INDEX and t.quantization is None for t in _tensors(op, graph)):
        return None
    return _real(op, graph)


def _moves(count: int) -> Rule:
    """Data of any type go from the first ``count`` inputs (0: all) to the outputs; the other inputs are constants."""

    def rule(op: Op, graph: Graph) -> str | None:
        names = [n for n in (op.inputs[:count] if count else op.inputs) if n]
        tensors = [graph.tensors[n] for n in (*names, *(o for o in op.outputs if o))]
        bad = _first(tensors, lambda t: t.dtype in _MOVABLE, "8- to 64-bit elements") or requantized(op, graph, names)
        return bad or (_parameters(op, graph, count) if count else None)

    return rule


def _compares(op: Op, graph: Graph) -> str | None:
    reads = [graph.tensors[n] for n in op.inputs]
    return _first(reads, lambda t: t.dtype in _INDEX or t.dtype is DType.BOOL or _is_real(t), "float32, int64, int32 or bool")


def _logical(op: Op, graph: Graph) -> str | None:
    return _first(_tensors(op, graph), lambda t: t.dtype is DType.BOOL, "bool")


def _casts(op: Op, graph: Graph) -> str | None:
    y = graph.tensors[op.outputs[0]]
    if absorbs(op, y.name) and y.dtype not in (DType.I8, DType.U8):
        return f"{_why(y)}, and its kernel writes 8-bit quantized tensors"
    return _first(_tensors(op, graph), lambda t: t.dtype in _CASTABLE, "booleans, integers up to 64 bits signed or 16 unsigned, and floats")


def _gathers(op: Op, graph: Graph) -> str | None:
    data = [graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]]
    bad = _first(data, lambda t: t.dtype in _MOVABLE or language.in_blocks(t), "8- to 64-bit elements")
    return bad or _first([graph.tensors[op.inputs[1]]], lambda t: t.dtype in _INDEX, "int64 or int32 indices")


def _conv(op: Op, graph: Graph) -> str | None:
    x = graph.tensors[op.inputs[0]]
    if len(x.shape) not in (3, 4):
        return f"its input {x.name!r} has {len(x.shape)} dimensions; there are kernels for 1-D and 2-D convolution (3 and 4 dimensions)"
    return _real(op, graph) or _parameters(op, graph, 1)


def _matmul(op: Op, graph: Graph) -> str | None:
    return _real(op, graph)


def _matmul_n_bits(op: Op, graph: Graph) -> str | None:
    x, w, y = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]], graph.tensors[op.outputs[0]]
    if w.quantization is None:
        return f"its weight {w.name!r} has groups that are out of order, or zero points that are floats"
    return _first([x, w, y], _is_real, "float32 or quantized tensors") or _parameters(op, graph, 1)


def _gathers_blocks(op: Op, graph: Graph) -> str | None:
    data = [graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]]
    bad = _first(data, _is_real, "float32 or quantized tensors")
    bad = bad or _first([graph.tensors[op.inputs[1]]], lambda t: t.dtype in _INDEX, "int64 or int32 indices")
    return bad or (None if data[0].is_constant else f"its table {data[0].name!r} is computed while running")


def third_of_gemm(op: Op, graph: Graph) -> str | None:
    """Why what a Gemm adds to its product is not one value a column; None if it is, or if there is nothing."""
    n = graph.tensors[op.outputs[0]].shape[-1]
    if len(op.inputs) > 2 and op.inputs[2]:
        c = graph.tensors[op.inputs[2]]
        if c.elements not in (1, n) or (c.elements == n and n > 1 and c.shape[-1] != n):
            return f"its third input {c.name!r} has the shape {list(c.shape)}; the kernel adds one value a column ([{n}])"
        if not c.is_constant and (op.attr_float("beta", 1.0) != 1.0 or c.elements != n):
            return f"its third input {c.name!r} is computed while running and must be a vector of {n} with beta 1"
    return None


def _gemm(op: Op, graph: Graph) -> str | None:
    return third_of_gemm(op, graph) or _real(op, graph)


def _pool(op: Op, graph: Graph) -> str | None:
    x = graph.tensors[op.inputs[0]]
    if len(x.shape) not in (3, 4):
        return f"its input {x.name!r} has {len(x.shape)} dimensions; there are kernels for 1-D and 2-D pooling"
    if len([o for o in op.outputs if o]) > 1:
        return "its second output (indices) is not computed"
    return _real(op, graph)


def _integer_matrix(op: Op, graph: Graph) -> str | None:
    """Whether a supported Conv, MatMul or Gemm also has an integer kernel."""
    if "ConvTranspose" in op.type:
        return "transposed convolution has no integer kernel: plan it as f32"
    x, w = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]]
    for t in (x, w):
        if t.quantization is not None and t.dtype not in (DType.I8, DType.U8):
            return f"{_why(t)}; the integer kernels take 8-bit tensors"
    if x.quantization is not None and x.quantization.granularity == "channel":
        return f"its activation {x.name!r} is quantized per channel, which has no integer product"
    if "Conv" in op.type:
        return None
    if op.attr_int("transA", 0):
        return "Gemm with transA has no integer kernel: plan it as f32"
    if w.is_constant and len(w.shape) != 2:
        return f"its weight {w.name!r} has the shape {list(w.shape)}; the integer kernel takes a matrix"
    if not w.is_constant:
        return _integer_activations(op, x, w)
    if w.quantization is not None and w.quantization.granularity == "channel":
        columns = 0 if op.attr_int("transB", 0) else len(w.shape) - 1
        if (w.quantization.axis or 0) % len(w.shape) != columns:
            return f"its weight {w.name!r} is quantized along the summed axis, which has no integer product"
    return None


def _integer_activations(op: Op, x: Tensor, w: Tensor) -> str | None:
    """A product of two tensors that are both computed while running."""
    if "Gemm" in op.type:
        return f"its second input {w.name!r} is computed while running, and the integer Gemm needs it as a constant"
    if x.quantization is None or w.quantization is None:
        return "a product of two activations without static quantization has no integer kernel: plan it as f32"
    if w.quantization.granularity == "channel":
        return f"its activation {w.name!r} is quantized per channel, which has no integer product"
    if len(op.inputs) > 2 and op.inputs[2]:
        return "a product of two activations with a fused bias has no integer kernel: plan it as f32"
    return None


MATRIX_TYPES = frozenset({"Conv", "FusedConv", "ConvTranspose", "FusedConvTranspose", "MatMul", "FusedMatMul", "Gemm", "FusedGemm"})

_UNARY = (
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal",
    "Relu", "Round", "Sigmoid", "Sign", "Silu", "Sin", "Softplus", "Sqrt", "Tanh",
)  # fmt: skip
_CHAINED = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod", "PRelu", "Sum")


def _quantizes(op: Op, graph: Graph, side: int) -> str | None:
    real, stored = (graph.tensors[n] for n in ((op.inputs[0], op.outputs[0]) if side == 0 else (op.outputs[0], op.inputs[0])))
    if real.dtype is not DType.F32:
        return f"{_why(real)}, and its kernel takes float32"
    if stored.dtype not in (_STORED if side else (DType.I8, DType.U8)):
        return f"{_why(stored)}, and its kernel {'reads 8- to 32-bit' if side else 'writes 8-bit'} integers"
    if op.attr_int("block_size", 0):
        return "it quantizes in blocks"
    return _parameters(op, graph, 1)


def _reduces(op: Op, graph: Graph) -> str | None:
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if x.quantization is None and x.dtype in _INDEX and y.dtype is x.dtype:
        return _parameters(op, graph, 1)
    return _leading_real(1)(op, graph)


def _index_of(op: Op, graph: Graph) -> str | None:
    return _first([graph.tensors[op.inputs[0]]], _is_real, "float32 or quantized tensors")


def _log_softmax(op: Op, graph: Graph) -> str | None:
    rank = len(graph.tensors[op.inputs[0]].shape)
    if op.attr_int("axis", -1) % rank != rank - 1:
        return "LogSoftmax has a kernel for the last axis only"
    return _real(op, graph)


def _chain(op: Op, graph: Graph) -> str | None:
    """A fused chain whose members all have a float kernel."""
    known = {*_UNARY, *_CHAINED, "Clip", "QuantizeLinear", "DequantizeLinear", "Identity"}
    bad = next((o for o in op.body if o.type not in known), None)
    if bad is not None:
        return f"its part {bad.name!r} ({bad.type}) cannot be computed in a fused chain"
    if not op.body:
        return "it has no body"
    bounds = [n for o in op.body if o.type == "Clip" for n in o.inputs[1:] if n]
    moving = next((n for n in bounds if not graph.tensors[n].is_constant), None)
    if moving is not None:
        return f"the bound {moving!r} of its Clip is computed while running"
    parameters = {n for o in op.body if o.type in ("Clip", "QuantizeLinear", "DequantizeLinear") for n in o.inputs[1:] if n}
    data = [graph.tensors[n] for n in (*op.inputs, *op.outputs) if n and n not in parameters]
    return _first(data, _is_real, "float32 or quantized tensors")


def _resize(op: Op, graph: Graph) -> str | None:
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if len(x.shape) < 2 or y.shape[:-2] != x.shape[:-2]:
        return f"it resizes {list(x.shape)} to {list(y.shape)}; the kernel resizes the last two dimensions"
    if op.attr_int("antialias", 0):
        return "antialias has no kernel"
    transform = op.attr_str("coordinate_transformation_mode", "half_pixel")
    if transform == "tf_crop_and_resize":
        return f"its coordinate transformation {transform} has no kernel"
    if op.attr_str("keep_aspect_ratio_policy", "stretch") != "stretch" or "axes" in op.attrs:
        return "it names axes or keeps the aspect ratio, which has no kernel"
    moved = _moves(1) if op.attr_str("mode", "nearest") == "nearest" else _leading_real(1)
    return moved(op, graph)


RULES: Mapping[str, Rule] = {
    "Conv": _conv, "FusedConv": _conv, "ConvTranspose": _conv, "FusedConvTranspose": _conv,
    "MatMul": _matmul, "FusedMatMul": _matmul, "MatMulNBits": _matmul_n_bits, "Gemm": _gemm, "FusedGemm": _gemm,
    **dict.fromkeys(_UNARY, _real),
    **dict.fromkeys(("Neg", "Abs", "Sign", "Relu"), _number),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod"), _number),
    "Clip": _leading_real(1), "FusedElementwise": _chain, "PRelu": _real,
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _compares),
    **dict.fromkeys(("And", "Or", "Xor", "Not"), _logical),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"), _moves(1)),
    **dict.fromkeys(("Transpose", "Slice", "Expand", "Split", "Tile", "Pad", "DepthToSpace", "SpaceToDepth"), _moves(1)),
    "Where": _moves(0), "Cast": _casts, "Concat": _moves(0), "Gather": _gathers, "GatherElements": _gathers,
    "GatherBlockQuantized": _gathers_blocks,
    "BatchNormalization": _leading_real(1), "LayerNormalization": _leading_real(1), "InstanceNormalization": _leading_real(1),
    "Softmax": _real, "FusedSoftmax": _real, "LogSoftmax": _log_softmax,
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"), _reduces),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"), _leading_real(1)),
    "GlobalAveragePool": _real, "GlobalMaxPool": _real, "MaxPool": _pool, "AveragePool": _pool,
    "QuantizeLinear": lambda op, graph: _quantizes(op, graph, 0), "DequantizeLinear": lambda op, graph: _quantizes(op, graph, 1),
    "ArgMax": _index_of, "ArgMin": _index_of, "Resize": _resize, **layers.RULES, **language.RULES,
}  # fmt: skip
