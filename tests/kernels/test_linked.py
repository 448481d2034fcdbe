"""Kernels as linked machine code, and as numba compiles them where nothing can be linked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetsched_kernels import linked, native
from hetsched_kernels.norm import rms_norm_f32
from hetsched_kernels.program import Call, counters, run_program, slots_of


def _normed(possible: bool) -> np.ndarray[Any, Any]:
    x, weight, out = np.arange(12, dtype=np.float32), np.linspace(1, 2, 4, dtype=np.float32), np.zeros(12, np.float32)
    call = Call(rms_norm_f32, (), (x, weight, out, 3, 4, 1e-3))
    (thunk,), owner = linked.addresses([call])
    slots = slots_of(call)
    table = np.array([thunk, slots.ctypes.data], np.int64)
    run_program(table, np.array([0, 1]), counters(1), np.zeros(1, np.int64), np.zeros(0, np.int64), 0, 1, 1, 0)
    assert (owner is not None) == possible
    return out


@pytest.mark.parametrize("possible", [native.usable(), False])
def test_linked_and_compiled_kernels_compute_the_same(possible: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not possible:
        monkeypatch.setattr(linked, "usable", lambda: False)
    want = np.zeros(12, np.float32)
    rms_norm_f32(np.arange(12, dtype=np.float32), np.linspace(1, 2, 4, dtype=np.float32), want, 3, 4, 1e-3)
    np.testing.assert_array_equal(_normed(possible), want)


@pytest.mark.skipif(not native.usable(), reason="machine code is linked on x86-64 Linux only")
def test_a_refusing_system_leaves_the_kernel_to_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise OSError("no executable memory")

    monkeypatch.setattr(linked, "Native", refuse)
    assert linked.linked([(rms_norm_f32, ())]) is None
