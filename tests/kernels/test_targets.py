"""The same results on every processor that numba may compile for: the effective target decides, not the host."""

import os
import subprocess
import sys
import textwrap

import pytest

_IMAGES = ("conv2d_nhwc_i8", "conv2d_nhwc_i8 in tiles", "depthwise_nhwc_i8", "add_u8", "multiply_u8", "map_u8", "mean_nhwc_u8")
_EXACT = ("gemm_i8_i32", "gemm_i8_f32", "gemm_i8_q8", "matmul_i8", "quantize_groups", *_IMAGES)
_CLOSE = (
    "conv2d_nhwc_f32", "conv2d_winograd_f32", "gemm_f32", "gemm_halves_f32", "matmul_f32", "f16",
    "gemm_groups_f32 4-bit g32", "gemm_groups_f32 5-bit g32 with minima", "gemm_groups_f32 6-bit g16",
    "gemm_groups_f32 8-bit g32", "gemm_groups_f32 2-bit g256", "gemm_groups_f32 Q4_K", "gemm_w4a16", "attend_cache",
    "lstm_f32", "gru_f32", "local_response_f32", "sample_f32", "attend_masked_f32", "experts_groups_f32", "selective_scan_f32",
    "attend_pages fp16/fp16", "attend_pages fp8/fp8", "attend_pages int8/int4", "quantize_twofold", "gemm_twofold_f32 4-bit with minima",
)  # fmt: skip
_SCRIPT = textwrap.dedent("""
    import hashlib, sys
    import numpy as np
    from hetsched_kernels.comparison import table

    class Seeded:
        def __init__(self, seed): self.rng = np.random.default_rng(seed)
        def integer(self, low, high): return int(self.rng.integers(low, high + 1))
        def choice(self, options): return options[int(self.rng.integers(len(options)))]

    names = sys.argv[1].split(",")
    digest = hashlib.sha256()
    for comparison in table():
        if comparison.name not in names:
            continue
        for seed in range(12):
            got, expected = comparison.case(Seeded(seed))
            np.testing.assert_allclose(got, expected, rtol=comparison.relative, atol=comparison.absolute)
            if comparison.relative == 0:
                digest.update(np.ascontiguousarray(got).tobytes())
    print(digest.hexdigest())
""")


def _run(**environment: str) -> str:
    """Digest of the exact results; the close ones are checked on the way."""
    process = subprocess.run(
        [sys.executable, "-c", _SCRIPT, ",".join(_EXACT + _CLOSE)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return process.stdout.strip()


@pytest.fixture(scope="module")
def native() -> str:
    return _run()


def _has_avx_vnni() -> bool:
    import llvmlite.binding as llvm

    return bool(llvm.get_host_cpu_features().get("avxvnni"))


@pytest.mark.parametrize(
    "cpu", ["haswell", "generic", pytest.param("alderlake", marks=pytest.mark.skipif(not _has_avx_vnni(), reason="no AVX-VNNI here"))]
)
def test_products_run_and_agree_on_older_processors(cpu: str, native: str) -> None:
    assert _run(NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES="") == native


def test_importing_the_package_does_not_import_numba() -> None:
    script = "import sys, hetsched_kernels, hetsched_kernels.codes, hetsched_kernels.window; assert 'numba' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
