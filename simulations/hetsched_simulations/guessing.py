"""Guessed tokens: how many of them each step of an answer has and accepts, drawn at random with a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hetsched.acceptance import Shares


class Guessed(NamedTuple):
    """A step: how many tokens are guessed, and how many of these are accepted. It makes one token more."""

    guesses: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Guessing:
    """How tokens are guessed.

    Attributes:
        shares: how often a step has so many guesses of which so many are accepted (:mod:`hetsched.acceptance`).
        seed: of what is drawn.
        by_level: other shares of throttle levels.
    """

    shares: Shares
    seed: int = 0
    by_level: Mapping[int, Shares] = field(default_factory=dict)

    def steps(self, tokens: int, number: int = 0, level: int = 0) -> list[Guessed]:
        """The steps that make an answer of so many tokens; no guess goes beyond its end.

        Args:
            tokens: of the answer.
            number: of the answer in the run: each has draws of its own.
            level: the throttle level.
        """
        shares = self.by_level.get(level, self.shares)
        kinds = [Guessed(d, k) for d, row in enumerate(shares) for k, share in enumerate(row) if share > 0.0]
        chance = np.array([shares[d][k] for d, k in kinds])
        drawn = np.random.default_rng([self.seed, number]).choice(len(kinds), tokens, p=chance / chance.sum())
        out, left = list[Guessed](), tokens
        for kind in drawn.tolist():
            if not left:
                break
            guesses = min(kinds[kind].guesses, left - 1)
            out.append(Guessed(guesses, min(kinds[kind].accepted, guesses)))
            left -= out[-1].accepted + 1
        return out
