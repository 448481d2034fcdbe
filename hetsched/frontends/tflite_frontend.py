"""Reading TFLite files: parse the structure, bind dims, lower every operator, drop what does nothing."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends import (
    tflite_activations,
    tflite_arithmetic,
    tflite_indexing,
    tflite_matrix,
    tflite_movement,
    tflite_recurrent,
    tflite_reductions,
)
from hetsched.frontends.cleanup import without_dead, without_no_ops
from hetsched.frontends.onnx_dims import bind_inputs
from hetsched.frontends.tflite_builder import Builder, Value
from hetsched.frontends.tflite_constants import WeightFile
from hetsched.frontends.tflite_flatbuffer import damaged
from hetsched.frontends.tflite_model import Model, Operator, Stored, Subgraph, parse
from hetsched.frontends.tflite_opaque import opaque
from hetsched.frontends.tflite_recurrent import variable_name
from hetsched.graph import Graph, Op, Role, Tensor

_TABLES = (tflite_activations, tflite_arithmetic, tflite_indexing, tflite_matrix, tflite_movement, tflite_recurrent, tflite_reductions)
LOWERINGS: dict[str, Callable[[Builder], None]] = {name: f for table in _TABLES for name, f in table.LOWERINGS.items()}


class TfliteFrontend:
    """Reader of TFLite models (schema version 3)."""

    name = "tflite"

    def recognises(self, head: bytes) -> bool:
        """Whether ``head`` has TFLite's identifier."""
        return head[4:8] == b"TFL3"

    def load(self, path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
        """Read the model at ``path``; see :func:`hetsched.frontends.load`."""
        builder, digest, bound = lowered(path, dims, shapes)
        return _graph(path, digest, builder, bound)


def lowered(path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> tuple[Builder, str, dict[str, int]]:
    """The operators of the file's subgraph, its hash and its bound dims; ``Builder.values`` says what became of its tensors.

    Raises:
        ModelError: the file is damaged.
        UnsupportedModelError: it uses something that is not handled; the message names the node.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with memoryview(mapped) as data:
        model = parse(data)
    graph = model.subgraphs[model.main]
    inputs, bound = _inputs(graph, dims, shapes, path.stem)
    builder = Builder(WeightFile(path, mapped), graph, inputs)
    for operator in graph.operators:
        _lower(builder, operator, model)
    return builder, digest, bound


def _inputs(
    graph: Subgraph, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]], model: str
) -> tuple[list[Tensor], dict[str, int]]:
    """The inputs, with their free dims bound as those of an ONNX model are."""
    from onnx import helper

    from hetsched.reference.element_types import NUMBER_OF

    stored = [graph.tensors[i] for i in dict.fromkeys(graph.inputs)]
    constant = next((s for s in stored if s.data is not None), None)
    if constant is not None:
        raise damaged(f"its input {constant.name!r} is a constant")
    infos = [
        helper.make_tensor_value_info(s.name, NUMBER_OF[s.element_type()], [None if d < 0 else d for d in s.signature]) for s in stored
    ]
    return bind_inputs(infos, dims, shapes, model)


def _lower(b: Builder, operator: Operator, model: Model) -> None:
    b.begin(operator)
    if operator.is_custom:
        opaque(b, "a custom operator")
        return
    if operator.type == "CALL_ONCE":
        _initialise(b, model)
        return
    lower = LOWERINGS.get(operator.type)
    if lower is None:
        raise UnsupportedModelError(f"node {b.node!r} uses the TFLite operator {operator.type}, which is not supported")
    try:
        lower(b)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise b.bad(f"its inputs and options do not fit it ({error})") from error


def _initialise(b: Builder, model: Model) -> None:
    """CALL_ONCE may only give variables their first values, which must be constants."""
    index = b.option("subgraph")
    if not 0 <= index < len(model.subgraphs):
        raise b.bad(f"it calls subgraph {index}, and there are {len(model.subgraphs)}")
    graph, handles = model.subgraphs[index], dict[int, str]()
    for o in graph.operators:
        if o.type == "VAR_HANDLE" and o.outputs and o.outputs[0] >= 0:
            handles[o.outputs[0]] = variable_name(o, graph.tensors[o.outputs[0]].name)
        elif o.type == "ASSIGN_VARIABLE" and len(o.inputs) == 2 and min(o.inputs) >= 0:
            value = graph.tensors[o.inputs[1]]
            if value.data is None:
                raise b.unsupported(f"it sets a variable to {value.name!r}, which is no constant")
            b.first[handles.get(o.inputs[0], "")] = value
        else:
            raise b.unsupported(f"it initialises by running {o.type}, and only variables with constant first values are supported")


def _first_values(b: Builder) -> dict[str, Tensor]:
    """State -> the constant that it starts with, stored as the state is."""
    out = {}
    for name, stored in b.first.items():
        state = b.states.get(name)
        if state is None:
            continue
        kept = b.tensors[state.name]
        constant = b.weights.constant(stored)
        if len(constant.shape) != len(state.order) or tuple(constant.shape[k] for k in state.order) != kept.shape:
            raise ModelError(
                f"the variable {state.name!r} of shape {list(kept.shape)} starts with {stored.name!r} of shape {list(constant.shape)}: "
                "the model file is damaged"
            )
        value = b.weights.permuted(constant, state.order, f"{state.name}/first")
        if value.dtype is not kept.dtype:
            raise ModelError(
                f"the variable {state.name!r} is {kept.dtype.value} and starts with {value.dtype.value}: the model file is damaged"
            )
        out[state.name] = replace(value, quantization=kept.quantization)
    return out


def _output(b: Builder, index: int) -> str:
    """The name of an output, which has the file's name and order of axes."""
    stored = b.graph.tensors[index]
    b.op, b.node = Operator(-1, "output", False, (index,), ()), stored.name
    value = b.value_of(stored)
    name = b.raw(value)
    return name if name == stored.name else _renamed(b, name, stored)


def _renamed(b: Builder, name: str, stored: Stored) -> str:
    """The tensor ``name`` under the name of ``stored``."""
    out = b.fresh(stored.name, own=True)
    b.copy(name, out)
    return out


def _states(b: Builder) -> tuple[list[str], dict[str, str]]:
    """Inputs for the variables that the model reads; output -> input of those that it writes."""
    after: dict[str, str] = {}
    for name, before in b.states.items():
        value = b.written.get(name)
        if value is not None:
            b.node = before.name
            out = b.fresh(f"{before.name}/next")
            b.copy(_fitting(b, value, before), out)
            b.tensors[out] = replace(b.tensors[out], role=Role.STATE)
            after[out] = before.name
    return [v.name for v in b.states.values()], after


def _fitting(b: Builder, value: Value, before: Value) -> str:
    """The new value of a variable, stored as the old one is."""
    name, state = b.raw(value, before.order), b.tensors[before.name]
    new = b.tensors[name]
    if new.quantization != state.quantization:
        return b.quantized_like(b.dequantized(name), state.name, "requantized")
    if new.shape != state.shape or new.dtype is not state.dtype:
        raise ModelError(
            f"the variable {state.name!r} is {state.dtype.value}{list(state.shape)} and is given {new.dtype.value}{list(new.shape)}: "
            "the model file is damaged"
        )
    return name


def _graph(path: Path, digest: str, b: Builder, dims: Mapping[str, int]) -> Graph:
    """The finished graph: what the outputs need, and no more."""
    inputs = [b.graph.tensors[i].name for i in dict.fromkeys(b.graph.inputs)]
    outputs = [_output(b, i) for i in dict.fromkeys(b.graph.outputs)]
    before, states = _states(b)
    inputs, outputs = [*inputs, *before], [*outputs, *states]
    ops: Sequence[Op] = without_dead(b.ops, outputs)
    ops = without_dead(without_no_ops(ops, b.tensors, inputs, outputs), outputs)
    meanings = [q for t in b.tensors.values() if (q := t.quantization) is not None]
    scales = [n for q in meanings for n in (q.scale, q.zero_point) if n]
    used = dict.fromkeys([*inputs, *outputs, *(n for op in ops for n in (*op.inputs, *op.outputs) if n), *scales])
    kept = {n: _with_role(t, inputs, outputs) for n, t in b.tensors.items() if n in used}
    return Graph(path.stem, kept, tuple(ops), tuple(inputs), tuple(outputs), path, digest, dict(dims), states, _first_values(b))


def _with_role(tensor: Tensor, inputs: Sequence[str], outputs: Sequence[str]) -> Tensor:
    if tensor.is_constant or tensor.role is Role.STATE or tensor.name in inputs or tensor.name not in outputs:
        return tensor
    return replace(tensor, role=Role.OUTPUT)
