"""Shapes and types of one operator's outputs, by ONNX's own inference, one node at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.errors import ModelError, ShapeError, UnsupportedModelError
from hetsched.frontends.onnx_nodes import to_node
from hetsched.frontends.onnx_opsets import NEWEST, SINCE
from hetsched.frontends.onnx_windows import refuse_wide_window
from hetsched.graph import DType, Op, Tensor
from hetsched.reference.element_types import NUMBER_OF, element_type

if TYPE_CHECKING:
    import onnx

#: Constants up to this many elements are shown to the inference: it reads shapes, axes and sizes.
_VALUE_ELEMENTS = 1024


def infer(op: Op, tensors: Mapping[str, Tensor], opset: int) -> list[Tensor]:
    """The tensors that ``op`` writes (omitted outputs are left out).

    Raises:
        UnsupportedModelError: the operator is unknown, or a shape depends on data.
        ModelError: the operator's inputs do not fit it.
    """
    plain = _plain(op, tensors)
    if plain is not None:
        return [plain]
    opset = _opset(op, tensors, opset)
    schema = _schema(op, opset)
    if not schema.min_input <= len(op.inputs) <= schema.max_input or len(op.outputs) > schema.max_output:
        raise ModelError(
            f"node {op.name!r} ({op.type}) has {len(op.inputs)} inputs and {len(op.outputs)} outputs, which do not fit {op.type}"
        )
    for i, name in enumerate(op.inputs[: schema.min_input]):
        if not name:
            raise ModelError(f"node {op.name!r} ({op.type}) leaves out its input {i}, which {op.type} needs")
    refuse_wide_window(op, tensors)
    return [_tensor(op, name, types, tensors) for types in [_infer(schema, op, tensors, opset)] for name in op.outputs if name]


def _plain(op: Op, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The output of the commonest operators, whose inference needs no help: a copy of the first, or a broadcast of two."""
    if op.domain or len(op.outputs) != 1 or not op.outputs[0] or not all(op.inputs):
        return None
    given = [tensors[i] for i in op.inputs]
    if op.type in _COPIES and len(given) == 1 and given[0].dtype.is_float:
        return Tensor(op.outputs[0], given[0].shape, given[0].dtype)
    if op.type in _BROADCASTS and len(given) == 2 and given[0].dtype is given[1].dtype and given[0].dtype in _NUMBERS:
        try:
            return Tensor(op.outputs[0], np.broadcast_shapes(given[0].shape, given[1].shape), given[0].dtype)
        except ValueError as error:
            shapes = f"{list(given[0].shape)} and {list(given[1].shape)}"
            raise ShapeError(f"node {op.name!r} ({op.type}) has inputs of shapes {shapes}, which do not broadcast") from error
    return None


def _opset(op: Op, tensors: Mapping[str, Tensor], opset: int) -> int:
    """The opset that knows the operator, its attributes and its element types; the forms are those of the model's opset."""
    if op.attr_int("block_size", 0) or any(tensors[i].is_packed for i in op.inputs if i):
        return NEWEST
    return max(opset, SINCE.get(op.type, 0))


def _schema(op: Op, opset: int) -> Any:
    from onnx import defs

    try:
        return defs.get_schema(op.type, opset, op.domain)
    except defs.SchemaError as error:
        of = f"domain {op.domain!r}" if op.domain else f"opset {opset}"
        raise UnsupportedModelError(f"node {op.name!r} uses the operator {op.type!r} of {of}, which is not supported") from error


def _infer(schema: Any, op: Op, tensors: Mapping[str, Tensor], opset: int) -> Mapping[str, onnx.TypeProto]:
    from onnx import checker, helper, numpy_helper, shape_inference

    types, values = {}, {}
    for name in dict.fromkeys(i for i in op.inputs if i):
        t = tensors[name]
        types[name] = helper.make_tensor_type_proto(NUMBER_OF[t.dtype], t.shape)
        if t.data is not None and t.data.array is not None and t.elements <= _VALUE_ELEMENTS and t.dtype in _SHOWN:
            values[name] = numpy_helper.from_array(t.numpy(), name)
    node = to_node(op)
    try:
        return shape_inference.infer_node_outputs(schema, node, types, values, None, [helper.make_opsetid("", opset)])
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError, TypeError) as error:
        said = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        shapes = ", ".join(str(list(tensors[i].shape)) for i in op.inputs if i)
        raise ShapeError(f"node {op.name!r} ({op.type}) does not accept inputs of shapes {shapes}: {said}") from error


def _tensor(op: Op, name: str, types: Mapping[str, onnx.TypeProto], tensors: Mapping[str, Tensor]) -> Tensor:
    proto = types.get(name)
    kind = None if proto is None else proto.WhichOneof("value")
    if proto is None or kind is None:
        raise UnsupportedModelError(f"the type of {name!r}, written by node {op.name!r} ({op.type}), cannot be inferred")
    if kind != "tensor_type":
        raise UnsupportedModelError(
            f"node {op.name!r} ({op.type}) writes a {kind.removesuffix('_type')}, not a tensor: it is not supported"
        )
    tensor = proto.tensor_type
    if not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in tensor.shape.dim):
        raise UnsupportedModelError(
            f"the shape of {name!r}, written by node {op.name!r} ({op.type}), depends on the data: such models cannot be planned ahead"
        )
    if any(d.dim_value < 0 for d in tensor.shape.dim):
        shapes = ", ".join(str(list(tensors[i].shape)) for i in op.inputs if i)
        raise ShapeError(f"node {op.name!r} ({op.type}) does not accept inputs of shapes {shapes}: they are too small for it")
    return Tensor(name, tuple(d.dim_value for d in tensor.shape.dim), element_type(tensor.elem_type, f"{name!r}"))


_COPIES = frozenset({"Relu", "Sigmoid", "Tanh", "Erf", "Sqrt", "Exp", "HardSwish", "HardSigmoid", "LeakyRelu", "Reciprocal"})
_BROADCASTS = frozenset({"Add", "Sub", "Mul", "Div"})
_NUMBERS = frozenset({DType.F32, DType.F16, DType.I64, DType.I32})
_SHOWN = frozenset(t for t in NUMBER_OF if t.value in {"i64", "i32", "f32", "f64", "bool", "u8", "i8"})
