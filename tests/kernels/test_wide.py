"""Loops that ask for registers of full width get them, and only those."""

from typing import Any

import numba
import numpy as np
import pytest

from hetsched_kernels.target import target
from hetsched_kernels.wide import full_width


def assembly(function: Any) -> str:
    compiled = numba.njit(fastmath={"contract"})(function)
    compiled(np.ones(64, np.float32))
    return str(next(iter(compiled.inspect_asm().values())))


def asking(x: Any) -> None:
    full_width()
    for i in range(x.shape[0]):
        x[i] = x[i] * x[i] + x[i]


@pytest.mark.skipif(not target().avx512, reason="no registers of 512 bits here")
def test_a_loop_that_asks_uses_registers_of_512_bits() -> None:
    assert "zmm" in assembly(asking)


@pytest.mark.skipif(target().avx512, reason="there are registers of 512 bits here")
def test_elsewhere_it_changes_nothing() -> None:
    assert "zmm" not in assembly(asking)
