"""The compiled functions that the runtime itself calls: those that numba compiles, or those of a stored executable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hetsched_kernels.native import Native


class Code(NamedTuple):
    """Functions of :mod:`hetsched_kernels.fence` and :mod:`hetsched_kernels.program`, called with arrays and numbers."""

    signal: Callable[..., Any]
    wait_ge: Callable[..., Any]
    pause: Callable[..., Any]
    run_program: Callable[..., Any]


def compiled() -> Code:
    """What numba compiles, or loads from its cache."""
    from hetsched_kernels import fence, program

    return Code(fence.signal.compile(), fence.wait_ge.compile(), fence.pause.compile(), program.run_program.compile())


def linked_code(native: Native, symbols: Sequence[str]) -> Code:
    """The functions of linked machine code, whose symbols are in the order of :class:`Code`."""
    signal, wait, pause, run = (native.function(s) for s in symbols)

    def wait_ge(flags: Any, index: int, value: int, spins: int) -> bool:
        wait(flags, index, value, spins)
        return bool(flags[index] >= value)

    return Code(signal, wait_ge, pause, run)


def quickest() -> Code:
    """What can be linked of the cache's objects, which loads no compiler; else what numba compiles."""
    from hetsched_kernels import objects
    from hetsched_kernels.linked import linked

    native = linked(objects.OWN)
    return compiled() if native is None else linked_code(native, [objects.symbol_of(*key) for key in objects.OWN])
