"""Every kernel against its numpy twin, over sizes that are not multiples of anything."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetsched_kernels.comparison import Comparison, table


class HypothesisDraw:
    """Sizes from hypothesis, so that failures shrink; data from a seeded generator."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))

    def integer(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.data.draw(st.integers(0, len(options) - 1))]


@pytest.mark.parametrize("comparison", table(), ids=lambda c: c.name)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kernel_equals_its_twin(comparison: Comparison, data: st.DataObject) -> None:
    got, expected = comparison.case(HypothesisDraw(data))
    assert got.shape == expected.shape
    if comparison.relative == comparison.absolute == 0:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=comparison.relative, atol=comparison.absolute, equal_nan=True)


def test_a_wrong_kernel_is_noticed() -> None:
    """The comparison itself can fail: a twin of something else does not pass."""
    by_name = {c.name: c for c in table()}
    draw = np.random.default_rng(0)

    class Seeded:
        rng = draw

        def integer(self, low: int, high: int) -> int:
            return high

        def choice(self, options: Sequence[Any]) -> Any:
            return options[0]

    got, expected = by_name["gemm_i8_i32"].case(Seeded())
    assert np.abs(expected).max() > 1000
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(got, expected + 1)
