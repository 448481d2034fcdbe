"""Kernels that are linked once and kept: called without a compiler, compiled where machine code cannot be linked."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hetsched.runtime import code, stored_code
from hetsched.runtime import executable_cache as cache
from hetsched_kernels.native import usable

linkable = pytest.mark.skipif(not usable(), reason="machine code is linked on x86-64 Linux only")
NORM = "norm:rms_norm_f32"


def normed(found: stored_code.Kernels) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    out = np.zeros(12, np.float32)
    run = found.native.function(*found.symbols)
    run(np.arange(12, dtype=np.float32), np.linspace(1, 2, 4, dtype=np.float32), out, 3, 4, 1e-3)
    return out


@linkable
def test_a_kept_kernel_computes_what_numba_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from hetsched_kernels.norm import rms_norm_f32

    want = np.zeros(12, np.float32)
    rms_norm_f32(np.arange(12, dtype=np.float32), np.linspace(1, 2, 4, dtype=np.float32), want, 3, 4, 1e-3)
    first = stored_code.kernels(NORM)
    monkeypatch.setattr(stored_code, "_linked", lambda _: pytest.fail("it is linked again"))
    again = stored_code.kernels(NORM)
    assert first is not None and again is not None
    np.testing.assert_array_equal(normed(first), want)
    np.testing.assert_array_equal(normed(again), want)


@linkable
def test_kept_code_needs_no_compiler() -> None:
    code.quickest()
    script = f"""
import sys
from pathlib import Path
from hetsched.runtime import executable_cache
executable_cache.folder = lambda: Path({str(cache.folder())!r})
from hetsched.runtime.code import quickest
import numpy as np
flags = np.zeros(4, np.int64)
quickest().signal(flags, 2, 7)
assert flags.tolist() == [0, 0, 7, 0] and quickest().wait_ge(flags, 2, 7, 10)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_where_nothing_can_be_linked_numba_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_code, "usable", lambda: False)
    assert stored_code.kernels(NORM) is None
    flags = np.zeros(4, np.int64)
    code.quickest().signal(flags, 1, 3)
    assert flags.tolist() == [0, 3, 0, 0]


@linkable
def test_a_system_that_maps_no_code_leaves_it_to_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise OSError("no executable memory")

    monkeypatch.setattr(stored_code, "Native", refuse)
    assert stored_code.kernels(NORM) is None
