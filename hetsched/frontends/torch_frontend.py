"""Reading exported programs of PyTorch (``.pt2``): parse the JSON, bind symbols, lower every node, drop what does nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hetsched.errors import UnsupportedModelError
from hetsched.frontends import torch_elementwise, torch_indexing, torch_matrix, torch_movement, torch_norms, torch_recurrent
from hetsched.frontends.torch_archive import Archive, looks_like_archive
from hetsched.frontends.torch_builder import Builder
from hetsched.frontends.torch_dims import bound_inputs
from hetsched.frontends.torch_mutation import finish_mutation, in_place_target, states_of
from hetsched.frontends.torch_program import Node, damaged, read_program
from hetsched.frontends.torch_weights import constants
from hetsched.graph import Graph, Role, Tensor

_TABLES = (torch_elementwise, torch_indexing, torch_matrix, torch_movement, torch_norms, torch_recurrent)
LOWERINGS: dict[str, Callable[[Builder], None]] = {name: f for table in _TABLES for name, f in table.LOWERINGS.items()}
#: Nodes that only check or describe.
_SILENT = frozenset(
    {"_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size", "sym_size",
     "sym_stride", "sym_numel", "sym_storage_offset", "_check_is_size", "_functional_assert_async", "_functional_sym_constrain_range"}
)  # fmt: skip


class TorchExportFrontend:
    """Reader of programs that ``torch.export.save`` wrote (PyTorch 2.3 and newer)."""

    name = "torch"

    def recognises(self, head: bytes) -> bool:
        """Whether ``head`` starts like a zip archive of PyTorch."""
        return looks_like_archive(head)

    def load(self, path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
        """Read the program at ``path``; see :func:`hetsched.frontends.load`."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        archive = Archive(path)
        program = read_program(archive.read_json(archive.program), archive.size)
        inputs, symbols = bound_inputs(program, dims, shapes, path.stem)
        builder = Builder(path, program, inputs, symbols)
        states = states_of(program)
        _sources(builder, archive, states)
        for node in program.nodes:
            _lower(builder, node)
        return _graph(builder, [t.name for t in inputs], states, path.stem, digest)


def _sources(b: Builder, archive: Archive, states: Mapping[str, None]) -> None:
    """Parameters and constants, and the buffers that the program writes as inputs that are states."""
    b.initial.update((n, n) for n in states if n in b.values)
    for tensor, source in constants(b.program, archive):
        if source.name in states:
            name = b.fresh(source.target) if source.target in b.tensors else source.target
            b.tensors[name] = Tensor(name, tensor.shape, tensor.dtype, Role.STATE)
            b.initial[source.name] = name
        else:
            name = tensor.name
            b.tensors.setdefault(name, tensor)
        b.values[source.name] = name


def _lower(b: Builder, node: Node) -> None:
    b.turn(node)
    kind = _kind(node.target)
    if kind in _SILENT or (node.outputs and all(o is None for o in node.outputs)):
        return
    lower = LOWERINGS.get(kind)
    target = in_place_target(kind, node, LOWERINGS)
    if lower is None and target:
        lower = LOWERINGS[target]
    if lower is None:
        raise UnsupportedModelError(f"node {node.name!r} uses the PyTorch operator {node.target[:80]}, which is not supported")
    with b.fitting("arguments"):
        lower(b)
        b.check()
    finish_mutation(b, kind, bool(target))


def _kind(target: str) -> str:
    """The operator without its overload, and of PyTorch's own also without ``aten``."""
    parts = target.split(".")
    return parts[1] if parts[0] == "aten" and len(parts) > 1 else ".".join(parts[:2])


def _graph(b: Builder, inputs: Sequence[str], states: Mapping[str, None], name: str, digest: str) -> Graph:
    """The finished graph; a mutated buffer is an input and an output that are states."""
    outputs: dict[str, None] = {}
    for value, kind, _ in b.program.outputs:
        if kind != "user_output" or not value:
            continue
        b.begin(value, "output")
        outputs[b.output(b.resolve(value), value, outputs)] = None
    before, after = _states(b, states, outputs)
    if not outputs and not after:
        raise damaged("it has no outputs")
    added = [n for n in before if n not in inputs]
    return b.finished(name, [*inputs, *added], [*outputs, *after], before, after, digest, b.symbols)


def _states(b: Builder, states: Mapping[str, None], outputs: Mapping[str, None]) -> tuple[list[str], dict[str, str]]:
    """The states before, and which of them those after that differ continue."""
    before: list[str] = []
    after: dict[str, str] = {}
    updates = {target: value for value, kind, target in b.program.outputs if kind.endswith("_mutation")}
    for source in b.program.sources:
        if source.name not in states:
            continue
        held = b.initial[source.name]
        b.begin(source.name, source.kind)
        new = b.resolve(updates.get(source.target, source.name))
        before.append(held)
        if new != held:
            after[b.output(new, f"{held}/next", [*outputs, *after])] = held
    return before, after
