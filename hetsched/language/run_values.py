"""Programs whose arguments change from run to run: positions, lengths and counts are written into the program before it runs.

A compiled program (:mod:`hetsched_kernels.tables`) is a table of kernels and of the words that they are called with. Here all
words lie in one array, and those that depend on a run-time value are a linear function of it, so that a new step costs one
assignment for each value that changes, however many kernels there are. :mod:`hetsched.language.program_words` makes one of kernel calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched_kernels.tables import Program, counters

Array = npt.NDArray[Any]


class Value(NamedTuple):
    """``plus + times · variable``."""

    variable: str
    times: int = 1
    plus: int = 0


class View(NamedTuple):
    """``array`` from element ``start`` on, ``size`` elements of it (None: as many as the whole array has)."""

    array: Array
    start: Value | None = None
    size: Value | None = None


@dataclass(frozen=True, eq=False)
class Descriptor:
    """An int64 array that kernels read, some of whose elements are run-time values."""

    values: tuple[int | Value, ...]


class Bindings(NamedTuple):
    """Words that depend on run-time values: word ``at`` is ``plus + times`` times the value number ``which``; int64 each."""

    at: Array
    which: Array
    times: Array
    plus: Array


class RunTimeProgram:
    """A program and the words in it that :meth:`set` writes.

    Attributes:
        program: the program.
        shared: what its threads count together.
        variables: names of the run-time values.
        words: int64, what its kernels are called with.
        bindings: which of them depend on the values.
    """

    def __init__(self, variables: Sequence[str], words: Array, bindings: Bindings, program: Program) -> None:
        self.program, self.variables, self.words, self.bindings = program, tuple(variables), words, bindings
        self.shared = counters(len(program.steps) - 1)
        self._now: dict[str, int] = {}
        order = np.argsort(bindings.which, kind="stable")
        edges = np.searchsorted(bindings.which[order], np.arange(len(self.variables) + 1))
        parts = [order[a:b] for a, b in pairwise(edges)]
        self._words_of = {
            name: (bindings.at[p], bindings.times[p], bindings.plus[p]) for name, p in zip(self.variables, parts, strict=True)
        }

    def set(self, values: Mapping[str, int]) -> None:
        """Write run-time values; those that are not named stay as they are, at first 0."""
        now, words = self._now, self.words
        if not now:
            values = dict.fromkeys(self.variables, 0) | dict(values)
        for name, value in values.items():
            if now.get(name) != value:
                at, times, plus = self._words_of[name]
                now[name] = value
                words[at] = times * value + plus
