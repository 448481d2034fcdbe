"""A segment as a TFLite flatbuffer: the operators' original nodes as built-in operators, images with their channels last.

TFLite's convolutions and pools want channels last, the graph has them second. Every tensor of four axes may be held in either order
(or both); a transposition is written only where an operator needs the order that is not there, so a chain of image operators has
none inside. The ends keep the graph's order. Quantized operators whose body is Q/DQ around one core come as int8 operators
(:mod:`hetsched.lowering.tflite_quantized`); what does not fit that is written as the nodes that it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.lowering.onnx_segment import Ends, original_nodes
from hetsched.reference.gguf_types import constant_value

#: ``plain``: axes as in the graph; ``last``: channels (axis 1 of four) last.
Order: TypeAlias = Literal["plain", "last"]
#: The identifier of the format's version 3.
FILE_IDENTIFIER = b"TFL3"
TO_LAST, TO_PLAIN = (0, 2, 3, 1), (0, 3, 1, 2)
_IMAGE = 4
#: Element type of numpy -> of the format.
TYPES: Mapping[str, str] = {
    "float32": "FLOAT32", "float16": "FLOAT16", "int32": "INT32", "int64": "INT64", "uint8": "UINT8", "int8": "INT8", "bool": "BOOL",
    "int16": "INT16",
}  # fmt: skip


def schema() -> Any:
    """The generated classes of the format; they come with LiteRT."""
    from ai_edge_litert import schema_py_generated

    return schema_py_generated


@dataclass(slots=True)
class TfliteBuild:
    """What a lowering is given: tensors by name and order, and how operators are added."""

    graph: Graph
    tensors: list[Any] = field(default_factory=list)
    operators: list[Any] = field(default_factory=list)
    buffers: list[Any] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    held: dict[tuple[str, Order], int] = field(default_factory=dict)
    eight: dict[tuple[str, Order], int] = field(default_factory=dict)
    """uint8 tensors as int8: the same bytes, 128 lower."""
    constants: dict[tuple[str, Order], int] = field(default_factory=dict)
    folded: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    """Constants that nodes of a body computed."""

    def orders(self, name: str) -> tuple[Order, ...]:
        """The orders in which a tensor is there; none for a constant."""
        known: tuple[Order, ...] = ("plain", "last")
        return tuple(o for o in known if (name, o) in self.held or (name, o) in self.eight)

    def is_constant(self, name: str) -> bool:
        """Whether it has values now."""
        return name in self.folded or (not self.orders(name) and self.graph.tensors[name].is_constant)

    def shape(self, name: str, order: Order = "plain") -> tuple[int, ...]:
        """A tensor's shape in an order."""
        plain = self.graph.tensors[name].shape
        return tuple(plain[i] for i in TO_LAST) if order == "last" and len(plain) == _IMAGE else plain

    def values(self, name: str) -> npt.NDArray[Any]:
        """The values of a constant.

        Raises:
            UnsupportedModelError: it is computed, or comes from outside.
        """
        if not self.is_constant(name):
            raise UnsupportedModelError(f"TFLite wants {name!r} to be a constant")
        return self.folded[name] if name in self.folded else constant_value(self.graph.tensors[name])

    def number(self, value: float, like: str) -> int:
        """A constant number in the element type of a tensor of the graph."""
        return self.constant(np.array(value, self.graph.tensors[like].dtype.numpy))

    def describe(self, index: int, quantization: Any) -> None:
        """Say what a tensor's integers stand for.

        Raises:
            UnsupportedModelError: they stand for other reals elsewhere.
        """
        known = self.tensors[index].quantization
        if known is not None and (list(known.scale), list(known.zeroPoint)) != (list(quantization.scale), list(quantization.zeroPoint)):
            raise UnsupportedModelError("TFLite's tensors have one scale and zero point, and these integers are read with two")
        self.tensors[index].quantization = quantization

    def optional(self, op: Op, position: int) -> str:
        """The name of an input that may be left out; empty where it is."""
        return op.inputs[position] if position < len(op.inputs) else ""

    def read(self, name: str, order: Order = "plain") -> int:
        """The index of a tensor in an order; it is transposed, or a constant is written, where it is not there yet."""
        if len(self.graph.tensors[name].shape) != _IMAGE:
            order = "plain"
        if (name, order) in self.held:
            return self.held[name, order]
        if self.is_constant(name):
            if (name, order) not in self.constants:
                values = self.values(name)
                self.constants[name, order] = self.constant(np.transpose(values, TO_LAST) if order == "last" else values)
            return self.constants[name, order]
        other: Order = "plain" if order == "last" else "last"
        if (name, order) in self.eight:
            self.held[name, order] = self._unsigned(name, order)
        elif (name, other) in self.held:
            self.held[name, order] = self.turned(self.held[name, other], order)
        else:
            self.eight[name, order] = self.turned(self.eight[name, other], order)
            self.held[name, order] = self._unsigned(name, order)
        return self.held[name, order]

    def _unsigned(self, name: str, order: Order) -> int:
        """An int8 tensor as the uint8 tensor that it stands for."""
        given = self.tensors[self.eight[name, order]]
        quantization = schema().QuantizationParametersT()
        quantization.scale, quantization.zeroPoint = given.quantization.scale, given.quantization.zeroPoint + 128
        out = self.tensor(given.shape, schema().TensorType.UINT8, f"{name}/{order}/u8", quantization)
        self.operator("QUANTIZE", [self.eight[name, order]], [out], "QuantizeOptions")
        return out

    def turned(self, source: int, order: Order) -> int:
        """A tensor in the other order."""
        perm, given = TO_LAST if order == "last" else TO_PLAIN, self.tensors[source]
        shape = [given.shape[i] for i in perm]
        out = self.tensor(shape, given.type, f"{given.name}/{order}", given.quantization)
        self.operator("TRANSPOSE", [source, self.constant(np.array(perm, np.int32))], [out], "TransposeOptions")
        return out

    def write(self, name: str, order: Order = "plain", quantization: Any = None, kind: str = "") -> int:
        """A new tensor for a result of the graph."""
        if len(self.graph.tensors[name].shape) != _IMAGE:
            order = "plain"
        found = kind or TYPES.get(str(self.graph.tensors[name].dtype.numpy), "")
        if not found:
            raise UnsupportedModelError(f"TFLite models have no tensors of {self.graph.tensors[name].dtype}, and {name!r} is one")
        self.held[name, order] = self.tensor(self.shape(name, order), getattr(schema().TensorType, found), f"{name}/{order}", quantization)
        return self.held[name, order]

    def temporary(self, shape: Sequence[int], kind: str = "FLOAT32", quantization: Any = None) -> int:
        """A tensor that is none of the graph's."""
        return self.tensor(shape, getattr(schema().TensorType, kind), f"temporary/{len(self.tensors)}", quantization)

    def tensor(self, shape: Sequence[int], kind: int, name: str, quantization: Any = None, buffer: int = 0) -> int:
        """Add a tensor; returns its index."""
        made = schema().TensorT()
        made.shape, made.type, made.name, made.buffer, made.quantization = list(shape), kind, name, buffer, quantization
        self.tensors.append(made)
        return len(self.tensors) - 1

    def constant(self, values: npt.NDArray[Any], quantization: Any = None) -> int:
        """Add a constant; returns its index.

        Raises:
            UnsupportedModelError: TFLite has no such element type.
        """
        if values.dtype.name not in TYPES:
            raise UnsupportedModelError(f"TFLite has no constants of {values.dtype}")
        held = schema().BufferT()
        held.data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self.buffers.append(held)
        kind = getattr(schema().TensorType, TYPES[values.dtype.name])
        return self.tensor(values.shape, kind, f"constant/{len(self.tensors)}", quantization, len(self.buffers))

    def operator(self, code: str, inputs: Sequence[int], outputs: Sequence[int], options: str = "", **fields: Any) -> None:
        """Add an operator; ``options`` is the class of its options."""
        made = schema().OperatorT()
        made.opcodeIndex = self.codes.setdefault(code, len(self.codes))
        made.inputs, made.outputs = list(inputs), list(outputs)
        if options:
            made.builtinOptionsType = getattr(schema().BuiltinOptions, options)
            made.builtinOptions = getattr(schema(), f"{options}T")()
            for name, value in fields.items():
                setattr(made.builtinOptions, name, value)
        self.operators.append(made)


