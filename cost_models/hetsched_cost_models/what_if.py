"""Hardware that the files' chips do not have: a larger system cache, arithmetic inside the DRAM, units that skip zeros.

- *System cache.* What the file's own cache spares is inside the fitted bandwidths and on-chip sizes. What a user adds to it is one more
  level between on-chip memory and DRAM: of a tensor of ``b`` bytes that spills, and of weights and states of ``b`` bytes in
  all, the share ``1 - s(b / added)`` is served there, ``s(x) = x^4 / (1 + x^4)``, with the cache's own energy. Everything past on-chip
  memory passes it at its own rate, the rest DRAM too.
- *Arithmetic in memory.* Products of one row with constant weights, where a weight is used once, are computed beside the DRAM arrays at
  the rate at which these deliver weights. The weights do not cross the bus; their energy is counted as any DRAM access, as nothing
  less is published for LPDDR.
- *Sparsity.* Convolutions and products whose weights are constant run ``factor`` times as fast, and read ``1 / factor`` of the weights,
  each with an index of two bits (2:4: two of four are kept). Depthwise and grouped convolutions, and products of two
  activations, have no zeros to skip.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hetsched.socs import Processor, SoC
from hetsched_cost_models.operators import CLASSES
from hetsched_cost_models.parameters import system_cache_defaults
from hetsched_cost_models.residency import spill
from hetsched_cost_models.work import BoolArray, FloatArray, Work

_PRODUCT = CLASSES.index("gemm")
_SPARSE = [CLASSES.index(c) for c in ("conv1x1", "conv", "conv3x3", "transposed", "gemm")]
_INDEX_BITS = 2.0


@dataclass(frozen=True, slots=True)
class Extra:
    """What a user has added to a chip, as one processor sees it; zeros and a sparsity of 1: nothing."""

    cache_bytes: float
    cache_bytes_s: float
    cache_j_per_byte: float
    in_memory_bytes_s: float
    dram_j_per_byte: float
    sparsity: float

    @property
    def adds(self) -> bool:
        """Whether there is anything."""
        return self != self.without

    @property
    def without(self) -> Extra:
        """The chip as its file has it."""
        return replace(self, cache_bytes=0.0, in_memory_bytes_s=0.0, sparsity=1.0)

    def seconds(self, past: FloatArray) -> FloatArray:
        """Seconds of the bytes past on-chip memory, hits and misses, at the cache's rate; 0 where nothing was added."""
        return past / self.cache_bytes_s if self.cache_bytes else np.zeros(len(past))

    def inside(self, near: FloatArray) -> FloatArray:
        """Seconds of the weights that are used in memory."""
        return near / self.in_memory_bytes_s if self.in_memory_bytes_s else np.zeros(len(near))

    def joules(self, cached: FloatArray, near: FloatArray) -> FloatArray:
        """Joules of what the cache serves, and of the weights that are used in memory."""
        return np.asarray(cached * self.cache_j_per_byte + near * self.dram_j_per_byte)

    def hits(self, size: FloatArray) -> FloatArray:
        """Share of the traffic of ``size`` bytes that the added cache serves."""
        return np.zeros(len(size)) if self.cache_bytes <= 0.0 else 1.0 - spill(size / self.cache_bytes)

    def left(self, work: Work, macs: FloatArray, weights: FloatArray, weight_bytes: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What stays for the processor: multiply-accumulates and bytes of weights; and the bytes of those that are used in memory.

        Args:
            work: of the operators.
            macs: [n] multiply-accumulates.
            weights: [n] bytes of weights.
            weight_bytes: of one dense weight.
        """
        sparse, inside = self._sparse(work, weights), self._in_memory(work, weights)
        weights = np.where(sparse, weights * self._kept(weight_bytes), weights)
        near = np.where(inside, weights, 0.0)
        return np.where(inside, 0.0, np.where(sparse, macs / self.sparsity, macs)), weights - near, near

    def _sparse(self, work: Work, weights: FloatArray) -> BoolArray:
        """[n] whose weights have zeros to skip."""
        return np.asarray(np.isin(work.cls, _SPARSE) & (weights > 0.0) & (self.sparsity > 1.0))

    def _kept(self, weight_bytes: float) -> float:
        """Bytes of sparse weights over those of dense ones of ``weight_bytes`` each."""
        return min(1.0, (1.0 + _INDEX_BITS / (8.0 * weight_bytes)) / self.sparsity)

    def _in_memory(self, work: Work, weights: FloatArray) -> BoolArray:
        """[n] what is computed in memory: products of one row with constant weights."""
        return np.asarray((work.cls == _PRODUCT) & (work.m <= 1.0) & (weights > 0.0) & (self.in_memory_bytes_s > 0.0))


def extra_of(soc: SoC, processor: Processor) -> Extra:
    """What a user has added; memory that is slower than the processor's way to DRAM adds nothing."""
    memory, cache = soc.memory, soc.memory.system_cache_bytes
    over_dram, joules = system_cache_defaults()
    rate = over_dram * memory.peak_bytes_s.value if memory.system_cache_bytes_s is None else memory.system_cache_bytes_s.value
    inside = 0.0 if memory.in_memory_bytes_s is None else memory.in_memory_bytes_s.value
    reachable = processor.bandwidth_bytes_s.value
    return Extra(
        cache_bytes=0.0 if cache.was is None else max(0.0, cache.value - cache.was),
        cache_bytes_s=max(rate, reachable),
        cache_j_per_byte=joules if memory.system_cache_j_per_byte is None else memory.system_cache_j_per_byte.value,
        in_memory_bytes_s=inside if inside > reachable else 0.0,
        dram_j_per_byte=memory.energy_j_per_byte.value,
        sparsity=1.0 if processor.sparsity is None else processor.sparsity.value,
    )


@dataclass(frozen=True, eq=False)
class Traffic:
    """Bytes past on-chip memory, one entry an op: weights (``ahead``: while other ops compute), states, spilled activations."""

    weights: FloatArray
    ahead: FloatArray
    states: FloatArray
    spilled: FloatArray

    @property
    def now(self) -> FloatArray:
        """What moves while the op itself runs."""
        return np.asarray(self.weights + self.states + self.spilled)


def served(extra: Extra, traffic: Traffic, persistent: float, size: FloatArray) -> Traffic:
    """The part of ``traffic`` that the added cache serves.

    Args:
        extra: what was added.
        traffic: all of it.
        persistent: bytes of all weights and states, which the next inference needs again.
        size: of each op, the bytes of the activations that must fit.
    """
    held, own = extra.hits(np.array([persistent]))[0], extra.hits(size)
    return Traffic(traffic.weights * held, traffic.ahead * held, traffic.states * held, traffic.spilled * own)
