"""The compiled functions that the runtime itself calls: those that numba compiles, or those of a stored executable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


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
