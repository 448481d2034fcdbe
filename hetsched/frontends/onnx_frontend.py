"""Reading ONNX files: parse without the weights, bind dims, walk once, drop what does nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.cleanup import without_dead, without_no_ops
from hetsched.frontends.onnx_contrib import CONTRIB_DOMAIN
from hetsched.frontends.onnx_control import refuse_sequences
from hetsched.frontends.onnx_declared import DeclaredShapes
from hetsched.frontends.onnx_dims import bind_inputs, bind_scalars
from hetsched.frontends.onnx_inlining import without_functions
from hetsched.frontends.onnx_nodes import unique_names
from hetsched.frontends.onnx_opsets import NEWEST, OLDEST
from hetsched.frontends.onnx_sparse import sparse_constant
from hetsched.frontends.onnx_states import phase_dims, state_pairs, with_state_roles
from hetsched.frontends.onnx_tensors import ModelFile, constant, from_array
from hetsched.frontends.onnx_trace import Trace
from hetsched.frontends.onnx_wire import SELF, light_bytes, looks_like_model
from hetsched.graph import Graph, Op, Role, Tensor

if TYPE_CHECKING:
    import onnx

#: Names of nodes, tensors and dims, and paths of external data: a body repeats the names around it.
MAX_NAME_LENGTH = 4096


class OnnxFrontend:
    """Reader of ONNX models, opset 7 to 25."""

    name = "onnx"

    def recognises(self, head: bytes) -> bool:
        """Whether ``head`` starts like an ONNX model."""
        return looks_like_model(head)

    def load(self, path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
        """Read the model at ``path``; see :func:`hetsched.frontends.load`."""
        proto, digest = parse(path)
        opset = default_opset(proto, path)
        graph = proto.graph
        file = ModelFile(path)
        constants = _constants(graph, file)
        names = {t.name for t in constants}
        _refuse(graph, names)
        scalars, dims = bind_scalars([i for i in graph.input if i.name not in names], dims)
        infos = [i for i in graph.input if i.name not in names and i.name not in scalars]
        inputs, bound = bind_inputs(infos, dims, shapes, path.stem)
        trace = Trace(file, opset, [*inputs, *constants, *(from_array(n, v) for n, v in scalars.items())])
        trace.declared = DeclaredShapes(((v.name, v) for v in (*graph.output, *graph.value_info)), bound)
        trace.run(graph.node)
        bound |= {n: int(v.reshape(-1)[0]) for n, v in scalars.items()}
        return _graph(path, digest, trace, [t.name for t in inputs], [o.name for o in graph.output], bound)

    def phase(self, path: Path, tokens: int, past: int) -> dict[str, int]:
        """The free dims that make ``tokens`` new tokens after ``past`` cached ones; see :func:`hetsched.frontends.phase_dims`."""
        graph = parse(path)[0].graph
        constants = {t.name for t in graph.initializer}
        return phase_dims([i for i in graph.input if i.name not in constants], tokens, past, path.stem)


def parse(path: Path) -> tuple[onnx.ModelProto, str]:
    """The model without its big tensors and with its local functions inlined, and a hash of what it is made of.

    The hash covers the bytes of the model file, and names and sizes of external data files (not their bytes).

    Raises:
        ModelError: the file is damaged or has no graph.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    light, digest = light_bytes(path)
    try:
        proto = onnx.ModelProto.FromString(light)
        _check_texts(proto, path)
        if proto.functions:
            proto = without_functions(proto)
    except (DecodeError, RuntimeError) as error:
        raise ModelError(f"cannot read the model {str(path)!r}: the file is damaged; fetch or export it again") from error
    if not proto.graph.node and not proto.graph.output:
        raise ModelError(f"the model {str(path)!r} has no graph: the file is truncated or not a model")
    return proto, _with_external(digest, proto.graph, path)


