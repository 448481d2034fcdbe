"""The most memory that a process has held."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hetsched.runtime.own_memory import STATUS, peak_memory_bytes

SIZE = 200 << 20


def test_it_is_what_the_system_counts(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t  120 kB\n")
    assert peak_memory_bytes(tmp_path / "status") == 120 * 1024
    assert peak_memory_bytes(tmp_path / "absent") > 1 << 20


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells a process apart from the one that started it")
def test_a_process_does_not_count_the_one_that_started_it() -> None:
    held = np.ones(SIZE, np.uint8)
    told = subprocess.run(
        [sys.executable, "-c", "from hetsched.runtime.own_memory import peak_memory_bytes; print(peak_memory_bytes())"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert 1 << 20 < int(told) < SIZE < peak_memory_bytes() and held.all()
