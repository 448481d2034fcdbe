"""Sparse constants of TFLite (``SparsityParameters``): a tree of dimensions, each dense or a list of indices (CSR).

The dimensions are walked in ``traversal_order``. Those from the tensor's rank on are within blocks: ``block_map`` says of which
dimension of the tensor each is a part. An index list gives for every node of the level above a segment of indices. The
buffer holds one value for every leaf, in order. Format: https://github.com/tensorflow/tensorflow, ``schema.fbs``.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError
from hetsched.frontends.sparse import dense
from hetsched.frontends.tflite_flatbuffer import Table
from hetsched.graph import MAX_RANK

#: Member of the union ``SparseIndexVector`` -> element type of its list.
_VECTORS: dict[int, np.dtype[Any]] = {1: np.dtype("<i4"), 2: np.dtype("<u2"), 3: np.dtype("<u1")}
#: Fields of ``DimensionMetadata``.
_FORMAT, _SIZE, _SEGMENTS, _INDICES = 0, 1, 2, 4

Range = tuple[int, int, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Level:
    """One dimension: ``size`` nodes below each of the level above, or segments of indices (where they lie in the file)."""

    size: int
    segments: Range | None = None
    indices: Range | None = None


@dataclass(frozen=True, slots=True)
class Sparsity:
    """How the values of a sparse constant lie in it."""

    order: tuple[int, ...]
    block_map: tuple[int, ...]
    levels: tuple[Level, ...]

    @property
    def index_bytes(self) -> int:
        """Bytes of the index lists in the file."""
        return sum(r[1] * r[2].itemsize for level in self.levels for r in (level.segments, level.indices) if r is not None)


def sparsity(table: Table | None, name: str, rank: int) -> Sparsity | None:
    """The ``SparsityParameters`` of a tensor; None where it is dense.

    Raises:
        ModelError: they do not describe a tensor of this rank.
    """
    if table is None:
        return None
    order, block_map = table.integers(0, "i", 2 * MAX_RANK), table.integers(1, "i", MAX_RANK)
    rows = table.tables(2)
    if sorted(order) != list(range(rank + len(block_map))) or len(rows) != len(order):
        raise _damaged(name, f"it is walked in the order {list(order)} with {len(rows)} dimensions described")
    if sorted(order[:rank]) != list(range(rank)) or any(not 0 <= d < rank for d in block_map) or len(set(block_map)) < len(block_map):
        raise _damaged(name, f"its blocks lie along the dimensions {list(block_map)}")
    return Sparsity(order, block_map, tuple(_level(row, name) for row in rows))


def _level(table: Table, name: str) -> Level:
    if not table.integer(_FORMAT, "b"):
        size = table.integer(_SIZE, "i")
        if size < 0:
            raise _damaged(name, f"a dimension of it has the size {size}")
        return Level(size)
    return Level(0, _range(table, _SEGMENTS, name), _range(table, _INDICES, name))


def _range(table: Table, field: int, name: str) -> Range:
    dtype, vector = _VECTORS.get(table.integer(field, "B")), table.table(field + 1)
    if dtype is None or vector is None:
        raise _damaged(name, "a list of indices is missing")
    start, count = vector.vector(0, dtype.itemsize) or (0, 0)
    return start, count, dtype


def decoded(form: Sparsity, name: str, shape: tuple[int, ...], values: npt.NDArray[Any], mapped: mmap.mmap) -> npt.NDArray[Any]:
    """The dense array of a constant.

    Args:
        form: its sparsity.
        name: for messages.
        shape: of the dense array.
        values: the stored values, flat.
        mapped: the file.

    Raises:
        ModelError: the index lists contradict the shape or each other.
    """
    # Every node has a value or a segment of the file below it, so a small file never describes more than it holds.
    limit = max([values.size, *(level.segments[1] for level in form.levels if level.segments is not None)])
    at: dict[int, npt.NDArray[np.int64]] = {}
    nodes = 1
    for dim, level in zip(form.order, form.levels, strict=True):
        if level.segments is None or level.indices is None:
            if nodes * level.size > limit:
                raise _damaged(name, f"it describes {nodes * level.size} nodes and stores {values.size} values")
            counts, own = np.full(nodes, level.size, np.int64), np.tile(np.arange(level.size, dtype=np.int64), nodes)
        else:
            segments, own = (_numbers(r, mapped) for r in (level.segments, level.indices))
            counts = np.diff(segments)
            if segments.size != nodes + 1 or segments[0] != 0 or segments[-1] != own.size or (counts < 0).any():
                raise _damaged(name, f"a list of {segments.size} segments and {own.size} indices does not fit {nodes} nodes")
        at = {k: np.repeat(v, counts) for k, v in at.items()}
        at[dim] = own
        nodes = own.size
    if nodes != values.size:
        raise _damaged(name, f"it stores {values.size} values and describes {nodes}")
    return dense(name, shape, _places(form, name, shape, at), values)


def _numbers(where: Range, mapped: mmap.mmap) -> npt.NDArray[np.int64]:
    start, count, dtype = where
    return np.frombuffer(mapped, dtype, count, start).astype(np.int64)


def _places(form: Sparsity, name: str, shape: tuple[int, ...], at: dict[int, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Flat places of the values, from their indices along every dimension and within every block."""
    rank = len(shape)
    sizes = {dim: level.size for dim, level in zip(form.order, form.levels, strict=True)}
    index = [at[d] for d in range(rank)]
    for block, dim in enumerate(form.block_map):
        index[dim] = index[dim] * sizes[rank + block] + at[rank + block]
    flat = np.zeros(index[0].size if index else 1, np.int64)
    for position, size in zip(index, shape, strict=True):
        if position.size and (int(position.min()) < 0 or int(position.max()) >= size):
            raise _damaged(name, f"it has a value outside the shape {list(shape)}")
        flat = flat * size + position
    return flat


def _damaged(name: str, what: str) -> ModelError:
    return ModelError(f"the sparse constant {name!r} is damaged: {what}; fetch or convert the model again")
