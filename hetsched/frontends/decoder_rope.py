"""Rotary position embedding: frequencies of every scaling, and the operators that make cosines and sines of positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.decoder_architecture import Rope
from hetsched.frontends.decoder_builder import GraphBuilder
from hetsched.graph import AttrValue, DType, Tensor

_Array = npt.NDArray[Any]


def inverse_frequencies(rope: Rope, length: int) -> tuple[_Array, float]:
    """Angle per position of every pair, float32 ``[dim / 2]``, and the factor on cosines and sines.

    ``length`` is the number of positions in use (longrope has other factors beyond the original context). The formulas are
    those of the papers: RoFormer (Su et al. 2021), YaRN (Peng et al. 2023), LongRoPE (Ding et al. 2024), and of the Llama 3.1
    release for ``llama3``.

    Raises:
        UnsupportedModelError: the scaling is not known.
        ModelError: the frequencies are not finite.
    """
    with np.errstate(all="ignore"):
        scaled, magnitude = _scaled(rope, length)
        frequencies = scaled.astype(np.float32)
    if rope.theta <= 1 or not np.isfinite(frequencies).all() or not math.isfinite(magnitude):
        raise ModelError(f"the rotary embedding with base {rope.theta} has frequencies that make no sense: the description is damaged")
    return frequencies, magnitude


def _scaled(rope: Rope, length: int) -> tuple[_Array, float]:
    plain = rope.theta ** (-np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim)
    magnitude = rope.magnitude or 1.0
    if rope.scaling in ("", "none", "default", "dynamic"):
        scaled = plain
    elif rope.scaling == "linear":
        scaled = plain / rope.factor
    elif rope.scaling == "llama3":
        scaled = _llama3(rope, plain)
    elif rope.scaling == "yarn":
        scaled = _yarn(rope, plain)
        magnitude = rope.magnitude or (0.1 * math.log(rope.factor) + 1 if rope.factor > 1 else 1.0)
    elif rope.scaling in ("longrope", "su"):
        factors = rope.long_factors if length > rope.original else rope.short_factors
        scaled = plain / np.asarray(factors) if len(factors) == len(plain) else plain
        grown = rope.factor > 1 and rope.original > 1
        magnitude = rope.magnitude or (math.sqrt(1 + math.log(rope.factor) / math.log(rope.original)) if grown else 1.0)
    else:
        raise UnsupportedModelError(f"the rotary embedding has the scaling {rope.scaling!r}, which is not supported")
    return scaled, magnitude


def _llama3(rope: Rope, plain: _Array) -> _Array:
    wavelength = 2 * math.pi / plain
    spread = max(rope.high - rope.low, 1e-9)
    smooth = np.clip((rope.original / wavelength - rope.low) / spread, 0, 1)
    return np.asarray((1 - smooth) * plain / rope.factor + smooth * plain)


def _yarn(rope: Rope, plain: _Array) -> _Array:
    """``low`` is beta_slow and ``high`` is beta_fast: rotations over the original context where the ramp ends and begins."""

    def at(rotations: float) -> float:
        return rope.dim * math.log(max(rope.original, 1) / (rotations * 2 * math.pi)) / (2 * math.log(max(rope.theta, 2.0)))

    first, last = max(math.floor(at(rope.high)), 0), min(math.ceil(at(rope.low)), rope.dim - 1)
    ramp = np.clip((np.arange(rope.dim // 2) - first) / max(last - first, 1e-3), 0, 1)
    return np.asarray(plain / rope.factor * ramp + plain * (1 - ramp))


class RotaryTables:
    """Cosines and sines of the positions ``[rows, 1]`` (float32), made once for every rotary embedding of a model."""

    def __init__(self, builder: GraphBuilder, position_ids: str, length: int, divisors: Tensor | None = None) -> None:
        self.builder, self.position_ids, self.length, self.divisors = builder, position_ids, length, divisors
        self._made: dict[Rope, tuple[str, str]] = {}
        self._positions = ""

    def of(self, rope: Rope) -> tuple[str, str]:
        """Names of the cosines and sines, ``[rows, dim / 2]`` each."""
        if rope not in self._made:
            self._made[rope] = self._tables(rope, f"rotary.{len(self._made)}" if self._made else "rotary")
        return self._made[rope]

    def apply(self, name: str, x: str, rope: Rope, heads: int) -> str:
        """Rotate the heads of ``[rows, heads · head_dim]``."""
        b = self.builder
        attrs: dict[str, AttrValue] = {"num_heads": heads, "interleaved": int(rope.interleaved)}
        if rope.dim * heads != b.shape(x)[-1]:
            attrs["rotary_embedding_dim"] = rope.dim
        return b.emit_many("RotaryEmbedding", name, [x, *self.of(rope)], [Tensor(name, b.shape(x), DType.F32)], attrs)[0]

    def _tables(self, rope: Rope, name: str) -> tuple[str, str]:
        b = self.builder
        frequencies, magnitude = inverse_frequencies(rope, self.length)
        angles = b.binary("Mul", f"{name}.angles", self._rows(), b.array(f"{name}.frequencies", frequencies))
        if self.divisors is not None:
            angles = b.binary("Div", f"{name}.angles_scaled", angles, b.weight(self.divisors))
        cos, sin = b.unary("Cos", f"{name}.cos", angles), b.unary("Sin", f"{name}.sin", angles)
        if magnitude == 1.0:
            return cos, sin
        factor = b.scalar(f"{name}.magnitude", magnitude)
        return b.binary("Mul", f"{name}.cos_scaled", cos, factor), b.binary("Mul", f"{name}.sin_scaled", sin, factor)

    def _rows(self) -> str:
        if not self._positions:
            b = self.builder
            real = b.emit("Cast", "rotary.positions", [self.position_ids], b.shape(self.position_ids), DType.F32, to=1)
            self._positions = b.reshape("rotary.rows", real, (b.tensors[real].elements, 1))
        return self._positions
