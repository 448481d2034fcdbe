"""A decoder's step as one program: any number of new tokens up to a limit, after any number of cached ones.

:mod:`hetsched.language.step_lowering` makes one of a graph, :mod:`hetsched.language.stored_steps` of what an earlier process kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from hetsched.language.run_values import RunTimeProgram
from hetsched.language.step_values import newest_values, values, window_values

Array = npt.NDArray[Any]


@dataclass(eq=False)
class Step:
    """The program of a step.

    Attributes:
        input: the tensor that ``embedded`` holds.
        embedded: float32 [most new tokens, hidden], the embedded tokens: written before a run.
        logits: float32 [most rows whose scores are computed, vocabulary], after a run.
        pages: int64, the page numbers of the sequence at work: written before a run.
        states: float32, its states of a fixed size: written before a run, new after it.
        program: the compiled program.
        labels: what each of its steps computes: the first operator that begins there.
        parts: parts that its rows have.
        windows: windows of its layers.
        page: tokens of a page.
    """

    input: str
    embedded: Array
    logits: Array
    pages: Array
    states: Array
    program: RunTimeProgram
    labels: Sequence[str]
    parts: int
    windows: tuple[int, ...]
    page: int

    def prepare(self, rows: int, position: int, scored: int, window: int = 0, fresh: int = 0) -> None:
        """Write the run-time values of the next run.

        Args:
            rows: new tokens.
            position: position of the first.
            scored: how many of the last rows' scores are wanted.
            window: tokens that each new one sees at most (0: all).
            fresh: tokens before them that are in float16, beside a cache of fewer bits.
        """
        newest = newest_values(rows, position, fresh, self.page)
        self.program.set(values(self.parts, rows, position, scored) | window_values(self.windows, window) | newest)
