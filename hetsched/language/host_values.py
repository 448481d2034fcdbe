"""What a step knows before it starts: rows of the embedding, and cosines and sines of every position."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Graph, Op, Tensor
from hetsched.reference.gguf_types import constant_value, decode, kind_of

Array = npt.NDArray[Any]
_ARITHMETIC: Mapping[str, Callable[[Array, Array], Array]] = {"Mul": np.multiply, "Div": np.divide, "Add": np.add, "Sub": np.subtract}
_FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {"Cos": np.cos, "Sin": np.sin}
_KNOWN = frozenset({"Gather", "Reshape", "Identity", "Cast", *_ARITHMETIC, *_FUNCTIONS})


def derived_from(graph: Graph, source: str) -> frozenset[str]:
    """Tensors that :func:`value_of` computes of the graph input ``source`` and constants alone, itself included."""
    known = {source}
    for op in graph.ops:
        if op.type not in _KNOWN:
            continue
        reads = [n for n in op.inputs if n and not graph.tensors[n].is_constant]
        if reads and all(n in known for n in reads):
            known.update(o for o in op.outputs if o)
    return frozenset(known)


def value_of(graph: Graph, name: str, source: str, given: Array, mapped: dict[str, Array] | None = None) -> Array:
    """The value of a tensor that is derived from ``source``, whose rows are ``given``; a row each.

    Args:
        graph: the graph.
        name: the tensor.
        source: the input that it is derived from.
        given: the input's value.
        mapped: tables by name, as they lie in the file; those that are needed are added. Who asks often keeps it.

    Raises:
        UnsupportedModelError: an operator between them is not known here.
    """
    if name == source:
        return given
    op = graph.ops[next(i for i, op in enumerate(graph.ops) if name in op.outputs)]
    known = [None if graph.tensors[n].is_constant else value_of(graph, n, source, given, mapped) for n in op.inputs]
    return _computed(graph, op, known, {} if mapped is None else mapped)


def _computed(graph: Graph, op: Op, known: list[Array | None], mapped: dict[str, Array]) -> Array:
    first = known[0]
    if op.type == "Gather" and first is None and known[1] is not None:
        if op.inputs[0] not in mapped:
            mapped[op.inputs[0]] = np.asarray(graph.tensors[op.inputs[0]].numpy())
        return rows_of(graph.tensors[op.inputs[0]], known[1].reshape(-1), mapped[op.inputs[0]])
    if op.type in ("Reshape", "Identity") and first is not None:
        return first.reshape(len(first), -1) if first.ndim > 1 else first
    if op.type == "Cast" and first is not None:
        return first.astype(np.float32).reshape(-1, 1)
    if op.type in _FUNCTIONS and first is not None:
        return np.asarray(_FUNCTIONS[op.type](first))
    if op.type in _ARITHMETIC:
        a, b = (constant_value(graph.tensors[n]).astype(np.float32) if v is None else v for n, v in zip(op.inputs, known, strict=True))
        return np.asarray(_ARITHMETIC[op.type](a, b), np.float32)
    raise UnsupportedModelError(f"node {op.name!r} ({op.type}): it is computed of the tokens or positions in a way that is not supported")


def rows_of(table: Tensor, ids: Array, stored: Array) -> Array:
    """Rows of an embedding table, stored as :meth:`Tensor.numpy` gives it, as float32 ``[ids, width]``; only their bytes are read."""
    if not table.is_packed:
        return np.asarray(stored[ids], np.float32)
    kind, rows = kind_of(table), table.shape[0]
    raw = stored.reshape(rows, -1)[ids]
    return decode(kind, raw).reshape(len(ids), math.prod(table.shape[1:]))
