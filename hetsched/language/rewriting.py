"""A page of the cache in another format."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched_kernels.page_layout import DIM, PAGE, SHARED

Array = npt.NDArray[Any]


def rewrite_page(source: Array, number: int, geometry: Array, target: Array, to: int, new: Array) -> None:
    """Write a page of one layer's cache in the format of another: all heads are read before the first is written.

    Args:
        source: uint8, the cache that has the page.
        number: its number there.
        geometry: that cache's descriptor.
        target: uint8, the cache that gets it; may be ``source``.
        to: its number there.
        new: that cache's descriptor.
    """
    from hetsched_kernels.paged_cache import append_pages, read_pages

    heads, size, dim = int(geometry[SHARED]), int(geometry[PAGE]), int(geometry[DIM])
    rows = np.zeros((2, size, heads, dim), np.float32)
    keys, values = np.zeros(size * dim, np.float32), np.zeros(size * dim, np.float32)
    page = np.array([number], np.int64)
    for head in range(heads):
        read_pages(source, page, geometry, keys, values, head, size)
        rows[0, :, head], rows[1, :, head] = keys.reshape(size, dim), values.reshape(size, dim)
    append_pages(rows[0].reshape(-1), rows[1].reshape(-1), target, np.array([to], np.int64), new, 0, 0, size)
