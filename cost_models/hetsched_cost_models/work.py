"""The work of every operator: multiply-accumulates, bytes and matrix dimensions, before any processor is looked at.

Counts are exact functions of shapes and attributes, as the ONNX operator definitions state them. One MAC is one multiply and
one add. Bytes are counted in *elements* by how a tensor is held (float, quantized, other), so that one count serves every
storage precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.channels_last import ARITHMETIC, works_channels_last
from hetsched.graph import Graph, Op, Tensor
from hetsched_cost_models.alike import Alike, alike
from hetsched_cost_models.language import is_state, language_work, share_appended, state_bytes, weight_share
from hetsched_cost_models.matrices import matrix_work
from hetsched_cost_models.operators import GATHERS, SLICES, VECTOR_KINDS, is_known, kind_of

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Work:
    """Work of all ops of a graph, one entry per op in ``graph.ops`` order.

    ``float_elems``, ``quant_elems``: activation elements read and written whose tensor is float / quantized integer;
    ``other_bytes``: bytes of the other activations. ``weight_float_elems``, ``weight_fixed_bytes``: float constant
    elements, and bytes of constants that no precision changes. ``extra_elems``: elements of arithmetic beyond one pass;
    ``activation_elems``: elements to which a fused transcendental function is applied. ``weight_packed_bytes`` and
    ``weight_packed_elems``: constants that a CPU reads as they are stored (blocks, 16-bit floats) and an accelerator holds as
    its own weights. ``state_bytes``: caches and states that are read and written once an inference, as they are stored;
    ``state_vector_bytes``: the same as the arithmetic sees them, which widens 8- and 4-bit elements to 16 bits.
    """

    macs: FloatArray
    cls: IntArray
    kind: IntArray
    m: FloatArray
    n: FloatArray
    k: FloatArray
    float_elems: FloatArray
    quant_elems: FloatArray
    other_bytes: FloatArray
    weight_float_elems: FloatArray
    weight_quant_elems: FloatArray
    weight_fixed_bytes: FloatArray
    extra_elems: FloatArray
    activation_elems: FloatArray
    weight_packed_bytes: FloatArray
    weight_packed_elems: FloatArray
    state_bytes: FloatArray
    state_vector_bytes: FloatArray
    unknown: tuple[int, ...]

    def take(self, rows: IntArray) -> Work:
        """The work of ops that are like those in ``rows`` (:mod:`hetsched_cost_models.alike`)."""
        columns = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "unknown"}
        return Work(unknown=tuple(np.flatnonzero(np.isin(rows, self.unknown)).tolist()), **columns)


def work_of(graph: Graph, ops: Sequence[Op] | None = None, groups: Alike | None = None) -> Work:
    """Count the work of every op of ``graph``, or of ``ops`` that are in the body of one of them; ``groups`` are theirs."""
    groups = groups or alike(graph, graph.ops if ops is None else ops)
    return _count(graph, groups.example).take(groups.kind)


def _count(graph: Graph, ops: Sequence[Op]) -> Work:
    n = len(ops)
    columns = {name: np.zeros(n) for name in (
        "macs", "m", "n", "k", "float_elems", "quant_elems", "other_bytes", "weight_float_elems", "weight_quant_elems",
        "weight_fixed_bytes", "extra_elems", "activation_elems", "weight_packed_bytes", "weight_packed_elems", "state_bytes",
        "state_vector_bytes",
    )}  # fmt: skip
    cls, kind = np.zeros(n, np.int64), np.zeros(n, np.int64)
    unknown: list[int] = []
    kinds = {name: i for i, name in enumerate(VECTOR_KINDS)}
    for i, op in enumerate(ops):
        if op.is_control_flow:  # what its body costs is added to the cost table (hetsched_cost_models.control_flow)
            columns["macs"][i] = op.attr_int("trips", 1) * work_of(graph, op.body).macs.sum()
            kind[i] = kinds["view"]
            continue
        matrix = matrix_work(graph, op)
        columns["macs"][i], columns["m"][i], columns["n"][i], columns["k"][i] = matrix.macs, matrix.m, matrix.n, matrix.k
        cls[i] = matrix.cls
        kind[i] = kinds[vector_kind(graph, op)]
        _count_activations(graph, op, i, columns)
        _count_constants(graph, op, i, columns)
        columns["extra_elems"][i] = _extra_elems(graph, op)
        columns["activation_elems"][i] = _fused_functions(graph, op)
        columns["state_bytes"][i] = state_bytes(graph, op)
        columns["state_vector_bytes"][i] = state_bytes(graph, op, widened=True)
        if not is_known(op.type) and not op.body:
            unknown.append(i)
    return Work(cls=cls, kind=kind, unknown=tuple(unknown), **columns)


def vector_kind(graph: Graph, op: Op) -> str:
    """Kind of vector work of an op: its type's, or a costlier or cheaper one that its attributes and shapes make of it."""
    kind = kind_of(op.type)
    if kind == "resize" and op.attr_str("mode", "nearest") == "nearest" and op.type in ("Resize", "Upsample"):
        return "nearest"
    if op.type == "Sample" and op.attr_str("method", "greedy") == "greedy":
        return "maximum"
    if op.type == "FusedSoftmax" and len(op.inputs) > 1 and op.inputs[1]:
        return "masked"
    if op.type in ("Gelu", "Erf"):
        return "gelu"
    if op.type == "AveragePool":
        return "average"
    if op.type == "LRN":
        return "response"
    if kind == "elementwise" and op.type in (*ARITHMETIC, "Relu", "Clip") and works_channels_last(op, graph, "f32"):
        return "image"
    if kind == "elementwise" and op.outputs and op.outputs[0]:
        out = graph.tensors[op.outputs[0]].shape
        shapes = [graph.tensors[n].shape for n in op.inputs if n]
        if out and out[-1] > 1 and any(s and s[-1] == 1 and math.prod(s) > 1 for s in shapes):
            return "broadcast"
    return kind


