"""What the host can run of language models: weights in groups and blocks, and the composites of decoders.

Part of :mod:`hetsched.runtime.support`, which says what a rule is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from hetsched.graph import DType, Graph, Op, Tensor
from hetsched.reference.gguf_types import DECODABLE, SCHEME

_PRODUCTS = ("Gemm", "FusedGemm")
#: What the gates of experts go through, as ``codes.ACTIVATION`` has it.
MIXTURE_FUNCTIONS: Mapping[str, str] = {"silu": "Silu", "relu": "Relu", "gelu": "Gelu", "gelu_tanh": "GeluTanh"}
_DECODED = frozenset(SCHEME + kind for kind in DECODABLE)


def in_blocks(t: Tensor) -> bool:
    """Whether a tensor is stored in GGUF's blocks."""
    return t.quantization is not None and t.quantization.block_bytes > 0


def readable(op: Op, precision: str) -> frozenset[str]:
    """How the constants of ``op`` may be stored beyond what every operator reads: decoded once, or at w8a8 computed on directly."""
    if op.type in (*_PRODUCTS, "MoE") and precision == "w8a8":
        return _direct()
    return _DECODED if op.type in (*_PRODUCTS, "MoE", "Gather") else frozenset()


@cache
def _direct() -> frozenset[str]:
    from hetsched_kernels.gguf_groups import BLOCKS

    return frozenset(SCHEME + kind for kind in BLOCKS)


def in_groups(op: Op, graph: Graph) -> bool:
    """Whether the weight of a product is quantized in groups."""
    w = graph.tensors[op.inputs[1]]
    return w.is_constant and w.quantization is not None and w.quantization.granularity == "group"


def integer_groups(op: Op, graph: Graph) -> str | None:
    """Whether a supported product with such a weight has a kernel that computes on its groups with int8 activations."""
    from hetsched_kernels.groups import CHUNK

    x, w = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]]
    if x.quantization is not None:
        return f"its activation {x.name!r} is quantized already, and weights in groups want their own scales"
    if in_blocks(w):
        straight = op.attr_int("transB", 0) and not op.attr_int("transA", 0) and op.attr_float("alpha", 1.0) == 1.0
        return None if straight and len(w.shape) == 2 else f"its weight {w.name!r} in blocks is not used as rows of a plain product"
    group = 0 if w.quantization is None else w.quantization.group or 0
    if op.type != "MatMulNBits" or w.dtype is not DType.U4 or group % CHUNK:
        return f"its weight {w.name!r} is {w.dtype.value} in groups of {group}; the integer kernel takes 4 bits in groups of 32, 64, …"
    return None


def _plain_float(t: Tensor) -> str | None:
    """Why a tensor cannot be read as plain float32; None if it can."""
    plain = t.dtype is DType.F32 and t.quantization is None
    return None if plain else f"tensor {t.name!r} is {t.dtype.value}, and its kernel takes float32"


def _floats(op: Op, graph: Graph, slots: range) -> str | None:
    tensors = [graph.tensors[op.inputs[i]] for i in slots if i < len(op.inputs) and op.inputs[i]]
    return next((why for t in (*tensors, graph.tensors[op.outputs[0]]) if (why := _plain_float(t))), None)


def _rms_norm(op: Op, graph: Graph) -> str | None:
    scale = graph.tensors[op.inputs[1]]
    if op.attr_float("offset", 0.0) and not scale.is_constant:
        return f"its scale {scale.name!r} is computed while running, and the kernel adds the offset ahead"
    return _floats(op, graph, range(2))


def _rotary(op: Op, graph: Graph) -> str | None:
    x, cos, sin = (graph.tensors[n] for n in op.inputs[:3])
    if op.attr_int("broadcast", 0) or len(op.inputs) > 3 or len(x.shape) > 3:
        return "its kernel rotates rows of heads with a cosine and sine for each row and pair"
    heads, rows = op.attr_int("num_heads", 1) or 1, x.elements // x.shape[-1]
    dim = op.attr_int("rotary_embedding_dim", 0) or x.shape[-1] // heads
    if cos.shape[-1] != dim // 2 or cos.elements != rows * (dim // 2) or sin.shape != cos.shape:
        return f"its tables have the shapes {list(cos.shape)} and {list(sin.shape)}; the kernel takes [{rows}, {dim // 2}]"
    return _floats(op, graph, range(3))


