"""Operators alike: ops for which every question about types, shapes and attributes has the same answer.

Networks repeat themselves: ten thousand operators are a few hundred different ones. What the cost model counts and what a support
table says depends on an operator's type, attributes and body, and on the types and shapes of its tensors, never on names or
values, so it is asked once for each class of operators alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import AttrValue, DType, Graph, IntArray, Op, Role, Tensor
from hetsched_cost_models.language import STATEFUL

#: Reasons against these name the tensor, so that tensors of these types are alike to none.
WIDE = (DType.I64, DType.U64, DType.F64, DType.STRING)


@dataclass(frozen=True, eq=False)
class Alike:
    """``kind[i]``: the class of op ``i``, numbered as they first occur; ``example[k]``: the first op of class ``k``."""

    kind: npt.NDArray[np.int64]
    example: tuple[Op, ...]

    def expand(self, count: Sequence[int]) -> tuple[IntArray, npt.NDArray[np.int64]]:
        """Lists of ``count[k]`` items for each class, given to every op: where each op's begin and end, and which item each is.

        Items are numbered through all classes.
        """
        each = np.array(count, np.int64)
        start = np.zeros(len(self.kind) + 1, np.int32)
        np.cumsum(each[self.kind], out=start[1:])
        first = (np.cumsum(each) - each)[self.kind]
        return start, np.arange(start[-1]) + np.repeat(first - start[:-1], each[self.kind])


def alike(graph: Graph, ops: Sequence[Op]) -> Alike:
    """Classes of ``ops``, which are those of ``graph`` or in the bodies of its ops."""
    classes: dict[Hashable, int] = {}
    examples: list[Op] = []
    kinds = np.empty(len(ops), np.int64)
    tensors = _Tensors(graph)
    for i, op in enumerate(ops):
        kind = classes.setdefault(_signature(op, tensors, {}), len(examples))
        if kind == len(examples):
            examples.append(op)
        kinds[i] = kind
    return Alike(kinds, tuple(examples))


def names_of(op: Op) -> list[str]:
    """The distinct tensors of an op and its body, in an order that is the same for all ops alike."""
    return list(_names(op, {}))


def _names(op: Op, found: dict[str, None]) -> dict[str, None]:
    found.update(dict.fromkeys(op.inputs))
    found.update(dict.fromkeys(op.outputs))
    for part in op.body:
        _names(part, found)
    return found


class _Tensors(dict[str, int]):
    """Numbers of tensors alike, by name, given when first asked for; -1 for names that only the body of an op knows."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._tensors = graph.tensors
        self.states = graph.states
        self._codes: dict[Hashable, int] = {}

    def __missing__(self, name: str) -> int:
        tensor = self._tensors.get(name)
        code = self[name] = -1 if tensor is None else self._codes.setdefault(_tensor(tensor), len(self._codes))
        return code


def _tensor(t: Tensor) -> Hashable:
    q = t.quantization
    held = None if q is None else (q.granularity, q.block_bytes, q.group)
    sparse = t.data.sparse_bytes if t.data is not None else -1
    return (t.shape, t.dtype, t.role is Role.STATE, held, sparse, t.name if t.data is None and t.dtype in WIDE else "")


def _signature(op: Op, tensors: _Tensors, places: dict[str, int]) -> Hashable:
    """All that decides; names count by where they occur first, so that only the pattern of equal names matters."""
    return (
        op.type,
        op.domain,
        _attributes(op.attrs) if op.attrs else (),
        tuple([(places.setdefault(n, len(places)), tensors[n]) if n else None for n in op.inputs]),
        tuple([(places.setdefault(n, len(places)), tensors[n]) if n else None for n in op.outputs]),
        tuple([_signature(part, tensors, places) for part in op.body]) if op.body else (),
        # which of its inputs an output continues is the graph's to say
        tuple([places.get(tensors.states.get(n, ""), -1) for n in op.outputs]) if op.type in STATEFUL else (),
    )


def _attributes(attrs: Mapping[str, AttrValue]) -> Hashable:
    return tuple([(k, v if type(v) in _PLAIN else _hashable(v)) for k, v in attrs.items()])


_PLAIN = (int, str, float, bool, bytes)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.str, value.tobytes() if value.dtype != object else repr(value.tolist()))
    return tuple(value) if isinstance(value, list) else value
