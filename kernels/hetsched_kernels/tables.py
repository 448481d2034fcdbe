"""What compiled programs and linked machine code are, for those who run them: no numba is needed to hold one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hetsched_kernels.arrays import Array

#: int64 elements from counter to counter: a cache line.
STRIDE = 8
#: Runs that a mailbox holds; int64 elements of each, the first of them unused, and which of them is the number of threads.
MAILS, MAIL, MAIL_THREADS = 8, 16, 13


class Program(NamedTuple):
    """What :data:`hetsched_kernels.program.run_program` takes.

    Attributes:
        table: int64 [calls, 2]: thunk, slots.
        steps: int64 [steps + 1]: the first call of each step.
        kept: arrays that the table knows by address.
    """

    table: Array
    steps: Array
    kept: tuple[Any, ...]


class Image(NamedTuple):
    """Machine code and constants that are mapped as one piece, to be read and executed.

    Attributes:
        data: the bytes.
        symbols: offsets of the functions.
        inside: offsets of 64-bit words to which the image's address is added.
        imports: offsets of 64-bit words that hold the address of a C function, by its name.
    """

    data: bytes
    symbols: Mapping[str, int]
    inside: tuple[int, ...]
    imports: Mapping[str, tuple[int, ...]]


def counters(steps: int) -> Array:
    """What the threads of a program share: per step the calls taken and done, over all turns; then what :func:`refused` reads."""
    return np.zeros((2 * steps + 1) * STRIDE, np.int64)


def refused(shared: Array) -> int | None:
    """The call whose kernel refused what it was given, None if none did."""
    return int(shared[-STRIDE]) - 1 if shared[-STRIDE] else None


def mailbox() -> Array:
    """Where a run is put for :data:`hetsched_kernels.program.serve`: the number of the newest, then run ``n`` in row ``1 + n % MAILS``."""
    return np.zeros((1 + MAILS) * MAIL, np.int64)
