"""Workspace of the CPU kernels: what an op needs beside its tensors while it runs, and what a queue therefore keeps.

Operators of a queue run one after another and share one pool, as large as the largest of them. The figures follow the kernels
(``docs/kernels.md``): a padded copy of a convolution's input (one group at a time; of images that are kept channels last, only where
they have few channels), rows of a product packed as 8-bit integers, a panel of a right operand in float32, a float32 copy of what is
stored as integers where the kernel computes on reals, and a copy of what lies in another order than the kernel works in
(:mod:`hetsched.channels_last`). What is smaller than :data:`SMALL` in all (tiles, tables) is left out. Accelerators keep their
workspace to themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    if op.domain or not op.outputs or not op.outputs[0]:
        return 0
    own, written = works_channels_last(op, graph, precision), graph.tensors[op.outputs[0]]
    follows = written.name in last and written.dtype.value == "f32"
    images = [t for t in _images(graph, op) if (t.name in last) != (own or follows)]
    copied = sum(t.nbytes for t in images)
    if own or follows:
        return copied + (_padded(graph, op) if op.type in _CONVOLUTIONS else 0)
    return copied + _planar(graph, op, precision)


def _padded(graph: Graph, op: Op) -> int:
    """The padded copy of a channels-last image of few channels whose kernel's rows are read whole."""
    x, w, out = (graph.tensors[n] for n in (*op.inputs[:2], op.outputs[0]))
    if x.shape[1] > FEW_CHANNELS or w.shape[3] == 1 or op.attr_int("group", 1) > 1 or op.attr_ints("dilations", (1, 1))[1] > 1:
        return 0
    reach = zip(out.shape[2:], w.shape[2:], op.attr_ints("strides", (1, 1)), strict=True)
    return x.nbytes // math.prod(x.shape[2:]) * math.prod((o - 1) * s + k for o, k, s in reach)


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
