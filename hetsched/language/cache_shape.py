"""What a model's cache holds for a token, and how many pages of it fit into a memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from hetsched.errors import OptionError, UnsupportedModelError
from hetsched.graph import Graph
from hetsched_kernels.page_layout import page_bytes, page_geometry

Array = npt.NDArray[Any]
#: Tokens of a page unless the caller says otherwise.
PAGE_TOKENS = 64
_PLAIN = "fp16"
#: Pages of a sequence that lie in float16, too, beside a cache of fewer bits: the newest and the one before.
RECENT_PAGES = 2


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a model's cache holds for a token.

    Attributes:
        layers: layers with attention.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: elements of a head.
        keys: format of the keys: fp16, fp8 or int8.
        values: format of the values: fp16, fp8, int8 or int4.
        page: tokens of a page.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    keys: str = _PLAIN
    values: str = _PLAIN
    page: int = PAGE_TOKENS

    def geometry(self) -> Array:
        """The descriptor that kernels take.

        Raises:
            OptionError: there is no such format or page size.
        """
        try:
            return page_geometry(self.heads, self.kv_heads, self.head_dim, self.keys, self.values, self.page)
        except ValueError as e:
            raise OptionError(f"the cache cannot be made: {e}") from e

    @property
    def plain(self) -> CacheShape:
        """The same in float16."""
        return replace(self, keys=_PLAIN, values=_PLAIN)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page, all layers together."""
        return self.layers * page_bytes(self.geometry())

    @property
    def recent_bytes(self) -> int:
        """Bytes of a sequence's newest pages in float16; 0 where the cache is float16 itself."""
        return 0 if self == self.plain else RECENT_PAGES * self.plain.page_bytes


def cache_shape(graph: Graph, kv: tuple[str, str], page: int) -> CacheShape:
    """What the caches of a decoder hold.

    Raises:
        UnsupportedModelError: its layers differ.
    """
    layers = [op for op in graph.ops if op.type == "GroupQueryAttention"]
    shapes = {tuple(op.attr_int(n, 0) for n in ("num_heads", "kv_num_heads", "head_dim")) for op in layers}
    if not layers:
        return CacheShape(0, 1, 1, 1, *kv, page)
    if len(shapes) != 1:
        raise UnsupportedModelError(f"{graph.name!r} has {len(shapes)} kinds of attention layers, and generating text needs one")
    heads, shared, dim = shapes.pop()
    return CacheShape(len(layers), heads, shared, dim, *kv, page)


def page_count(shape: CacheShape, wanted: int, cache_bytes: int | None) -> int:
    """Pages of a pool: as many as are wanted, or as fit beside the newest tokens in float16.

    Raises:
        OptionError: not even two fit.
    """
    if cache_bytes is None or not shape.layers:
        return wanted
    one, recent = shape.page_bytes, shape.recent_bytes
    if cache_bytes < 2 * one + recent:
        beside = f", with the newest tokens in float16 {2 * one + recent}" if recent else ""
        raise OptionError(
            f"the cache may take {cache_bytes} bytes, and two pages of {shape.page} tokens take {2 * one}{beside}: give it more"
        )
    return min(wanted, (cache_bytes - recent) // one)
