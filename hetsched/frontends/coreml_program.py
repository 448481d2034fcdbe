"""ML programs: the walk over their operations, inputs, states and outputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from hetsched.errors import UnsupportedModelError
from hetsched.frontends import coreml_compressed, coreml_elementwise, coreml_matrix, coreml_movement, coreml_resize
from hetsched.frontends.coreml_builder import MilBuilder
from hetsched.frontends.coreml_features import bind, read_feature, with_open_sizes
from hetsched.frontends.coreml_mil import Operation, Program, Value, read_program
from hetsched.frontends.coreml_package import Files
from hetsched.frontends.coreml_wire import Message, damaged
from hetsched.graph import Graph, Role, Tensor

_TABLES = (coreml_elementwise, coreml_matrix, coreml_movement, coreml_resize, coreml_compressed)
LOWERINGS: dict[str, Callable[[MilBuilder], None]] = {name: f for table in _TABLES for name, f in table.LOWERINGS.items()}


def graph(model: Message, files: Files, digest: str, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
    """The graph of an ML program.

    Raises:
        ModelError: the program is damaged.
        UnsupportedModelError: it uses an operation that is not handled; the message names it.
    """
    description = model.message("description")
    program = read_program(model.message("mlProgram"), description.text("defaultFunctionName") or "main")
    inputs, states, bound = _inputs(description, program, files, dims, shapes)
    names = [n for o in program.operations for n, _ in o.outputs]
    b = MilBuilder(files.model, [*inputs, *states], names)
    b.source = files.source
    b.states = dict.fromkeys(t.name for t in states)
    for operation in program.operations:
        _lower(b, operation)
    outputs: dict[str, None] = {}
    for name in program.outputs:
        b.begin(name, "output")
        if name not in b.values and name not in b.constants:
            raise damaged(f"its output {name[:80]!r} is never computed")
        held = b.values.get(name) or b.add(name, b.constants[name])
        outputs[b.output(held, name, outputs)] = None
    after: dict[str, str] = {}
    for name, value in b.updated.items():
        after[b.output(value, f"{name}/next", [*outputs, *after])] = name
    before = [t.name for t in states]
    return b.finished(files.name, [*(t.name for t in inputs), *before], [*outputs, *after], before, after, _with_weights(digest, b), bound)


def _inputs(
    description: Message, program: Program, files: Files, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> tuple[list[Tensor], list[Tensor], dict[str, int]]:
    """The function's inputs and states; open sizes are bound as the description allows."""
    described = {m.text("name"): m for m in description.messages("input")}
    features, states = [], []
    for name, kind in program.inputs:
        if kind.is_state:
            if None in kind.shape:
                raise UnsupportedModelError(f"the state {name!r} has the shape {list(kind.shape)}, which is not fixed")
            states.append(Tensor(name, tuple(d or 0 for d in kind.shape), kind.dtype, Role.STATE))
            continue
        feature = read_feature(described[name]) if name in described and None in kind.shape else None
        features.append(with_open_sizes(name, kind.shape, feature, kind.dtype))
    tensors, bound = bind(features, dims, shapes, files.name)
    return tensors, states, bound


def _lower(b: MilBuilder, operation: Operation) -> None:
    b.turn(operation)
    if operation.kind == "const":
        value = operation.args.get("val", ("",))[0]
        if not isinstance(value, Value) or not operation.outputs:
            raise b.bad("it has no value")
        b.constants[operation.outputs[0][0]] = value
        return
    lower = LOWERINGS.get(operation.kind)
    if lower is None or operation.has_blocks:
        raise UnsupportedModelError(f"node {operation.name!r} uses the Core ML operation {operation.kind[:80]}, which is not supported")
    with b.fitting("arguments"):
        lower(b)
        b.check()


def _with_weights(digest: str, b: MilBuilder) -> str:
    """The hash of the model, and names and sizes of its files of weights (not their bytes)."""
    places = [v.blob[0] for v in b.constants.values() if v.blob is not None]
    if not places:
        return digest
    sizes = [(n, b.model.data(n.removeprefix("@model_path/"), n)[1]) for n in sorted(set(places))]
    return hashlib.sha256(repr((digest, sizes)).encode()).hexdigest()
