"""16-bit floats as float32, for a target that computes in float32.

Weights stay in their files and are widened when they are read. Inputs and outputs of the graph keep their type, with a Cast at
the border; bfloat16 ones, which numpy cannot hold, become float32. Control flow, which ONNX Runtime runs from its own
subgraphs, keeps its types too, behind casts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from hetsched.graph import AttrValue, DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.passes.rewriting import reading
from hetsched.reference.element_types import NUMBER_OF

_NARROW = frozenset({DType.F16, DType.BF16})
_NUMBERS = frozenset(NUMBER_OF[t] for t in _NARROW)
#: Composites of decoders, which read and write narrow states as they are.
_CONVERTING = frozenset({"GroupQueryAttention", "CausalConv", "SelectiveScan"})
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")


@dataclass(frozen=True)
class WidenFloats:
    """float16 and bfloat16 tensors → float32. Weights in blocks and states of operators without a body stay as they are."""

    name: ClassVar[str] = "widen-floats"
    requires: ClassVar[tuple[str, ...]] = ()
    ensures: ClassVar[tuple[str, ...]] = ("floats-wide",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with 32-bit floats."""
        kept = _kept(graph)
        if not any(t.dtype in _NARROW and n not in kept for n, t in graph.tensors.items()):
            return graph
        return _Widening(graph, kept).graph()


def _kept(graph: Graph) -> frozenset[str]:
    """Tensors that stay narrow: states that their operators convert by themselves."""
    own = [op for op in graph.ops if not op.body and op.type in _CONVERTING]
    names = {n for op in own for n in (*op.inputs, *op.outputs) if n}
    return frozenset(n for n in names if graph.tensors[n].role is Role.STATE and not graph.tensors[n].is_constant)


@dataclass
class _Widening:
    source: Graph
    kept: frozenset[str]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    new: dict[str, str] = field(default_factory=dict)

    def graph(self) -> Graph:
        """The rewritten graph."""
        g = self.source
        self.tensors = dict(g.tensors)
        opaque = dict.fromkeys(n for op in g.ops if op.is_control_flow for n in _names([op]))
        for name in (n for n, t in g.tensors.items() if self._is_narrow(t)):
            if name in g.inputs:
                self._border(name)
            elif name not in opaque:
                self.tensors[name] = _wide(g.tensors[name])
            elif g.tensors[name].is_constant:
                self.new[name] = self._copy(name, _wide(g.tensors[name]))
            elif name in g.producer:
                self.new[name] = self._copy(name, replace(g.tensors[name], dtype=DType.F32, role=Role.ACTIVATION))
        self._outputs()
        for op in g.ops:
            self._add(op)
        ops = _without_idle_casts(self._ends(), self.tensors, g.outputs)
        return g.replace(ops=tuple(ops), tensors=self.tensors)

    def _is_narrow(self, tensor: Tensor) -> bool:
        blocks = tensor.quantization is not None and tensor.quantization.block_bytes > 0
        return tensor.dtype in _NARROW and tensor.name not in self.kept and not blocks

    def _copy(self, name: str, tensor: Tensor) -> str:
        called = f"{name}/f32"
        while called in self.tensors:
            called += "_"
        self.tensors[called] = replace(tensor, name=called)
        return called

    def _border(self, name: str) -> None:
        """An input that stays float16 is read through a Cast."""
        tensor = self.source.tensors[name]
        if tensor.dtype is DType.BF16:
            self.tensors[name] = replace(tensor, dtype=DType.F32)
            return
        self.new[name] = self._copy(name, replace(tensor, dtype=DType.F32, role=Role.ACTIVATION))
        self.ops.append(_cast(name, self.new[name], DType.F32))

    def _outputs(self) -> None:
        """Outputs that stay float16 are written through a Cast."""
        g = self.source
        for name in g.outputs:
            tensor = g.tensors[name]
            if self._is_narrow(tensor) and tensor.dtype is DType.F16 and name in g.producer and name not in self.new:
                self.new[name] = self._copy(name, replace(tensor, dtype=DType.F32, role=Role.ACTIVATION))
                self.tensors[name] = tensor

    def _add(self, op: Op) -> None:
        if not op.is_control_flow:
            self.ops.append(_renamed(op, self.new))
            return
        for name in (n for n in op.inputs if n in self.new and n in self.source.producer and n not in self.source.outputs):
            self.ops.append(_cast(self.new[name], name, self.tensors[name].dtype))
        self.ops.append(op)
        for name in (n for n in op.outputs if n in self.new):
            self.ops.append(_cast(name, self.new[name], DType.F32))

    def _ends(self) -> list[Op]:
        """The operators, with the casts that write the outputs."""
        written = {o for op in self.ops for o in op.outputs}
        casts = [_cast(self.new[n], n, self.tensors[n].dtype) for n in self.source.outputs if n in self.new and n not in written]
        return [*_unique(self.ops), *casts]


def _unique(ops: Iterable[Op]) -> list[Op]:
    """Each cast once."""
    return list({op.outputs: op for op in ops}.values())


def _names(ops: Iterable[Op]) -> Iterable[str]:
    for op in ops:
        yield from (n for n in (*op.inputs, *op.outputs) if n)
        yield from _names(op.body)


def _wide(tensor: Tensor) -> Tensor:
    """The tensor in float32; a constant in a file is converted each time it is read."""
    data = tensor.data
    if data is None or not data.is_present:
        return replace(tensor, dtype=DType.F32)
    if data.array is not None:
        return replace(tensor, dtype=DType.F32, data=WeightRef(array=np.asarray(tensor.values(), np.float32)))
    return replace(tensor, dtype=DType.F32, data=WeightRef(compute=lambda: np.asarray(tensor.values(), np.float32)))


def _cast(source: str, target: str, to: DType) -> Op:
    return Op(f"{target}/cast", "Cast", (source,), (target,), {"to": NUMBER_OF[to]})


def _renamed(op: Op, new: Mapping[str, str]) -> Op:
    """``op`` with wide tensors for narrow ones, and float32 where it names a 16-bit type."""
    return replace(
        op,
        inputs=tuple(new.get(n, n) for n in op.inputs),
        outputs=tuple(new.get(n, n) for n in op.outputs),
        attrs={k: _attribute(k, v) for k, v in op.attrs.items()},
        body=tuple(_renamed(part, new) for part in op.body),
    )


def _attribute(name: str, value: AttrValue) -> AttrValue:
    if isinstance(value, np.ndarray):
        return value.astype(np.float32) if value.dtype == np.float16 else value
    return NUMBER_OF[DType.F32] if name in _TYPE_ATTRIBUTES and value in _NUMBERS else value


def _without_idle_casts(ops: Sequence[Op], tensors: Mapping[str, Tensor], outputs: Sequence[str]) -> list[Op]:
    """Drop each Cast that no longer changes the type, in bodies too."""
    new: dict[str, str] = {}
    kept: list[Op] = []
    for op in ops:
        op = reading(op, new)
        if op.is_composite:
            op = replace(op, body=tuple(_without_idle_casts(op.body, tensors, op.outputs)))
        if _is_idle(op, tensors) and op.outputs[0] not in outputs:
            new[op.outputs[0]] = op.inputs[0]
        else:
            kept.append(op)
    return kept


def _is_idle(op: Op, tensors: Mapping[str, Tensor]) -> bool:
    return op.type == "Cast" and not op.body and tensors[op.inputs[0]].dtype is tensors[op.outputs[0]].dtype
