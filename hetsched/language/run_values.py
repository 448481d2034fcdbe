"""Programs whose arguments change from run to run: positions, lengths and counts are written into the program before it runs.

A compiled program (:mod:`hetsched_kernels.program`) is a table of kernels and of the words that they are called with. Here all
words lie in one array, and those that depend on a run-time value are a linear function of it, so that a new step costs one
assignment however many kernels there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from hetsched_kernels.linked import addresses
from hetsched_kernels.program import Call, Program, core, counters, slots_of

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


class RunTimeProgram:
    """A program and the words in it that :meth:`set` writes."""

    def __init__(self, steps: Sequence[Sequence[Call]], variables: Sequence[str]) -> None:
        plain = [core(call) for step in steps for call in step]
        descriptors = list({id(a): a for call in plain for a in call.args if isinstance(a, Descriptor)}.values())
        stand_in = {id(d): np.array([v if isinstance(v, int) else v.plus for v in d.values], np.int64) for d in descriptors}
        settled = [Call(call.kernel, call.dtypes, tuple(_settled(a, stand_in) for a in call.args)) for call in plain]
        index = {name: n for n, name in enumerate(variables)}
        words, starts, bindings = self._words(plain, settled)
        for d in descriptors:
            at = len(words)
            words.extend(stand_in[id(d)].tolist())
            starts[id(d)] = at
            bindings += [(at + i, v, 1, 0) for i, v in enumerate(d.values) if isinstance(v, Value)]
        self._all = np.array(words, np.int64)
        self._place(plain, starts)
        self._at = np.array([b[0] for b in bindings], np.int64)
        self._which = np.array([index[b[1].variable] for b in bindings], np.int64)
        self._times = np.array([b[1].times * b[2] for b in bindings], np.int64)
        self._plus = np.array([b[1].plus * b[2] + b[3] for b in bindings], np.int64)
        self._now = np.zeros(len(variables), np.int64)
        self._index = index
        thunks, code = addresses(settled)
        slots = [self._all.ctypes.data + 8 * starts[number] for number in range(len(plain))]
        ends = np.cumsum([0, *(len(step) for step in steps)])
        self.program = Program(np.array([thunks, slots], np.int64).T.reshape(-1), ends.astype(np.int64), (code, plain, stand_in))
        self.shared = counters(len(steps))

    def set(self, values: Mapping[str, int]) -> None:
        """Write run-time values; those that are not named stay as they are."""
        for name, value in values.items():
            self._now[self._index[name]] = value
        self._all[self._at] = self._now[self._which] * self._times + self._plus

    @staticmethod
    def _words(calls: Sequence[Call], settled: Sequence[Call]) -> tuple[list[int], dict[int, int], list[tuple[int, Value, int, int]]]:
        """The words of all calls, where each call's begin, and (word, value, factor, addend) of those that change."""
        words: list[int] = []
        starts: dict[int, int] = {}
        bindings: list[tuple[int, Value, int, int]] = []
        for number, (call, plain) in enumerate(zip(calls, settled, strict=True)):
            starts[number] = at = len(words)
            for kind, arg in zip(call.kernel.signature(*call.dtypes), call.args, strict=True):
                if isinstance(arg, Value):
                    bindings.append((at, arg, 1, 0))
                elif isinstance(arg, View):
                    base, item = arg.array.__array_interface__["data"][0], arg.array.itemsize
                    bindings += [(at, arg.start, item, base)] if arg.start is not None else []
                    bindings += [(at + 1, arg.size, 1, 0)] if arg.size is not None else []
                at += 2 if isinstance(kind, types.Array) else 1
            words += slots_of(plain).tolist()
        return words, starts, bindings

    def _place(self, calls: Sequence[Call], starts: Mapping[int, int]) -> None:
        """Let kernels read their descriptors where they now lie."""
        base = self._all.ctypes.data
        for number, call in enumerate(calls):
            at = starts[number]
            for kind, arg in zip(call.kernel.signature(*call.dtypes), call.args, strict=True):
                if isinstance(arg, Descriptor):
                    self._all[at] = base + 8 * starts[id(arg)]
                at += 2 if isinstance(kind, types.Array) else 1


def _settled(argument: Any, stand_in: Mapping[int, Array]) -> Any:
    """What a program is compiled with in place of a run-time value."""
    if isinstance(argument, Value):
        return 0
    if isinstance(argument, View):
        return argument.array
    return stand_in[id(argument)] if isinstance(argument, Descriptor) else argument
