"""Values of compressed weights of Core ML, made when somebody reads them: palettes, bit masks, scales of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError
from hetsched.frontends.sparse import dense

Array = npt.NDArray[Any]


def unpacked(raw: npt.NDArray[np.uint8], count: int, bits: int, *, lowest_first: bool = True) -> npt.NDArray[np.uint8]:
    """``count`` numbers of ``bits`` bits from bytes.

    Args:
        raw: the bytes.
        count: how many numbers.
        bits: bits of each, 1 to 8.
        lowest_first: the first number is in the lowest bits of the first byte (ML programs), else in the highest (networks).
    """
    if bits == 8:
        return raw[:count]
    stream = np.unpackbits(raw, bitorder="little" if lowest_first else "big")[: count * bits].reshape(count, bits)
    weights = 1 << np.arange(bits) if lowest_first else 1 << np.arange(bits)[::-1]
    return np.asarray(stream @ weights.astype(np.uint8), np.uint8)


def palette(indices: Array, table: Array, vector_axis: int) -> Array:
    """``table[block][index]`` of every index.

    Args:
        indices: whole numbers, of any shape.
        table: ``[blocks of each axis…, entries, vector]``; each axis of the indices is divided into so many blocks.
        vector_axis: the axis that vectors of more than one element widen.

    Raises:
        ModelError: an index is outside the table.
    """
    if indices.size and int(indices.max()) >= table.shape[-2]:
        raise ModelError(f"a palette of {table.shape[-2]} entries has no entry {int(indices.max())}: the model file is damaged")
    blocks = [np.arange(n) // max(n // m, 1) for n, m in zip(indices.shape, table.shape[:-2], strict=True)]
    picked = table[(*np.ix_(*blocks), indices.astype(np.int64))] if blocks else table[indices.astype(np.int64)]
    if picked.shape[-1] == 1:
        return np.asarray(picked[..., 0])
    moved = np.moveaxis(picked, -1, vector_axis + 1)
    shape = list(indices.shape)
    shape[vector_axis] *= picked.shape[-1]
    return moved.reshape(shape)


def sparse(name: str, values: Array, mask: npt.NDArray[np.uint8], shape: Sequence[int]) -> Array:
    """``values`` where the bits of ``mask`` are 1, and 0 elsewhere."""
    return dense(name, shape, np.flatnonzero(mask).astype(np.int64), values.reshape(-1))


def scaled(stored: Array, scale: Array, offset: Array | None) -> Array:
    """``(stored - offset) * scale``, each scale for a block along every axis."""
    for axis, (n, m) in enumerate(zip(stored.shape, scale.shape, strict=True)):
        scale = np.repeat(scale, n // m, axis)
        offset = None if offset is None else np.repeat(offset, n // m, axis)
    whole = stored.astype(scale.dtype)
    return np.asarray((whole if offset is None else whole - offset.astype(scale.dtype)) * scale)
