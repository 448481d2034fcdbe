"""The same results on every processor that numba may compile for: the effective target decides, not the host."""

import os
import subprocess
import sys
import textwrap

import pytest

_EXACT = ("gemm_i8_i32", "gemm_i8_f32", "gemm_i8_q8", "matmul_i8")
_CLOSE = ("gemm_f32", "matmul_f32", "f16")
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


@pytest.mark.parametrize("cpu", ["haswell", "generic"])
def test_products_run_and_agree_on_older_processors(cpu: str, native: str) -> None:
    assert _run(NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES="") == native


def test_importing_the_package_does_not_import_numba() -> None:
    script = "import sys, hetsched_kernels, hetsched_kernels.codes, hetsched_kernels.window; assert 'numba' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
