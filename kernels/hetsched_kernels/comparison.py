"""Every kernel beside an obviously correct numpy twin: one table for the tests and the benchmarks.

A case draws its sizes from whoever runs it (hypothesis in the tests), runs the kernel and the twin on the same data and
returns both results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from hetsched_kernels.arrays import Array

T = TypeVar("T")


class Draw(Protocol):
    """Where a case takes its sizes and data from."""

    rng: np.random.Generator

    def integer(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""

    def choice(self, options: Sequence[T]) -> T:
        """One of the options."""


@dataclass(frozen=True)
class Comparison:
    """One kernel and how close it must be to its twin.

    Attributes:
        name: the kernel's name, and the variant's where there are several cases.
        case: draws sizes, runs both, returns (kernel's result, twin's result), of equal shapes.
        relative: tolerance relative to the twin's result; 0 with ``absolute`` 0 means equal, bit for bit.
        absolute: absolute tolerance.
    """

    name: str
    case: Callable[[Draw], tuple[Array, Array]]
    relative: float = 0.0
    absolute: float = 0.0


def floats(draw: Draw, *shape: int, scale: float = 1.0) -> Array:
    """Normal float32 values."""
    return (draw.rng.standard_normal(shape) * scale).astype(np.float32)


def bytes_of(draw: Draw, dtype: Any, *shape: int) -> Array:
    """Uniform 8-bit values over the type's whole range."""
    info = np.iinfo(dtype)
    return draw.rng.integers(info.min, info.max + 1, shape).astype(dtype)


def flat(x: Array) -> Array:
    """The array as kernels take it."""
    return np.ascontiguousarray(x).reshape(-1)


def poisoned(count: int, dtype: Any = np.float32) -> Array:
    """An output or scratch array full of values that must not survive (NaN, or 0xA5 bytes)."""
    if np.dtype(dtype).kind == "f":
        return np.full(count, np.nan, dtype)
    out: Array = np.full(count * np.dtype(dtype).itemsize, 0xA5, np.uint8).view(dtype)
    return out


def table() -> list[Comparison]:
    """All comparisons (imports every kernel module)."""
    from hetsched_kernels import (
        comparison_elementwise,
        comparison_language,
        comparison_layers,
        comparison_mixtures,
        comparison_nhwc,
        comparison_paged,
        comparison_products,
        comparison_sampling,
        comparison_shapes,
    )

    return [
        *comparison_products.TABLE,
        *comparison_elementwise.TABLE,
        *comparison_shapes.TABLE,
        *comparison_language.TABLE,
        *comparison_paged.TABLE,
        *comparison_nhwc.TABLE,
        *comparison_layers.TABLE,
        *comparison_sampling.TABLE,
        *comparison_mixtures.TABLE,
    ]