def _count_activations(graph: Graph, op: Op, i: int, columns: dict[str, FloatArray]) -> None:
    """Add what the op reads and writes; a gather or a slice reads what it writes, not its whole input."""
    written = sum(graph.tensors[o].elements for o in op.outputs if o)
    partial = op.type in GATHERS or op.type in SLICES
    for slot, name in enumerate(op.inputs):
        if not name or graph.tensors[name].is_constant or is_state(graph, op, name):
            continue
        tensor = graph.tensors[name]
        elements = min(tensor.elements, written) if partial and slot == 0 else tensor.elements
        _add(tensor, elements, i, columns)
    for name in op.outputs:
        if name and not is_state(graph, op, name):
            _add(graph.tensors[name], round(graph.tensors[name].elements * share_appended(graph, op, name)), i, columns)


def _add(tensor: Tensor, elements: int, i: int, columns: dict[str, FloatArray]) -> None:
    if tensor.dtype.is_float:
        columns["float_elems"][i] += elements
    elif tensor.quantization is not None:
        columns["quant_elems"][i] += elements
    else:
        columns["other_bytes"][i] += elements * tensor.dtype.bits / 8


def _count_constants(graph: Graph, op: Op, i: int, columns: dict[str, FloatArray]) -> None:
    """Add the constants that the op reads: of a table the rows that it gathers, of a mixture the active experts."""
    written = sum(graph.tensors[o].elements for o in op.outputs if o)
    constants = [graph.tensors[n] for n in graph.constants(op)]
    active = weight_share(op, sum(t.nbytes for t in constants))
    tables = (op.inputs[0],) if op.type in GATHERS else op.inputs if op.type == "RotaryEmbedding" else ()
    for tensor in constants:
        share = min(1.0, written / max(1, tensor.elements)) if tensor.name in tables else active
        blocks = tensor.quantization is not None and tensor.quantization.block_bytes > 0
        if blocks or tensor.is_sparse or (tensor.dtype.is_float and tensor.dtype.bits < 32):
            columns["weight_packed_bytes"][i] += share * tensor.nbytes
            columns["weight_packed_elems"][i] += share * tensor.elements
        elif tensor.quantization is not None and tensor.quantization.granularity == "group" and tensor.dtype.bits < 8:
            columns["weight_fixed_bytes"][i] += share * tensor.nbytes  # unpacked in registers, at every precision
        elif tensor.dtype.is_float:
            columns["weight_float_elems"][i] += share * tensor.elements
        elif tensor.quantization is not None and tensor.dtype.bits <= 8:
            columns["weight_quant_elems"][i] += share * tensor.elements * tensor.dtype.bits / 8
        else:
            columns["weight_fixed_bytes"][i] += share * tensor.elements * tensor.dtype.bits / 8


def _fused_functions(graph: Graph, op: Op) -> float:
    """Elements to which the op applies a transcendental function beside its main work."""
    language = language_work(graph, op)
    if language is not None:
        return language.exponentials
    costly = op.type.startswith("Fused") and op.attr_str("activation", "") in _COSTLY_ACTIVATIONS
    return float(graph.tensors[op.outputs[0]].elements) if costly else 0.0


def _extra_elems(graph: Graph, op: Op) -> float:
    """Elements of arithmetic beyond one pass over inputs and outputs: pooling windows, fused bodies, fused activations."""
    out = graph.tensors[op.outputs[0]].elements if op.outputs and op.outputs[0] else 0
    if op.type in ("MaxPool", "AveragePool", "LpPool"):
        return float(out * (math.prod(op.attr_ints("kernel_shape", (1,))) - 1))
    if op.type == "FusedElementwise":
        return float(out * _TRANSCENDENTAL_PASSES * sum(kind_of(b.type) == "transcendental" for b in op.body))
    if kind_of(op.type) == "compare":  # an operand that is repeated is read again for every element
        return float(sum(out - graph.tensors[n].elements for n in op.inputs if n))
    return 0.0


_TRANSCENDENTAL_PASSES = 1.0
_COSTLY_ACTIVATIONS = frozenset({"Sigmoid", "Tanh", "Gelu", "Silu"})
