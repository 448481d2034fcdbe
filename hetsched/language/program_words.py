"""From kernel calls to a program with run-time values: one array of words, and where addresses are in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from hetsched.language.run_values import Bindings, Descriptor, RunTimeProgram, Value, View
from hetsched_kernels.linked import addresses
from hetsched_kernels.program import Call, Program, core, slots_of

Array = npt.NDArray[Any]


@dataclass(eq=False)
class Assembled:
    """A program and what it was made of.

    Attributes:
        program: the program.
        calls: its calls, with plain arrays and numbers.
        starts: word with which each call's begin.
        pointers: words that are addresses, and the arrays there; those of descriptors are in the words themselves.
        bases: bindings whose addend is an address, and the arrays there.
    """

    program: RunTimeProgram
    calls: Sequence[Call]
    starts: Sequence[int]
    pointers: Sequence[tuple[int, Array]]
    bases: Sequence[tuple[int, Array]]


@dataclass(eq=False)
class _Words:
    """The words so far."""

    words: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    bindings: list[tuple[int, Value, int, int]] = field(default_factory=list)
    pointers: list[tuple[int, Array]] = field(default_factory=list)
    bases: list[tuple[int, Array]] = field(default_factory=list)
    descriptors: list[tuple[int, Descriptor]] = field(default_factory=list)

    def add(self, call: Call, settled: Call) -> None:
        """Add the words of a call; ``settled`` has arrays and numbers in place of run-time values."""
        at = len(self.words)
        self.starts.append(at)
        for kind, arg, plain in zip(call.kernel.signature(*call.dtypes), call.args, settled.args, strict=True):
            if isinstance(arg, Value):
                self.bindings.append((at, arg, 1, 0))
            if isinstance(arg, View):
                self._view(at, arg)
            if isinstance(arg, Descriptor):
                self.descriptors.append((at, arg))
            elif isinstance(kind, types.Array):
                self.pointers.append((at, plain))
            at += 2 if isinstance(kind, types.Array) else 1
        self.words += slots_of(settled).tolist()

    def _view(self, at: int, view: View) -> None:
        if view.start is not None:
            self.bases.append((len(self.bindings), view.array))
            self.bindings.append((at, view.start, view.array.itemsize, view.array.__array_interface__["data"][0]))
        if view.size is not None:
            self.bindings.append((at + 1, view.size, 1, 0))

    def place(self, stand_in: Mapping[int, tuple[Descriptor, Array]]) -> Array:
        """All words, those of the descriptors at the end."""
        where = {}
        for number, (descriptor, values) in stand_in.items():
            where[number] = at = len(self.words)
            self.words += values.tolist()
            self.bindings += [(at + i, v, 1, 0) for i, v in enumerate(descriptor.values) if isinstance(v, Value)]
        words = np.array(self.words, np.int64)
        for at, descriptor in self.descriptors:
            own = words[where[id(descriptor)] :]
            words[at] = own.__array_interface__["data"][0]
            self.pointers.append((at, own))
        return words


def assemble(steps: Sequence[Sequence[Call]], variables: Sequence[str]) -> Assembled:
    """The program of ``steps``, whose run-time values are called ``variables``."""
    plain = [core(call) for step in steps for call in step]
    stand_in = {
        id(a): (a, np.array([v if isinstance(v, int) else v.plus for v in a.values], np.int64))
        for call in plain for a in call.args if isinstance(a, Descriptor)
    }  # fmt: skip
    settled = [Call(call.kernel, call.dtypes, tuple(_settled(a, stand_in) for a in call.args)) for call in plain]
    found = _Words()
    for call, fixed in zip(plain, settled, strict=True):
        found.add(call, fixed)
    words, index = found.place(stand_in), {name: n for n, name in enumerate(variables)}
    rows = [(at, index[v.variable], v.times * times, v.plus * times + plus) for at, v, times, plus in found.bindings]
    bindings = Bindings(*np.array(rows, np.int64).reshape(-1, 4).T.copy())
    thunks, code = addresses(settled)
    slots = words.__array_interface__["data"][0] + 8 * np.array(found.starts, np.int64)
    table = np.stack([np.array(thunks, np.int64), slots], axis=1).reshape(-1)
    ends = np.cumsum([0, *(len(step) for step in steps)]).astype(np.int64)
    program = RunTimeProgram(variables, words, bindings, Program(table, ends, (code, settled)))
    return Assembled(program, settled, found.starts, found.pointers, found.bases)


def _settled(argument: Any, stand_in: Mapping[int, tuple[Descriptor, Array]]) -> Any:
    """What a program is compiled with in place of a run-time value."""
    if isinstance(argument, Value):
        return 0
    if isinstance(argument, View):
        return argument.array
    return stand_in[id(argument)][1] if isinstance(argument, Descriptor) else argument