#: Writes one node.
Lowering: TypeAlias = Callable[[TfliteBuild, Op], None]


def lowerings() -> Mapping[str, Lowering]:
    """Every node type that can be written."""
    from hetsched.lowering import tflite_arithmetic, tflite_movement, tflite_products, tflite_windows

    modules = (tflite_arithmetic, tflite_movement, tflite_products, tflite_windows)
    return {name: f for module in modules for name, f in module.LOWERINGS.items()}


def refusal(graph: Graph, op: Op) -> str | None:
    """Why an operator cannot be written, in words, by the types of its nodes; None where it can be."""
    known = lowerings()
    missing = next((n for n in original_nodes([op]) if n.type not in known or n.domain not in {"", "ai.onnx"}), None)
    return None if missing is None else _unwritten(missing.type)


def _unwritten(kind: str) -> str:
    """Why nodes of a type are not written: TFLite has no such operator, or has one with weights and states of another form."""
    if kind in {"LSTM", "GRU", "RNN"}:
        return f"recurrent layers ({kind}) are not written for TFLite, whose own keep weights and state otherwise: plan them on the CPU"
    return f"there is no TFLite operator for {kind}"


def tflite_model(graph: Graph, ops: Sequence[Op], ends: Ends) -> bytes:
    """The operators ``ops`` as a flatbuffer.

    Args:
        graph: their graph.
        ops: in execution order.
        ends: inputs and outputs of the model, in this order, typed and laid out as the graph's tensors are.

    Raises:
        UnsupportedModelError: TFLite has no such operator; the message names the node.
    """
    from hetsched.lowering.tflite_quantized import write_quantized

    build, known = TfliteBuild(graph), lowerings()
    inputs = [build.write(n, quantization=None) for n in ends.inputs]
    for op in ops:
        if write_quantized(build, op):
            continue
        for node in original_nodes([op]):
            if any(build.orders(o) or o in build.folded for o in node.outputs):  # a DequantizeLinear with several readers
                continue
            if node.type not in known:
                raise UnsupportedModelError(f"node {node.name!r} ({node.type}): {_unwritten(node.type)}")
            try:
                known[node.type](build, node)
            except UnsupportedModelError as e:
                raise UnsupportedModelError(f"node {node.name!r} ({node.type}): {e}") from e
    outputs = [build.read(n) for n in ends.outputs]
    return _packed(build, inputs, outputs, ends)


