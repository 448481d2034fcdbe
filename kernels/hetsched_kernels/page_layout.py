"""How a page of a key-value cache is laid out: formats, the descriptor that kernels take, sizes. Needs no compiler."""

from __future__ import annotations

from typing import Final

import numpy as np

from hetsched_kernels.arrays import Array

#: Formats of a row: float16, float8 (E4M3), and integers with a float16 scale for a group of elements.
FP16, FP8, INT8, INT4 = range(4)
FORMATS: Final = {"fp16": FP16, "fp8": FP8, "int8": INT8, "int4": INT4}
#: Elements of a value row that share a scale; of a key row all do.
VALUE_GROUP: Final = 32
#: Positions in :func:`page_geometry`'s result.
HEADS, SHARED, DIM, PAGE, KEYS_AS, VALUES_AS, KEY_GROUP, KEY_SCALES, VALUES, VALUE_SCALES, STRIDE = range(11)
_LINE: Final = 64


def page_geometry(heads: int, kv_heads: int, head_dim: int, keys: str, values: str, page: int = 64) -> Array:
    """The int64 descriptor of a cache.

    Args:
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: elements of a head.
        keys: format of the keys: fp16, fp8 or int8.
        values: format of the values: fp16, fp8, int8 or int4.
        page: tokens of a page, 16 to 256.

    Raises:
        ValueError: the heads do not share evenly, the page has another size, or there is no such format.
    """
    if heads < 1 or kv_heads < 1 or heads % kv_heads or head_dim < 1:
        raise ValueError(f"{heads} query heads of {head_dim} elements cannot share {kv_heads} key-value heads")
    if not 16 <= page <= 256:
        raise ValueError(f"a page holds 16 to 256 tokens, not {page}")
    if keys not in FORMATS or values not in FORMATS or keys == "int4":
        raise ValueError(f"there is no cache of {keys} keys and {values} values")
    parts = [(FORMATS[keys], head_dim), (FORMATS[values], VALUE_GROUP)]
    at, offsets = 0, []
    for form, group in parts:
        groups = -(-head_dim // group) if form >= INT8 else 0
        for size in (page * row_bytes(form, head_dim), 2 * page * groups):
            offsets.append(at)
            at += -(-size // _LINE) * _LINE
    return np.array([heads, kv_heads, head_dim, page, parts[0][0], parts[1][0], head_dim, *offsets[1:], at], np.int64)


def row_bytes(form: int, dim: int) -> int:
    """Bytes of a row's codes."""
    return {FP16: 2 * dim, FP8: dim, INT8: dim, INT4: -(-dim // VALUE_GROUP) * VALUE_GROUP // 2}[form]


def page_bytes(geometry: Array) -> int:
    """Bytes (uint8) of one page of every key-value head."""
    return int(geometry[SHARED] * geometry[STRIDE])
