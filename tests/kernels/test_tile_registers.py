"""Tile registers are used where the process may have them, and only there; the results are the same bits."""

import subprocess
import sys
import textwrap

import pytest

from hetsched_kernels.target import target, target_of

_SCRIPT = textwrap.dedent("""
    import ctypes, hashlib, sys

    if sys.argv[1] == "refused":  # no room for the state on a signal's stack: the system refuses it
        class Stack(ctypes.Structure):
            _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

        room = ctypes.create_string_buffer(1 << 16)
        assert ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(room), 0, 4096)), None) == 0

    import numpy as np
    from hetsched_kernels import codes, gemm_i8
    from hetsched_kernels.arrays import NO_F32
    from hetsched_kernels.compilation import kernel
    from hetsched_kernels.comparison_language import quantized_rows
    from hetsched_kernels.few_bits import pack_groups
    from hetsched_kernels.gemm_groups import gemm_groups_f32, gemm_groups_scratch
    from hetsched_kernels.groups import Groups
    from hetsched_kernels.tile_amx import permitted

    @kernel
    def allowed() -> int:
        return permitted()

    rng = np.random.default_rng(0)
    m, n, k = 53, 70, 192
    q, w = rng.integers(0, 256, m * k).astype(np.uint8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    out, scratch = np.empty(m * n, np.int32), np.empty(gemm_i8.gemm_i8_scratch(m, n, k), np.uint8)
    gemm_i8.gemm_i8_i32(q, np.zeros(1, np.int32), *gemm_i8.pack_b_i8(w), out, scratch, m, n, k, False)
    np.testing.assert_array_equal(out.reshape(m, n), q.reshape(m, k).astype(np.int32) @ w.astype(np.int32))

    scales = np.full((n, k // 32), 0.5, np.float32)
    weight = Groups(rng.integers(0, 16, (n, k)).astype(np.uint8), 4, 32, scales)
    data, shape = pack_groups(weight)
    x = rng.integers(-127, 128, (m, k)).astype(np.float32)
    x[:, ::32] = 127  # so that every group's scale is 1 and all sums are whole
    got, room = np.empty(m * n, np.float32), np.empty(gemm_groups_scratch(shape), np.float32)
    gemm_groups_f32(*quantized_rows(x, k, 32), data, shape, NO_F32, got, room, m, 0, n, codes.NONE, 0.0, 0.0)
    np.testing.assert_array_equal(got.reshape(m, n), x @ weight.reals().T)
    print(allowed(), hashlib.sha256(out.tobytes() + got.tobytes()).hexdigest())
""")


def _run(mode: str) -> list[str]:
    process = subprocess.run([sys.executable, "-c", _SCRIPT, mode], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    return process.stdout.split()


@pytest.mark.skipif(not target().amx, reason="numba's target has no tile registers")
def test_where_the_system_refuses_tiles_vectors_give_the_same_bits() -> None:
    refused, digest = _run("refused")
    assert refused == "0"
    assert _run("asked")[1] == digest


def test_tiles_need_the_system_whose_call_asks_for_them() -> None:
    named = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "amx-tile", "amx-int8"}
    assert target_of("x86_64-unknown-linux-gnu", "sapphirerapids", named).amx
    assert not target_of("x86_64-pc-windows-msvc", "sapphirerapids", named).amx
    assert not target_of("x86_64-unknown-linux-gnu", "sapphirerapids", named - {"amx-tile"}).amx
