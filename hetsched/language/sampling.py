"""How the next token is chosen from its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, OptionError
from hetsched.runtime.stored_code import kernels
from hetsched_kernels.sampling_scratch import sample_scratch

#: Lower temperatures have no inverse in float32: the best score takes all.
_LEAST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Options of the choice; the default is greedy.

    Attributes:
        temperature: scores are divided by it; 0 takes the best.
        top_k: only so many of the best count; 0 for all.
        top_p: of these, the best that have this probability together; 1 for all.
        repetition: scores of recent tokens are divided by it where positive and multiplied where negative; 1 for none.
        recent: how many of the last tokens are recent.
        seed: of the draws; the same seed gives the same tokens.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition: float = 1.0
    recent: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            OptionError: one is out of range.
        """
        limits = (
            ("--temperature", self.temperature, 0.0, 100.0), ("--top-k", self.top_k, 0, 1 << 24), ("--top-p", self.top_p, 1e-6, 1.0),
            ("--repetition", self.repetition, 0.1, 10.0), ("--seed", self.seed, 0, (1 << 63) - 1), ("recent", self.recent, 0, 1 << 20),
        )  # fmt: skip
        for name, value, low, high in limits:
            if not low <= value <= high:
                said = (f"{v:g}" if isinstance(v, float) else str(v) for v in (value, low, high))
                raise OptionError("{} {} is out of range: use {} to {}".format(name, *said))


class Chooser:
    """Chooses the tokens of one answer."""

    def __init__(self, options: Sampling, vocabulary: int) -> None:
        self.options = options
        self._state = np.array([options.seed], np.uint64)
        self._out = np.zeros(1, np.int64)
        self._scratch = np.zeros(sample_scratch(vocabulary), np.float32)
        self._sample = _sampler()

    def choose(self, logits: npt.NDArray[Any], before: Sequence[int]) -> int:
        """The next token, from scores ``[vocabulary]`` and the tokens before it.

        Raises:
            ExecutionError: the best score is no number, so there is none to choose.
        """
        o = self.options
        if not np.isfinite(logits.max()):
            raise ExecutionError(f"the best of the model's scores is {logits.max()}: its weights are damaged, or --precision is too coarse")
        recent = np.array(before[len(before) - o.recent :] if o.recent and o.repetition != 1.0 else (), np.int64)
        temperature = float(o.temperature) if o.temperature >= _LEAST else 0.0
        args = (temperature, o.top_k, float(o.top_p), float(o.repetition))
        self._sample(logits, recent, self._out, self._state, self._scratch, 1, logits.size, *args)
        return int(self._out[0])


@cache
def _sampler() -> Callable[..., Any]:
    """The kernel that chooses: linked, which takes as long as a step and is done once, or as numba compiles it."""
    found = kernels("sampling:sample_f32")
    if found is not None:
        return found.native.function(*found.symbols)
    from hetsched_kernels.sampling import sample_f32

    kernel: Callable[..., Any] = sample_f32
    return kernel
