"""Work as a tiled matrix unit with a vector unit beside it does it (Qualcomm's Hexagon tensor processor).

The matrix unit takes blocks of 32 input by 32 output channels (groups of a convolution are packed into such blocks) and reads
its inputs as a stream; the vector unit works on whatever else there is, and on what the matrix unit has written. Shapes alone
decide here; what it costs is in :mod:`hetsched_cost_models.hexagon`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.graph import Graph, Op, Tensor
from hetsched_cost_models.alike import Alike
from hetsched_cost_models.composites import Apart
from hetsched_cost_models.language import language_work
from hetsched_cost_models.matrices import matrix_work
from hetsched_cost_models.operators import CLASSES, VECTOR_KINDS
from hetsched_cost_models.work import BoolArray, FloatArray, IntArray, vector_kind

#: Kinds of operators that the form tells apart, in the order of the arrays.
KINDS = (
    "view", "elementwise", "function", "norm", "softmax", "move", "pool", "resize", "reduce", "gather",
    "conv1x1", "conv", "grouped", "depthwise", "gemm", "matmul", "join",
)  # fmt: skip
_OF_CLASS = {
    **{c: c for c in ("conv1x1", "conv", "grouped", "depthwise", "gemm", "matmul")},
    "transposed": "conv", "conv3x3": "conv", "depthwise_small": "depthwise", "depthwise_strided": "depthwise",
}  # fmt: skip
_OF_KIND = {
    **{k: k for k in ("view", "norm", "softmax", "pool", "resize", "reduce", "gather")},
    "transcendental": "function", "masked": "softmax", "transpose": "move", "copy": "move", "maximum": "reduce", "nearest": "resize",
    "gelu": "function", "response": "norm", "average": "pool",
}  # fmt: skip
#: Kinds that always work on images, however few dimensions their tensors have.
_OF_IMAGES = ("conv1x1", "conv", "grouped", "depthwise", "pool", "resize")
#: Channels of a block of the matrix unit (HeteroInfer, arXiv 2501.14794: a systolic tile is 32 x 32), and rows of a tile.
_BLOCK = 32
_ROWS = 8
#: Bytes of an element that is neither float nor quantized: indices are 32-bit integers on accelerators.
_OTHER_BYTES = 4.0
#: Convolutions of fewer channels unroll their windows into channels.
_FEW = 8


@dataclass(frozen=True, eq=False)
class Tiles:
    """One entry an operator: ``kind`` (:data:`KINDS`) and how many elements and multiply-accumulates it handles.

    ``macs``: multiply-accumulates of whole blocks. ``elems``: activations read and written; ``written``: of them, written;
    ``once``: of what it reads, what no earlier matrix product has read; ``functions``: elements to which a transcendental
    function is applied on the way; ``heads``: parts that are worked on one after another; ``tokens``: 1 where the tensors are rows of
    tokens (at most three dimensions, or attention scores), 0 for images.
    """

    kind: IntArray
    macs: FloatArray
    elems: FloatArray
    written: FloatArray
    once: FloatArray
    functions: FloatArray
    heads: FloatArray
    tokens: FloatArray


def tiles_of(graph: Graph, apart: Apart, groups: Alike) -> Tiles:
    """Tiled work of every part of ``graph`` as it is taken ``apart``; ``groups`` are its ops alike."""
    work, parts = apart.work, apart.parts
    used, first = np.unique(parts.kind, return_index=True)
    classes = zip(used.tolist(), work.cls[first].tolist(), work.kind[first].tolist(), strict=True)
    rows = np.zeros((len(parts.example), 6))
    for part, cls, kind in classes:
        rows[part] = _row(graph, parts.example[part], CLASSES[cls], VECTOR_KINDS[kind])
    columns = rows[parts.kind].T
    elems = work.float_elems + work.quant_elems + work.other_bytes / _OTHER_BYTES
    macs = np.where(columns[1] > 0, columns[1], work.macs)
    functions = np.maximum(columns[3], work.activation_elems)
    kinds = columns[0].astype(np.int64)
    once = _read_once(graph, apart.inputs(graph, groups), kinds == KINDS.index("gemm"))
    return Tiles(kinds, macs, elems, columns[2], once, functions, columns[4], columns[5])


def _read_once(graph: Graph, inputs: Iterable[Sequence[str]], product: BoolArray) -> FloatArray:
    """Elements that each part reads and that no ``product`` before it has read; constants aside."""
    elements = {n: t.elements for n, t in graph.tensors.items() if not t.is_constant}
    once = np.zeros(len(product))
    for i, (names, multiplies) in enumerate(zip(inputs, product.tolist(), strict=True)):
        once[i] = sum([elements.get(n, 0) for n in dict.fromkeys(names)])
        if multiplies:
            elements.update((n, 0) for n in names if n in elements)
    return once


def _row(graph: Graph, op: Op, cls: str, kind: str) -> tuple[float, ...]:
    """kind, macs (0: as counted), written, functions, heads, tokens."""
    outputs = [graph.tensors[o] for o in op.outputs if o]
    written = sum(t.elements for t in outputs)
    shape = outputs[0].shape if outputs else ()
    name = _OF_CLASS.get(cls) or _OF_KIND.get(kind, "elementwise")
    if kind == "copy" and _whole_blocks(graph, op):
        name = "join"
    heads = 1
    if name in ("matmul", "softmax"):
        heads = op.attr_int("num_heads", 0) or op.attr_int("q_num_heads", 0) or math.prod(shape[:-2])
    tokens = name not in _OF_IMAGES and (len(shape) <= 3 or (len(shape) == 4 and name in ("matmul", "softmax")))
    functions = written * _functions_inside(graph, op)
    return (KINDS.index(name), _blocks(graph, op, name), written, functions, max(1, heads), float(tokens))


def _functions_inside(graph: Graph, op: Op) -> int:
    if op.type != "FusedElementwise":
        return 0
    return sum(vector_kind(graph, b) in ("transcendental", "gelu") for b in op.body)


def _whole_blocks(graph: Graph, op: Op) -> bool:
    """Whether a concatenation, split or slice of an image only names blocks of 32 channels anew."""
    if op.type not in ("Concat", "Split", "Slice") or not op.outputs or not op.outputs[0]:
        return False
    if op.type == "Slice":
        return _sliced_by_channel(graph, op)
    pieces = op.inputs if op.type == "Concat" else op.outputs
    shapes = [graph.tensors[n].shape for n in pieces if n]
    axis = op.attr_int("axis", 0)
    return all(len(s) == 4 and axis % 4 == 1 and s[1] % _BLOCK == 0 for s in shapes)


def _sliced_by_channel(graph: Graph, op: Op) -> bool:
    before, after = graph.tensors[op.inputs[0]].shape, graph.tensors[op.outputs[0]].shape
    return len(before) == 4 and before[0] == after[0] and before[2:] == after[2:] and after[1] % _BLOCK == 0


def _blocks(graph: Graph, op: Op, name: str) -> float:
    """Multiply-accumulates of whole blocks; 0 where they count as they are."""
    work = matrix_work(graph, op)
    if not work.macs or name == "depthwise" or language_work(graph, op) is not None:
        return 0.0
    if name in ("gemm", "matmul"):
        batch = work.macs / max(1.0, work.m * work.n * work.k)
        rows = _up(work.m, _ROWS) if work.m > 1 else work.m
        return batch * rows * _up(work.n, _BLOCK) * _up(work.k, _BLOCK)
    weights = graph.tensors[op.inputs[3 if op.type == "QLinearConv" else 1]]
    return _convolution(op, weights, work.macs)


def _convolution(op: Op, weights: Tensor, macs: float) -> float:
    """Channels padded to whole blocks, small groups packed together."""
    if len(weights.shape) < 3 or not weights.elements:
        return 0.0
    group, window = max(1, op.attr_int("group", 1)), math.prod(weights.shape[2:])
    out, depth = weights.shape[0] // group, weights.shape[1]  # channels of a group
    if "Transpose" in op.type:
        out, depth = weights.shape[1], weights.shape[0] // group
    positions = macs / weights.elements
    if group == 1:
        unrolled = _up(depth, _BLOCK) * window if depth >= _FEW else _up(depth * window, _BLOCK)
        return positions * _up(out, _BLOCK) * unrolled
    packed = max(1, min(group, _BLOCK // max(1, depth)))
    return positions * math.ceil(group / packed) * _up(packed * out, _BLOCK) * _up(packed * depth, _BLOCK) * window


def _up(value: float, multiple: int) -> float:
    return math.ceil(value / multiple) * multiple
