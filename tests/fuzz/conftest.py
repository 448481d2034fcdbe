"""The fuzzer's modules by their names, and one guarded process for all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    """A guarded process that reads cases."""
    from workers import Worker

    with Worker() as running:
        yield running
