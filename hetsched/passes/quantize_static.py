"""Static integers for a float model: QuantizeLinear and DequantizeLinear where ranges are known.

The integer part of a graph grows from its matrix operators with constant weights. An operator that moves, pools, adds or
scales (:data:`SHARING`, :data:`OWN_RANGE`) belongs to it where everything that it reads comes from the integer part and something
there reads it, so a chain between two convolutions is integers throughout, and softmax, normalisation, attention and the
ends of the graph stay float. Every tensor that the integer part reads is quantized once, for all its readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.passes.fuse_quantization import FuseQuantization
from hetsched.passes.static_weights import has_integer_bias, quantized_bias, quantized_weight, weight_axis
from hetsched.passes.undo import undo
from hetsched.passes.unfuse import parts
from hetsched.ranges import ActivationRanges, TensorRange

MATRIX = frozenset({"Conv", "FusedConv", "ConvTranspose", "FusedConvTranspose", "MatMul", "FusedMatMul", "Gemm", "FusedGemm"})
#: Their results are among the values that they read (or between them): the integers mean the same before and after.
SHARING = frozenset(
    {
        "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Slice", "Expand", "Tile", "Gather", "MaxPool",
        "GlobalMaxPool", "DepthToSpace", "SpaceToDepth",
    }
)  # fmt: skip
OWN_RANGE = frozenset(
    {
        "Add", "Sub", "Mul", "Max", "Min", "Concat", "Pad", "AveragePool", "GlobalAveragePool", "ReduceMean", "Resize", "Relu", "Clip",
        "LeakyRelu", "PRelu", "HardSwish", "HardSigmoid", "Sigmoid", "Silu", "BatchNormalization",
    }
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class QuantizeStatic:
    """Float graph + activation ranges → the same graph with Q/DQ around its integer part.

    Activations become unsigned 8-bit integers with a zero point, or signed ones without where the ranges are symmetric;
    weights 8-bit per output channel, biases 32-bit, both computed only when they are read. An operator whose tensors have no
    range stays float. :func:`quantize` also joins the new nodes with their operators.
    """

    ranges: ActivationRanges

    name: ClassVar[str] = "quantize-static"
    requires: ClassVar[tuple[str, ...]] = ("conv-fused", "matmul-fused")
    ensures: ClassVar[tuple[str, ...]] = ()

    def __call__(self, graph: Graph) -> Graph:
        """The graph with Q/DQ pairs."""
        known = {n: r for n, r in self.ranges.ranges.items() if isinstance(r, TensorRange)}
        integer = _integer_part(graph, known)
        if not integer:
            return graph
        return _Rewrite(graph, known, integer, self.ranges.symmetric).result()


def quantize(graph: Graph, ranges: ActivationRanges) -> Graph:
    """``graph`` (after the standard passes) with static integers, Q and DQ absorbed by their operators.

    Products that were merged because they read one tensor are taken apart: each has scales of its own.
    """
    apart = undo(graph, ("MergedMatMul",))
    quantized = QuantizeStatic(ranges)(apart)
    return graph if quantized is apart else FuseQuantization()(quantized)


def _is_matrix(graph: Graph, op: Op) -> bool:
    """Whether ``op`` is a product of a float activation with a constant weight."""
    if op.type not in MATRIX or op.domain or len(op.inputs) < 2 or not op.inputs[1] or op.attr_int("transA", 0):
        return False
    x, w = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]]
    if x.is_constant or x.dtype is not DType.F32 or not w.is_constant or weight_axis(op, w) is None:
        return False
    return w.dtype is DType.F32 if w.quantization is None else w.dtype in (DType.I8, DType.U8)


def _follows(graph: Graph, op: Op) -> bool:
    """Whether ``op`` can be part of the integers around matrix operators."""
    if op.domain or [o for o in op.outputs if o] != [op.outputs[0]] or graph.tensors[op.outputs[0]].dtype is not DType.F32:
        return False
    if op.type == "FusedElementwise":
        return all(part.type in OWN_RANGE for part in parts(op))
    return op.type in SHARING or op.type in OWN_RANGE


def _data(graph: Graph, op: Op) -> list[str]:
    """The float tensors that ``op`` reads and that are computed while running."""
    return [n for n in graph.activations(op) if graph.tensors[n].dtype is DType.F32 and graph.tensors[n].quantization is None]


def _integer_part(graph: Graph, known: Mapping[str, TensorRange]) -> frozenset[int]:
    """Indices of the operators that will read integers: the largest set that keeps the rule of this module."""
    matrix = {i for i, op in enumerate(graph.ops) if _is_matrix(graph, op) and op.inputs[0] in known}
    rest = {i for i, op in enumerate(graph.ops) if _follows(graph, op) and (d := _data(graph, op)) and all(n in known for n in d)}
    while True:
        part = matrix | rest
        gone = [i for i in sorted(rest) if not _belongs(graph, i, part)]
        if not gone:
            return frozenset(part)
        rest.difference_update(gone)


def _belongs(graph: Graph, i: int, part: set[int]) -> bool:
    op = graph.ops[i]
    fed = all(graph.producer.get(n, -1) in part for n in graph.activations(op))
    return fed and any(j in part for j in graph.consumers.get(op.outputs[0], ()))


class _Rewrite:
    """One application of the pass: new tensors and operators, and what each quantized tensor is called."""

    def __init__(self, graph: Graph, known: Mapping[str, TensorRange], integer: frozenset[int], symmetric: bool) -> None:
        self.graph, self.known, self.integer, self.symmetric = graph, known, integer, symmetric
        self.tensors: dict[str, Tensor] = dict(graph.tensors)
        self.ops: list[Op] = []
        self.taken = {op.name for op in graph.ops}
        self.read = {n for i in integer for n in _data(graph, graph.ops[i])}
        self.parameters: dict[str, tuple[str, str, float]] = {}
        self.dequantized: dict[str, str] = {}
        self.weights: dict[tuple[str, int], str] = {}

    def result(self) -> Graph:
        """The rewritten graph."""
        for name in self.graph.inputs:
            self._after(name, None)
        for i, op in enumerate(self.graph.ops):
            self.ops.append(self._reading(i, op))
            for name in op.outputs:
                self._after(name, op)
        return self.graph.replace(ops=tuple(self.ops), tensors=self.tensors)

    def _unique(self, name: str) -> str:
        out, k = name, 2
        while out in self.tensors:
            out, k = f"{name}_{k}", k + 1
        return out

    def _add(self, kind: str, inputs: tuple[str, ...], output: str, axis: int | None = None) -> None:
        name, k = output, 2
        while name in self.taken:
            name, k = f"{output}_{k}", k + 1
        self.taken.add(name)
        self.ops.append(Op(name, kind, inputs, (output,), {} if axis is None else {"axis": axis}))

    def _define(self, tensor: Tensor) -> str:
        self.tensors[tensor.name] = tensor
        return tensor.name

    def _after(self, name: str, producer: Op | None) -> None:
        """Quantize the tensor ``name``, which is there now, if the integer part reads it."""
        if name not in self.read:
            return
        scale, zero, _ = self._parameters(name, producer)
        shape = self.graph.tensors[name].shape
        stored = self._define(Tensor(self._unique(f"{name}/quantized"), shape, self.tensors[zero].dtype))
        real = self._define(Tensor(self._unique(f"{name}/dequantized"), shape, DType.F32))
        self._add("QuantizeLinear", (name, scale, zero), stored)
        self._add("DequantizeLinear", (stored, scale, zero), real)
        self.dequantized[name] = real

    def _parameters(self, name: str, producer: Op | None) -> tuple[str, str, float]:
        """Scale and zero point of a tensor; those of what was moved, where a moving operator made it."""
        if producer is not None and producer.type in SHARING and producer.inputs[0] in self.parameters:
            self.parameters[name] = self.parameters[producer.inputs[0]]
            return self.parameters[name]
        scale, zero = affine_parameters(self.known[name], self.symmetric)
        names = []
        for what, value in (("scale", np.float32(scale)), ("zero_point", np.int8(zero) if self.symmetric else np.uint8(zero))):
            array = np.asarray(value)
            dtype = DType.F32 if what == "scale" else DType.I8 if self.symmetric else DType.U8
            names.append(self._define(Tensor(self._unique(f"{name}/{what}"), (), dtype, Role.WEIGHT, None, WeightRef(array=array))))
        self.parameters[name] = (names[0], names[1], scale)
        return self.parameters[name]

    def _reading(self, i: int, op: Op) -> Op:
        """``op`` with its inputs dequantized; its weights too, if it is a matrix operator of the integer part."""
        if op.is_control_flow or op.domain or op.type == "QuantizeLinear":
            return op
        inputs = [self.dequantized.get(n, n) for n in op.inputs]
        if i in self.integer and op.type in MATRIX:
            self._constants(op, inputs)
        return op if tuple(inputs) == op.inputs else replace(op, inputs=tuple(inputs), body=_renamed(op, inputs))

    def _constants(self, op: Op, inputs: list[str]) -> None:
        weight = self.graph.tensors[op.inputs[1]]
        axis = weight_axis(op, weight)
        if weight.quantization is not None or axis is None:
            return
        key = (weight.name, axis)
        if key not in self.weights:
            codes, scale = quantized_weight(weight, axis, self._unique(f"{weight.name}/quantized"))
            real = self._define(Tensor(self._unique(f"{weight.name}/dequantized"), weight.shape, DType.F32))
            self._define(scale)
            self._add("DequantizeLinear", (self._define(codes), scale.name), real, axis)
            self.weights[key] = real
        inputs[1] = self.weights[key]
        self._bias(op, inputs, weight, axis)

    def _bias(self, op: Op, inputs: list[str], weight: Tensor, axis: int) -> None:
        channels = weight.shape[axis]
        if len(op.inputs) < 3 or not op.inputs[2] or ("ConvTranspose" in op.type and op.attr_int("group", 1) != 1):
            return
        bias = self.graph.tensors[op.inputs[2]]
        if not has_integer_bias(op, bias, channels):
            return
        producer = next(o for o in self.ops if o.outputs[0] == inputs[1])
        weight_scale = self.tensors[producer.inputs[1]]
        stored, scale = quantized_bias(bias, weight_scale, self.parameters[op.inputs[0]][2], self._unique(f"{op.name}/bias/quantized"))
        real = self._define(Tensor(self._unique(f"{op.name}/bias/dequantized"), bias.shape, DType.F32))
        self._define(scale)
        self._add("DequantizeLinear", (self._define(stored), scale.name), real, 0)
        inputs[2] = real


def _renamed(op: Op, inputs: list[str]) -> tuple[Op, ...]:
    """The body of ``op`` reading its new inputs; tensors that the body computes keep their names."""
    inner = {o for part in op.body for o in part.outputs}
    new = {old: now for old, now in zip(op.inputs, inputs, strict=True) if old not in inner}
    return tuple(_substituted(part, new) for part in op.body)


def _substituted(op: Op, new: Mapping[str, str]) -> Op:
    body = tuple(_substituted(part, new) for part in op.body)
    return replace(op, inputs=tuple(new.get(n, n) for n in op.inputs), body=body)


def affine_parameters(r: TensorRange, symmetric: bool) -> tuple[float, int]:
    """Scale and zero point of 8-bit integers for a range, which is widened to hold 0 exactly.

    Returns:
        Unsigned, ``(max - min) / 255`` and the integer that stands for 0; symmetric, the largest magnitude over 127 and 0.

    Examples:
        >>> affine_parameters(TensorRange(min=-1.0, max=254.0), symmetric=False)
        (1.0, 1)
        >>> affine_parameters(TensorRange(min=-63.5, max=12.0), symmetric=True)
        (0.5, 0)
    """
    low, high = min(r.min, 0.0), max(r.max, 0.0)
    smallest = float(np.finfo(np.float32).tiny)
    if symmetric:
        scale = float(np.float32(max(-low, high) / 127))
        return (scale, 0) if scale > smallest else (1.0, 0)
    scale = float(np.float32((high - low) / 255))
    if not scale > smallest:
        return 1.0, 0
    return scale, int(np.clip(np.rint(-low / scale), 0, 255))
