"""Attention over a paged cache is the same bits however its parts are taken and however many new tokens ask at once."""

import numpy as np
import pytest

from hetsched_kernels.page_layout import page_bytes, page_geometry
from hetsched_kernels.paged_attention import attend_pages, attend_pages_scratch, merge_parts, parts_room
from hetsched_kernels.paged_cache import append_pages

_HEADS, _SHARED, _DIM, _TOKENS = 6, 2, 64, 330
_NO_RECENT = (np.zeros(0, np.uint8), np.zeros(0, np.int64), 0)


@pytest.mark.parametrize("form", [("fp16", "fp16"), ("int8", "int4")])
@pytest.mark.parametrize("window", [0, 150])
def test_bits_depend_on_neither_turns_nor_rows(form: tuple[str, str], window: int) -> None:
    rng = np.random.default_rng(0)
    geometry = page_geometry(_HEADS, _SHARED, _DIM, *form, 64)
    pages = rng.permutation(6)
    cache = np.zeros(page_bytes(geometry) * len(pages), np.uint8)
    key, value = (rng.standard_normal(_TOKENS * _SHARED * _DIM).astype(np.float32) for _ in range(2))
    append_pages(key, value, cache, pages, geometry, 0, 0, _TOKENS)
    q = rng.standard_normal((_TOKENS, _HEADS * _DIM)).astype(np.float32)

    def attended(first: int, rows: int, turns: int) -> np.ndarray:
        out, parts = np.zeros((rows, _HEADS * _DIM), np.float32), np.full(parts_room(geometry, rows, _TOKENS), np.nan, np.float32)
        scratch = np.full(attend_pages_scratch(geometry, rows), np.nan, np.float32)
        for head in range(_SHARED):
            for turn in reversed(range(turns)):
                tail = (head, turn, turns, rows, first, window, 0.125, 0.0)
                attend_pages(q[first : first + rows].reshape(-1), cache, pages, geometry, *_NO_RECENT, parts, scratch, *tail)
            merge_parts(parts, geometry, out.reshape(-1), head, rows, first, window)
        return out

    for first in (0, 120, 250, _TOKENS - 9):
        together = attended(first, 9, 1)
        alone = np.concatenate([attended(first + r, 1, 1 + r % 3) for r in range(9)])
        np.testing.assert_array_equal(together, alone)