def _attention(op: Op, graph: Graph) -> str | None:
    x = graph.tensors[op.inputs[0]]
    if len(x.shape) != 2:
        return f"its queries {x.name!r} have the shape {list(x.shape)}; the kernel takes rows"
    caches = [graph.tensors[n] for n in (*op.inputs[3:5], *op.outputs[1:3]) if n]
    bad = next((t for t in caches if t.dtype not in (DType.F32, DType.F16) or t.quantization is not None), None)
    if bad is not None:
        return f"its cache {bad.name!r} is {bad.dtype.value}; the kernel takes float32 or float16"
    return _floats(op, graph, range(3))


def _sample(op: Op, graph: Graph) -> str | None:
    method, y = op.attr_str("method", "greedy"), graph.tensors[op.outputs[0]]
    if method not in ("greedy", "top_k", "top_p"):
        return f"there is no kernel for sampling with {method}: choose greedy, top_k or top_p"
    if y.dtype is not DType.I64:
        return f"its output {y.name!r} is {y.dtype.value}, and its kernel writes int64"
    return _plain_float(graph.tensors[op.inputs[0]])


def _router(op: Op, graph: Graph) -> str | None:
    scores = graph.tensors[op.inputs[0]]
    return None if len(scores.shape) == 2 else f"its scores {scores.name!r} have the shape {list(scores.shape)}; the kernel takes rows"


def expert_slots(op: Op) -> tuple[tuple[int, ...], ...]:
    """The inputs of MoE that hold gates, ups and downs: a stack of all experts, or one for each."""
    if op.attr_int("joined", 0):
        return (3,), (3,), (4,)
    each = 1 if op.attr_int("stacked", 1) else op.attr_int("num_experts", 1)
    return tuple(tuple(range(3 + part * each, 3 + (part + 1) * each)) for part in range(3))


def _mixture(op: Op, graph: Graph) -> str | None:
    weights = [graph.tensors[n] for n in op.inputs[3:]]
    moving = next((t for t in weights if not t.is_constant), None)
    if moving is not None:
        return f"its weight {moving.name!r} is computed while running, and the kernel packs it once"
    if (function := op.attr_str("activation", "silu")) not in MIXTURE_FUNCTIONS:
        return f"its activation {function} has no kernel"
    for part in expert_slots(op):
        kinds = {
            (t.quantization.scheme if t.quantization is not None else t.dtype.value) for t in (graph.tensors[op.inputs[s]] for s in part)
        }
        if len(kinds) > 1:
            return f"its experts are stored in several ways ({', '.join(sorted(kinds))}), and the kernel takes one"
    return _floats(op, graph, range(2))


def integer_experts(op: Op, graph: Graph) -> str | None:
    """Whether supported experts have weights in blocks, which are computed on with int8 activations."""
    plain = next((t for t in (graph.tensors[n] for n in op.inputs[3:]) if not in_blocks(t)), None)
    return None if plain is None else f"its weight {plain.name!r} is {plain.dtype.value}; the integer kernel takes weights in blocks"


def _state_space(op: Op, graph: Graph) -> str | None:
    x, slots = graph.tensors[op.inputs[0]], (1, 2) if op.type == "CausalConv" else (2,)
    moving = next((n for n in (op.inputs[i] for i in slots if i < len(op.inputs)) if n and not graph.tensors[n].is_constant), None)
    if moving is not None or len(x.shape) != 2:
        return f"its weight {moving!r} is computed while running" if moving else f"its input {x.name!r} is not rows of tokens"
    return _floats(op, graph, range(7))


RULES: Mapping[str, Callable[[Op, Graph], str | None]] = {
    "RMSNorm": _rms_norm, "RotaryEmbedding": _rotary, "GroupQueryAttention": _attention, "Sample": _sample,
    "Router": _router, "MoE": _mixture, "CausalConv": _state_space, "SelectiveScan": _state_space,
}  # fmt: skip
