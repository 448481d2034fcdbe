"""The compiled functions that the runtime itself calls: those that numba compiles, or those of a stored executable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hetsched_kernels.native import Native


class Code(NamedTuple):
    """Functions of :mod:`hetsched_kernels.fence` and :mod:`hetsched_kernels.program`, called with arrays and numbers.

    ``run_thunk`` is the address of :data:`hetsched_kernels.program.run_program`, which is called with the address of its slots.
    """

    signal: Callable[..., Any]
    wait_ge: Callable[..., Any]
    pause: Callable[..., Any]
    serve: Callable[..., Any]
    run_thunk: int


def compiled() -> Code:
    """What numba compiles, or loads from its cache."""
    from hetsched_kernels import fence, program

    thunk = program.addresses([program.Call(program.run_program, (), ())])[0]
    return Code(fence.signal.compile(), fence.wait_ge.compile(), fence.pause.compile(), program.serve.compile(), thunk)


def linked_code(native: Native, symbols: Sequence[str]) -> Code:
    """The functions of linked machine code, whose symbols are in the order of :class:`Code`."""
    signal, wait, pause, serve = (native.function(symbols[i]) for i in (0, 1, 2, 4))

    def wait_ge(flags: Any, index: int, value: int, spins: int) -> bool:
        wait(flags, index, value, spins)
        return bool(flags[index] >= value)

    return Code(signal, wait_ge, pause, serve, native.pointer(symbols[3]))


def quickest() -> Code:
    """What is linked already, or can be, which loads no compiler; else what numba compiles."""
    from hetsched.runtime.stored_code import kernels

    found = kernels("fence:signal", "fence:wait_ge", "fence:pause", "program:run_program", "program:serve")
    return compiled() if found is None else linked_code(*found)
