"""How the next token is chosen from its scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import OptionError
from hetsched_kernels.linked import linked_call
from hetsched_kernels.sampling import sample_f32, sample_scratch


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
                raise OptionError(f"{name} {value:g} is out of range: use {low:g} to {high:g}")


class Chooser:
    """Chooses the tokens of one answer."""

    def __init__(self, options: Sampling, vocabulary: int) -> None:
        self.options = options
        self._state = np.array([options.seed], np.uint64)
        self._out = np.zeros(1, np.int64)
        self._scratch = np.zeros(sample_scratch(vocabulary), np.float32)
        self._sample = linked_call(sample_f32)

    def choose(self, logits: npt.NDArray[Any], before: Sequence[int]) -> int:
        """The next token, from scores ``[vocabulary]`` and the tokens before it."""
        o = self.options
        recent = np.array(before[len(before) - o.recent :] if o.recent and o.repetition != 1.0 else (), np.int64)
        args = (o.temperature, o.top_k, o.top_p, o.repetition)
        self._sample(logits, recent, self._out, self._state, self._scratch, 1, logits.size, *args)
        return int(self._out[0])
