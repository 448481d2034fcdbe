"""How much faster cores that share the work of every operator are than one: what prices a queue of several cores.

A small program of the usual kinds of work, divided as the runtime divides operators, some too small for it. Importing this
module imports numba.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hetsched_cost_models.host.threads import elapsed_s
from hetsched_cost_models.host.timing import pinned
from hetsched_kernels import binary, codes, elementwise, gemm
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.program import Call, compile_program, counters, run_program

#: Parts of each step: as for an operator of middle size, two for each of two threads or one for each of four.
_PARTS = 4
#: How often the program runs for one time, and how many of them are looked at.
_TURNS, _TRIES = 4, 6
_ROWS, _COLUMNS, _DEPTH = 128, 384, 384
_ELEMENTS = 1 << 16


class Shared:
    """The program, ready to run on the first of some cores or on all of them.

    Args:
        cores: two or more.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        steps = [step for _ in range(4) for step in (_products(), _functions(), _sums(), _small(), _small())]
        self.cores = tuple(cores)
        self._program = compile_program(steps)
        self._steps = len(steps)
        self._run = run_program.compile()
        self._stamps, self._stop = np.zeros(0, np.int64), np.zeros(1, np.int64)

    def alone_s(self) -> float:
        """Seconds of the program on one core: the fastest of a few tries."""
        return min(self._alone() for _ in range(_TRIES))

    def together_s(self) -> float:
        """The same on all."""
        return min(self._together() for _ in range(_TRIES))

    def _alone(self) -> float:
        with pinned(self.cores[:1]):
            begin = time.perf_counter()
            for turn in range(_TURNS):
                self._turn(counters(1), 1, turn)
            return (time.perf_counter() - begin) / _TURNS

    def _together(self) -> float:
        shared, start, ends = counters(self._steps), threading.Barrier(len(self.cores)), list[tuple[float, float]]()

        def work(core: int) -> None:
            with pinned((core,)):
                start.wait()
                begin = time.perf_counter()
                for turn in range(_TURNS):
                    self._turn(shared, len(self.cores), turn)
                ends.append((begin, time.perf_counter()))

        threads = [threading.Thread(target=work, args=(core,)) for core in self.cores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return elapsed_s(ends) / _TURNS

    def _turn(self, shared: Any, threads: int, turn: int) -> None:
        table, steps, _ = self._program
        self._run(table, steps, shared, self._stop, self._stamps, 0, self._steps, threads, turn)


def _noise(n: int) -> Any:
    return np.random.default_rng(n).standard_normal(n, dtype=np.float32)


def _products() -> list[Call]:
    """A product with constant weights, by rows."""
    b = gemm.pack_b_f32(_noise(_DEPTH * _COLUMNS).reshape(_DEPTH, _COLUMNS))
    rows = _ROWS // _PARTS
    return [
        Call(
            gemm.gemm_f32, (),
            (
                _noise(rows * _DEPTH), b, NO_F32, np.zeros(rows * _COLUMNS, np.float32),
                np.zeros(gemm.gemm_f32_scratch(rows, _COLUMNS, _DEPTH), np.float32), rows, _COLUMNS, _DEPTH, codes.NONE, 0.0, 0.0,
            ),
        )
        for _ in range(_PARTS)
    ]  # fmt: skip


def _functions() -> list[Call]:
    """A function of every element."""
    n = _ELEMENTS // _PARTS
    return [Call(elementwise.unary_f32, (), (_noise(n), np.zeros(n, np.float32), codes.GELU, 0.0, 0.0)) for _ in range(_PARTS)]


def _sums() -> list[Call]:
    """Sums of two tensors."""
    n, one = _ELEMENTS // _PARTS, np.ones(1, np.int64)
    shape = np.array([n], np.int64)
    return [Call(binary.binary_f32, (), (_noise(n), _noise(n), np.zeros(n, np.float32), codes.ADD, shape, one, one)) for _ in range(_PARTS)]


def _small() -> list[Call]:
    """An operator that is too small to be divided."""
    n = 1 << 11
    return [Call(elementwise.unary_f32, (), (_noise(n), np.zeros(n, np.float32), codes.RELU, 0.0, 0.0))]