def _check_texts(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse names that are no text (damaged ones come as bytes from protobuf), and those that are too long."""
    functions = (text for f in proto.functions for text in (f.name, f.domain, *f.input, *f.output, *f.attribute, *_node_texts(f.node)))
    for text in chain(functions, _texts(proto.graph)):
        if not isinstance(text, str):
            raise ModelError(
                f"cannot read the model {str(path)!r}: a name in it is not text, so the file is damaged; fetch or export it again"
            )
        if len(text) > MAX_NAME_LENGTH:
            raise ModelError(
                f"the model {str(path)!r} has the name {text!r} of {len(text)} characters, and at most {MAX_NAME_LENGTH} are read"
            )


def _node_texts(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Every name in nodes and their subgraphs."""
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for a in node.attribute:
            yield a.name
            if a.HasField("g"):
                yield from _texts(a.g)


def _texts(graph: onnx.GraphProto) -> Iterator[str]:
    """Every name in a graph."""
    yield from _node_texts(graph.node)
    for t in (*graph.initializer, *(part for s in graph.sparse_initializer for part in (s.values, s.indices))):
        yield t.name
        yield from (text for e in t.external_data for text in (e.key, e.value))
    for info in (*graph.input, *graph.output):
        yield info.name
        if info.type.HasField("tensor_type"):
            yield from (d.dim_param for d in info.type.tensor_type.shape.dim)


def default_opset(proto: onnx.ModelProto, path: Path) -> int:
    """The version of ONNX's own operators that the model uses.

    Raises:
        UnsupportedModelError: the version is too old or too new.
    """
    versions = [o.version for o in proto.opset_import if o.domain in {"", "ai.onnx"}]
    if not versions:
        versions = [NEWEST] if all(n.domain == CONTRIB_DOMAIN for n in proto.graph.node) else [1]
    if not OLDEST <= versions[0] <= NEWEST:
        raise UnsupportedModelError(f"the model {str(path)!r} uses opset {versions[0]}; opsets {OLDEST} to {NEWEST} are supported")
    return int(versions[0])


def _refuse(graph: onnx.GraphProto, constants: set[str]) -> None:
    """Refuse what no binding of dims can help."""
    inputs = [i.name for i in graph.input if i.name not in constants]
    if len(set(inputs)) < len(inputs):
        raise ModelError(f"the graph {graph.name!r} has two inputs of one name: the model file is damaged")
    refuse_sequences(graph.node, unique_names(graph.node))


def _with_external(digest: str, graph: onnx.GraphProto, path: Path) -> str:
    files = sorted({e.value for t in graph.initializer for e in t.external_data if e.key == "location" and e.value != SELF})
    if not files:
        return digest
    import hashlib

    sizes = [(f, (path.parent / f).stat().st_size if (path.parent / f).is_file() else -1) for f in files]
    return hashlib.sha256(repr((digest, sizes)).encode()).hexdigest()


def _constants(graph: onnx.GraphProto, file: ModelFile) -> list[Tensor]:
    out: dict[str, Tensor] = {}
    for proto in graph.initializer:
        if proto.name in out:
            raise ModelError(f"the model {str(file.path)!r} defines the constant {proto.name!r} twice: the file is damaged")
        out[proto.name] = constant(proto, proto.name, file)
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        if name in out:
            raise ModelError(f"the model {str(file.path)!r} defines the constant {name!r} twice: the file is damaged")
        out[name] = sparse_constant(sparse, name, file)
    return list(out.values())


def _graph(path: Path, digest: str, trace: Trace, inputs: list[str], outputs: list[str], dims: Mapping[str, int]) -> Graph:
    """The finished graph: what the outputs need, and no more."""
    for name in outputs:
        if name not in trace.tensors:
            raise ModelError(f"the output {name!r} of the model {path.stem!r} is written by no node")
    tensors = trace.tensors
    ops: Sequence[Op] = without_dead(trace.ops, outputs)
    ops = without_dead(without_no_ops(ops, tensors, inputs, outputs), outputs)
    used = dict.fromkeys([*inputs, *outputs, *_named_by(ops)])
    written = frozenset(outputs) - frozenset(inputs)
    kept = {n: _with_role(tensors[n], written) for n in tensors if n in used}
    states = state_pairs(kept, ops, inputs, outputs)
    kept = with_state_roles(kept, states)
    return Graph(path.stem, kept, tuple(_named(ops)), tuple(inputs), tuple(outputs), path, digest, dict(dims), states)


def _named_by(ops: Sequence[Op]) -> Iterator[str]:
    """Every tensor that operators or their bodies name."""
    for op in ops:
        yield from (n for n in (*op.inputs, *op.outputs) if n)
        yield from _named_by(op.body)


def _with_role(tensor: Tensor, written: frozenset[str]) -> Tensor:
    return tensor if tensor.is_constant or tensor.name not in written else replace(tensor, role=Role.OUTPUT)


def _named(ops: Sequence[Op]) -> list[Op]:
    """The operators with unique names."""
    taken: dict[str, int] = {}
    out = []
    for op in ops:
        name = op.name
        while name in taken:
            taken[op.name] += 1
            name = f"{op.name}_{taken[op.name]}"
        taken[name] = 1
        out.append(op if name == op.name else replace(op, name=name))
    return out