def _packed(build: TfliteBuild, inputs: list[int], outputs: list[int], ends: Ends) -> bytes:
    import flatbuffers

    s = schema()
    graph = s.SubGraphT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs, graph.name = build.tensors, build.operators, inputs, outputs, "main"
    signature = s.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    for names, indices, attribute in ((ends.inputs, inputs, "inputs"), (ends.outputs, outputs, "outputs")):
        maps = []
        for name, index in zip(names, indices, strict=True):
            entry = s.TensorMapT()
            entry.name, entry.tensorIndex = name, index
            maps.append(entry)
        setattr(signature, attribute, maps)
    model = s.ModelT()
    model.version, model.subgraphs, model.description, model.signatureDefs = 3, [graph], "hetsched", [signature]
    model.buffers = [s.BufferT(), *build.buffers]
    model.operatorCodes = [_code(name) for name in build.codes]
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), FILE_IDENTIFIER)
    return bytes(builder.Output())


def _code(name: str) -> Any:
    made = schema().OperatorCodeT()
    made.builtinCode = getattr(schema().BuiltinOperator, name)
    made.deprecatedBuiltinCode = min(made.builtinCode, 127)
    made.version = _VERSIONS.get(name, 1)
    return made


#: Versions of operators beyond the first, for the types and features that are written here.
_VERSIONS: Mapping[str, int] = {
    "CONV_2D": 5, "DEPTHWISE_CONV_2D": 6, "FULLY_CONNECTED": 5, "QUANTIZE": 2, "DEQUANTIZE": 2, "ADD": 2, "MUL": 2, "SUB": 2,
    "CONCATENATION": 2, "MAX_POOL_2D": 2, "AVERAGE_POOL_2D": 2, "LOGISTIC": 2, "TANH": 2, "SOFTMAX": 2, "TRANSPOSE": 2, "PAD": 2,
    "PADV2": 2, "STRIDED_SLICE": 2, "RESIZE_BILINEAR": 3, "RESIZE_NEAREST_NEIGHBOR": 3, "TRANSPOSE_CONV": 3, "BATCH_MATMUL": 2,
    "BROADCAST_TO": 2, "MEAN": 2, "GATHER": 2,
}  # fmt: skip


def is_image(graph: Graph, name: str) -> bool:
    """Whether a tensor has four axes."""
    return len(graph.tensors[name].shape) == _IMAGE
