"""Workspace of the CPU kernels: what an op needs beside its tensors while it runs, and what a queue therefore keeps.

Operators of a queue run one after another and share one pool, as large as the largest of them. The figures follow the kernels
(``docs/kernels.md``): a padded copy of a convolution's input (one group at a time; of images that are kept channels last, where
they have few channels, or 8 bits and windows that reach beyond them), transformed tiles of a float32 one, rows of a product packed as
8-bit integers, a panel of a right operand in float32, a float32 copy of what is stored as integers where the kernel computes on reals,
and a copy of what lies in another order than the kernel works in (:mod:`hetsched.channels_last`). What is smaller than :data:`SMALL` in
all (tiles, tables) is left out. Accelerators keep their
workspace to themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hetsched.channels_last import FEW_CHANNELS, channels_last, works_channels_last
from hetsched.costs import CostTable, FloatArray
from hetsched.graph import Graph, Op
from hetsched.tensors import Tensor

SMALL = 1 << 16
"""Bytes that every queue's pool has anyway."""
PANEL = 4 * 48
"""Bytes of a panel for each of its rows: the widest register tile."""
_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})
#: Gates of recurrent layers, which make a product of all steps first.
_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
#: Of convolutions by 3 x 3 kernels: least channels and tiles for which tiles are transformed, and bytes of those transformed together.
_THIN, _MANY_TILES, _TOGETHER = 16, 32, 1 << 20
_PRODUCTS = frozenset({"FusedGemm", "FusedMatMul", "Gemm", "MatMul"})
#: Operators that move or convert stored integers without computing on them.
_STORED = frozenset({
    "Concat", "DepthToSpace", "DequantizeLinear", "Expand", "Flatten", "Gather", "GatherBlockQuantized", "GatherElements", "Identity",
    "Pad", "QuantizeLinear", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip


def workspace_bytes(graph: Graph, table: CostTable, alternative: Sequence[int]) -> int:
    """Bytes of the pools of all queues whose ops this project's kernels run."""
    pools: dict[int, int] = {}
    chosen = {op.name: a for op, a in zip(graph.ops, alternative, strict=True)}
    last = channels_last(
        graph, {n: table.alt_precision[a] for n, a in chosen.items()}, {n: table.delegate(a) for n, a in chosen.items()}
    )  # fmt: skip
    for op, a in zip(graph.ops, alternative, strict=True):
        queue = int(table.alt_queue[a])
        if table.queues[queue].kind == "cpu" and table.delegate(a) == "numba":
            pools[queue] = max(pools.get(queue, SMALL), workspace_of(graph, op, table.alt_precision[a], last))
    return sum(pools.values())


def alternative_workspace(graph: Graph, table: CostTable) -> FloatArray:
    """[m] bytes of the pool that an alternative needs; the pool is shared, so these do not add up."""
    out = np.zeros(len(table.alt_queue))
    last: dict[str, frozenset[str]] = {}
    for i, op in enumerate(graph.ops):
        for a in table.alternatives(i):
            if table.queues[int(table.alt_queue[a])].kind == "cpu" and table.delegate(a) == "numba":
                precision = table.alt_precision[a]
                if precision not in last:
                    last[precision] = kept_last(graph, precision)
                out[a] = max(SMALL, workspace_of(graph, op, precision, last[precision]))
    return out


def kept_last(graph: Graph, precision: str) -> frozenset[str]:
    """The tensors kept channels last where all ops run on the CPU at one precision."""
    names = [op.name for op in graph.ops]
    return channels_last(graph, dict.fromkeys(names, precision), dict.fromkeys(names, "numba"))


def workspace_of(graph: Graph, op: Op, precision: str, last: frozenset[str] = frozenset()) -> int:
    """Bytes that a CPU kernel needs beside the op's tensors, to about :data:`SMALL`; ``last`` are the tensors kept channels last."""
    if not op.domain and op.type in _OWN:
        return _OWN[op.type](graph, op)
    if op.domain or not op.outputs or not op.outputs[0]:
        return 0
    own, written = works_channels_last(op, graph, precision), graph.tensors[op.outputs[0]]
    follows = written.name in last and written.dtype.value == "f32"
    images = [t for t in _images(graph, op) if (t.name in last) != (own or follows)]
    copied = sum(t.nbytes for t in images)
    if own or follows:
        if op.type in _CONVOLUTIONS:
            return copied + _channels_last(graph, op, precision)
        return copied + (4 * sum(t.elements for t in _quantized(graph, op)) if "ConvTranspose" in op.type else 0)
    return copied + _planar(graph, op, precision)


def _channels_last(graph: Graph, op: Op, precision: str) -> int:
    """The padded copy of an image of few channels, or of bytes that no stride passes over; or the transformed tiles of one in float32."""
    x, w, out = (graph.tensors[n] for n in (*op.inputs[:2], op.outputs[0]))
    strides, dilations = op.attr_ints("strides", (1, 1)), op.attr_ints("dilations", (1, 1))
    if op.attr_int("group", 1) > 1:
        return 0
    few = x.shape[1] <= FEW_CHANNELS and w.shape[3] > 1 and dilations[1] == 1
    if precision == "f32" and not few:
        simple = w.shape[2:] == (3, 3) and strides == dilations == (1, 1) and min(w.shape[:2]) >= _THIN
        return _transformed(out, w) if simple else 0
    reach = [(o - 1) * s + (k - 1) * d + 1 for o, k, s, d in zip(out.shape[2:], w.shape[2:], strides, dilations, strict=True)]
    copied = few or (strides == (1, 1) and math.prod(reach) > math.prod(x.shape[2:]))
    return x.elements // math.prod(x.shape[2:]) * x.dtype.bits // 8 * math.prod(reach) if copied else 0


def _transformed(out: Tensor, w: Tensor) -> int:
    """Tiles of 4 x 4 or 2 x 2 results and of what they are made of, transformed, as many as are worked on together."""
    for size in (4, 2):
        tiles = out.shape[0] * math.prod(-(-n // size) for n in out.shape[2:])
        if tiles >= _MANY_TILES:
            each = 4 * (size + 2) ** 2 * sum(-(-c // _THIN) * _THIN for c in w.shape[:2])
            return each * min(tiles, max(_TOGETHER // each, _THIN))
    return 0


def _images(graph: Graph, op: Op) -> list[Tensor]:
    """Computed tensors of an op with more than one position."""
    names = dict.fromkeys((*graph.activations(op), *(o for o in op.outputs if o)))
    return [t for n in names if len((t := graph.tensors[n]).shape) == 4 and t.shape[2:] != (1, 1)]


def _planar(graph: Graph, op: Op, precision: str) -> int:
    """Bytes beside tensors that lie in the model's own order."""
    x, out = graph.tensors.get(op.inputs[0]) if op.inputs else None, graph.tensors[op.outputs[0]]
    integer = precision == "w8a8" and op.type in (_CONVOLUTIONS | _PRODUCTS)
    reals = 0 if integer or op.type in _STORED else 4 * sum(t.elements for t in _quantized(graph, op))
    w = graph.tensors.get(op.inputs[1]) if len(op.inputs) > 1 else None
    if x is None or w is None:
        return reals
    if op.type in _CONVOLUTIONS and len(w.shape) > 2:
        return reals + _convolution(op, x, w, out, integer)
    return reals + (_product(op, x, w, integer) if op.type in _PRODUCTS else 0)


def _quantized(graph: Graph, op: Op) -> list[Tensor]:
    """Computed tensors of an op that are stored as integers that stand for reals."""
    names = dict.fromkeys((*graph.activations(op), *(o for o in op.outputs if o)))
    return [graph.tensors[n] for n in names if graph.tensors[n].quantization is not None]


def _recurrent(graph: Graph, op: Op) -> int:
    """What the inputs give to the gates of all steps and directions, and float32 copies of what is stored as integers."""
    x, r = (graph.tensors[op.inputs[i]] for i in (0, 2))
    return 4 * (x.elements // x.shape[-1] * r.shape[0] * _GATES[op.type] * r.shape[2] + sum(t.elements for t in _quantized(graph, op)))


def _mixture(graph: Graph, op: Op) -> int:
    """An expert's rows, two results for each, which they are, and all hidden values."""
    (tokens, width), inner = graph.tensors[op.inputs[0]].shape, graph.tensors[op.inputs[-1]].shape[-1]
    return 4 * tokens * (op.attr_int("experts_per_token", 1) * (2 + inner) + 3 * max(width, inner))


def _attention(graph: Graph, op: Op) -> int:
    """One head's keys and values as panels, and a mask of booleans as numbers."""
    key, value = (graph.tensors[n] for n in op.inputs[1:3])
    heads, column = op.attr_int("batch", 1) * op.attr_int("kv_num_heads", 1), PANEL // 4
    if len(key.shape) == 4:
        dim = key.shape[2 if op.attr_int("key_transposed", 0) else 3]
    else:
        dim = key.shape[-1] // op.attr_int("kv_num_heads", 1)
    keys = key.elements // (heads * dim)
    width = value.elements // (heads * keys)
    mask = graph.tensors.get(op.inputs[3]) if len(op.inputs) > 3 else None
    numbers = 4 * mask.elements if mask is not None and mask.dtype.value == "bool" else 0
    return 4 * keys * (dim + -(-width // column) * column) + numbers


def _sample(graph: Graph, op: Op) -> int:
    """The scores, the weights that are left and where they came from."""
    return 0 if op.attr_str("method", "greedy") == "greedy" else 12 * graph.tensors[op.inputs[0]].shape[-1]


_OWN: Mapping[str, Callable[[Graph, Op], int]] = {
    **dict.fromkeys(_GATES, _recurrent),
    "MoE": _mixture,
    "Sample": _sample,
    "Attention": _attention,
}


def _convolution(op: Op, x: Tensor, w: Tensor, out: Tensor, integer: bool) -> int:
    """One group's input with its padding, as the output's extent, strides and dilations ask for it."""
    rank, channels = len(w.shape) - 2, w.shape[1]
    steps = zip(out.shape[2:], w.shape[2:], op.attr_ints("strides", (1,) * rank), op.attr_ints("dilations", (1,) * rank), strict=True)
    plane = math.prod(-(-((o - 1) * s + (k - 1) * d + 1) // s) * s for o, k, s, d in steps)
    if not integer:
        return 4 * channels * plane + PANEL * channels * math.prod(w.shape[2:])
    return 4 * -(-channels // 4) * plane + (x.elements if x.quantization is None else 0)


def _product(op: Op, x: Tensor, w: Tensor, integer: bool) -> int:
    """A panel of an operand that is computed; as integers, also rows packed to whole groups of four, their terms, and floats quantized."""
    transposed = op.type in ("FusedGemm", "Gemm") and op.attr_int("transB", 0)
    k = w.shape[-1] if transposed or len(w.shape) == 1 else w.shape[-2]
    if not integer:
        return 0 if w.is_constant else PANEL * k
    rows = x.elements // max(1, k) if w.is_constant or len(x.shape) == 1 else x.shape[-2]
    return rows * (-(-k // 4) * 4 + 20) + (x.elements + 8 * rows if x.quantization is None else 0)
