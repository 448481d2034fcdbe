"""The price of a limit: raised until it is kept, then close to the least that keeps it."""

from __future__ import annotations

import pytest

from hetsched.partition.pricing import Price


@pytest.mark.parametrize("least", [1e-6, 0.3, 1.0, 77.0])
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_the_price_that_is_kept_is_close_to_the_least(least, start):
    price = Price(1.0, start)
    for _ in range(40):
        if not (price.kept() if price.value >= least else price.broken()):
            break
    assert price.enough
    assert least <= price.high <= 1.03 * least


def test_a_limit_that_is_never_broken_costs_nothing():
    price = Price(1.0)
    assert not price.kept()
    assert price.value == 0
    assert not price.enough


def test_a_price_that_is_never_enough_is_raised():
    price, seen = Price(2.0), []
    for _ in range(4):
        assert price.broken()
        seen.append(price.value)
    assert seen == [2.0, 8.0, 32.0, 128.0]
    assert not price.enough
