"""Kernels of programs as linked machine code: a process whose cache has their objects starts without the compiler.

Where machine code cannot be linked (:func:`hetsched_kernels.native.usable`), numba compiles the kernels or loads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hetsched_kernels import objects, program
from hetsched_kernels.compilation import Kernel
from hetsched_kernels.elf import UnlinkableError
from hetsched_kernels.native import Native, usable
from hetsched_kernels.program import Call


def linked(keys: Sequence[tuple[Kernel, tuple[str, ...]]]) -> Native | None:
    """The thunks of kernels and element types as machine code; None where they cannot be linked."""
    if usable():
        with suppress(UnlinkableError, OSError):
            return Native(objects.link(dict.fromkeys(keys)))
    return None


def addresses(calls: Sequence[Call]) -> tuple[list[int], Any]:
    """The address of each call's thunk, and the object that owns their code."""
    native = linked([(call.kernel, call.dtypes) for call in calls])
    if native is None:
        return program.addresses(calls), None
    return [native.pointer(objects.symbol_of(call.kernel, call.dtypes)) for call in calls], native
