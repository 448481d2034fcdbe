"""Operators and the operator graph (tensors are in :mod:`hetsched.tensors` and re-exported here).

A :class:`Graph` is immutable. Its operators are kept in one topological order (the file's own order where that is
valid); everything else (the bipartite networkx graph, the operator DAG, the CSR arrays) is a projection of them.
Weights are never copied into the graph: a constant tensor carries a reference that is mapped on first use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError
from hetsched.tensors import MAX_ELEMENTS, MAX_RANK, DType, Quantization, Role, Tensor, WeightRef, dtype_of

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "CONTROL_FLOW",
    "LINEAR_QUANTIZATION",
    "MAX_ELEMENTS",
    "MAX_RANK",
    "AttrValue",
    "Csr",
    "DType",
    "Graph",
    "IntArray",
    "Op",
    "Quantization",
    "Role",
    "Tensor",
    "WeightRef",
    "dtype_of",
]

IntArray: TypeAlias = npt.NDArray[np.int32]
AttrValue: TypeAlias = int | float | str | bytes | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | npt.NDArray[Any]
#: Operators that run others of their own: their ``body`` is what they are costed by, not what they are equal to.
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
#: Between reals and the integers that stand for them; what an operator on integers has around it in its ``body``.
LINEAR_QUANTIZATION = frozenset({"QuantizeLinear", "DequantizeLinear"})
#: Operators of the file itself: their ``body`` is their definition, not what a pass has fused.
_DEFINED = frozenset({"MatMulNBits", "GatherBlockQuantized", "MatMulBnb4", "DynamicQuantizeLSTM", "GroupNormalization", "RMSNormalization"})


@dataclass(frozen=True, slots=True)
class Op:
    """One operator. ``type`` is the ONNX name, or one of the composites listed in ``docs/operators.md``.

    ``inputs`` are tensor names, ``""`` for an omitted optional input. ``origin`` are the names of the file's nodes that
    it stands for, so that every message and report speaks of the user's own nodes. A fused operator keeps what it was
    made of in ``body`` (in execution order), so that fusion can be undone and any executor can run the parts.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    domain: str = ""
    origin: tuple[str, ...] = ()
    body: tuple[Op, ...] = ()

    @property
    def is_control_flow(self) -> bool:
        """Whether the op runs a subgraph as the data decide (``docs/operators.md``); it is never undone into its body."""
        return self.type in CONTROL_FLOW and not self.domain

    @property
    def is_composite(self) -> bool:
        """Whether the op equals the operators in its body."""
        return bool(self.body) and not self.is_control_flow

    @property
    def fused_parts(self) -> tuple[Op, ...]:
        """The operators in the body, beside the quantization that the op absorbed."""
        return tuple(part for part in self.body if part.type not in LINEAR_QUANTIZATION)

    @property
    def is_fusion(self) -> bool:
        """Whether the op stands for several operators that compilers may run apart, beside the quantization that it absorbed.

        Neither control flow nor an operator that the file itself defines by others does.

        Examples:
            >>> conv, relu = Op("c", "Conv", ("x", "w"), ("y",)), Op("r", "Relu", ("y",), ("z",))
            >>> Op("r", "FusedConv", ("x", "w", ""), ("z",), body=(conv, relu)).is_fusion, conv.is_fusion
            (True, False)
        """
        if self.is_control_flow or self.type in _DEFINED:
            return False
        parts = self.fused_parts
        return len(parts) > 1 or any(part.is_fusion for part in parts)

    def attr_int(self, name: str, default: int) -> int:
        """An integer attribute, or ``default``."""
        return self._integer(name, self.attrs.get(name, default))

    def attr_float(self, name: str, default: float) -> float:
        """A float attribute, or ``default``."""
        value = self.attrs.get(name, default)
        if not isinstance(value, int | float | np.number):
            raise self._misfit(name, "a number")
        return float(value)

    def attr_str(self, name: str, default: str) -> str:
        """A string attribute, or ``default``."""
        value = self.attrs.get(name, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def attr_ints(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """A list-of-integers attribute, or ``default``."""
        value = self.attrs.get(name, tuple(default))
        if not isinstance(value, tuple | list):
            raise self._misfit(name, "a list")
        return tuple(self._integer(name, v) for v in value)

    def _integer(self, name: str, value: object) -> int:
        if not isinstance(value, int | float | np.number) or not math.isfinite(value):
            raise self._misfit(name, "a whole number")
        return int(value)

    def _misfit(self, name: str, wanted: str) -> ModelError:
        return ModelError(f"the attribute {name!r} of node {self.name!r} ({self.type}) is not {wanted}: the model file is damaged")


@dataclass(frozen=True, slots=True)
class Csr:
    """Rows of integers: row ``i`` is ``items[start[i]:start[i + 1]]`` (both int32)."""

    start: IntArray
    items: IntArray

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> Csr:
        """Pack a list of rows."""
        start = np.zeros(len(rows) + 1, np.int32)
        np.cumsum([len(r) for r in rows], out=start[1:])
        return cls(start, np.array([v for r in rows for v in r], np.int32))

    def row(self, i: int) -> IntArray:
        """Row ``i`` as a view."""
        return self.items[self.start[i] : self.start[i + 1]]

    def __len__(self) -> int:
        return len(self.start) - 1

    def __iter__(self) -> Iterator[IntArray]:
        return (self.row(i) for i in range(len(self)))


@dataclass(frozen=True, eq=False)
class Graph:
    """An operator DAG. ``ops`` is in topological order; ``tensors`` holds every tensor an op, input or output names.

    ``states`` maps outputs to the inputs that they are in the next step (a KV cache, an RNN state). An input with the role
    *state* that no output maps to keeps its value from step to step. ``first_values`` are constants like the state that they
    start, by its name; a state without one starts with zeros.
    """

    name: str
    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: Path | None = None
    sha256: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    first_values: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that names resolve, producers are unique and ``ops`` is topologically ordered."""
        ready = {n for n, t in self.tensors.items() if t.is_constant} | set(self.inputs)
        for name in (*self.inputs, *self.outputs):
            if name not in self.tensors:
                raise ModelError(f"graph {self.name!r} names the tensor {name!r} but does not define it")
        produced = {o for op in self.ops for o in op.outputs if o}
        for op in self.ops:
            for i in op.inputs:
                if i and i not in ready:
                    why = "comes before its producer (the graph has a cycle or is out of order)" if i in produced else "has no producer"
                    raise ModelError(f"node {op.name!r} ({op.type}) reads {i!r}, which {why}")
            for o in op.outputs:
                if not o:
                    continue
                if o in ready:
                    raise ModelError(f"node {op.name!r} ({op.type}) writes {o!r}, which already has a value")
                if o not in self.tensors:
                    raise ModelError(f"node {op.name!r} ({op.type}) writes {o!r}, whose shape and type are unknown")
                ready.add(o)
        for name in self.outputs:
            if name not in ready:
                raise ModelError(f"the output {name!r} of graph {self.name!r} is never written")
        for name, value in self.first_values.items():
            state = self.tensors.get(name)
            if (
                state is None
                or name not in self.inputs
                or not value.is_constant
                or (state.shape, state.dtype) != (value.shape, value.dtype)
            ):
                raise ModelError(f"graph {self.name!r} has a first value for {name!r} that is no constant like that input")
        for present, past in self.states.items():
            if present not in self.outputs or past not in self.inputs:
                raise ModelError(f"graph {self.name!r} continues the state {past!r} with {present!r}: these must be an input and an output")

    @cached_property
    def op_index(self) -> dict[str, int]:
        """Op name -> position in ``ops``."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def output_set(self) -> frozenset[str]:
        """The outputs, for asking whether a tensor is one: a file may have thousands."""
        return frozenset(self.outputs)

    @cached_property
    def producer(self) -> dict[str, int]:
        """Tensor name -> index of the op that writes it (graph inputs and constants are absent)."""
        return {o: i for i, op in enumerate(self.ops) for o in op.outputs if o}

    @cached_property
    def consumers(self) -> dict[str, tuple[int, ...]]:
        """Tensor name -> indices of the ops that read it, ascending, each once."""
        rows: dict[str, list[int]] = {}
        for i, op in enumerate(self.ops):
            for name in dict.fromkeys(op.inputs):
                if name:
                    rows.setdefault(name, []).append(i)
        return {k: tuple(v) for k, v in rows.items()}

    @cached_property
    def predecessors(self) -> Csr:
        """Op -> ops it reads from, ascending, each once."""
        rows = [sorted({self.producer[i] for i in op.inputs if i in self.producer}) for op in self.ops]
        return Csr.from_rows(rows)

    @cached_property
    def successors(self) -> Csr:
        """Op -> ops that read from it, ascending, each once."""
        rows: list[list[int]] = [[] for _ in self.ops]
        for i, preds in enumerate(self.predecessors):
            for p in preds:
                rows[p].append(i)
        return Csr.from_rows(rows)

    @cached_property
    def digraph(self) -> nx.DiGraph[Any]:
        """Bipartite graph of ``("op", name)`` and ``("tensor", name)``; the edge attribute ``slots`` keeps every use."""
        import networkx as nx

        g: nx.DiGraph[Any] = nx.DiGraph()
        g.add_nodes_from((("tensor", n), {"tensor": t}) for n, t in self.tensors.items())
        for op in self.ops:
            g.add_node(("op", op.name), op=op)
            for name in dict.fromkeys(n for n in op.inputs if n):
                g.add_edge(("tensor", name), ("op", op.name), slots=tuple(k for k, i in enumerate(op.inputs) if i == name))
            for k, o in enumerate(op.outputs):
                if o:
                    g.add_edge(("op", op.name), ("tensor", o), slots=(k,))
        return g

    @cached_property
    def op_dag(self) -> nx.DiGraph[Any]:
        """The op-level projection: nodes are op indices."""
        import networkx as nx

        g: nx.DiGraph[Any] = nx.DiGraph()
        g.add_nodes_from(range(len(self.ops)))
        g.add_edges_from((int(p), i) for i, preds in enumerate(self.predecessors) for p in preds)
        return g

    def activations(self, op: Op) -> tuple[str, ...]:
        """Names of the non-constant tensors that ``op`` reads, each once, in slot order."""
        return tuple(n for n in dict.fromkeys(op.inputs) if n and not self.tensors[n].is_constant)

    def constants(self, op: Op) -> tuple[str, ...]:
        """Names of the constants that ``op`` reads, each once, in slot order."""
        return tuple(n for n in dict.fromkeys(op.inputs) if n and self.tensors[n].is_constant)

    def replace(self, **changes: Any) -> Graph:
        """A copy with some fields changed; validated again."""
        return replace(self, **changes)
