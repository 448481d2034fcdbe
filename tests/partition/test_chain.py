"""The shortest path over blocks, as their least times are raised."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.partition.chain import Chain
from hetsched.partition.relaxed import Relaxed
from hetsched.partition.timing import Costs


@pytest.mark.parametrize("seed", range(10))
def test_a_raised_chain_is_bounded_as_if_it_were_new(random_table, seed):
    chain = Chain(Relaxed(Costs(random_table(seed, 14))))
    before, r = chain.bound()[0], np.random.default_rng(seed)
    for _ in range(30):
        path = chain.bound()[1]
        arc = path[int(r.integers(len(path)))]
        chain.raise_to(arc, chain.values[arc] * float(r.uniform(0.5, 2)) + 1e-6)
        fresh = Chain(chain.relaxed)
        fresh.values = dict(chain.values)
        assert chain.bound() == fresh.bound()
    assert chain.bound()[0] > before


def test_a_smaller_value_changes_nothing(random_table):
    chain = Chain(Relaxed(Costs(random_table(3, 14))))
    before = dict(chain.values), chain.bound()
    for arc, value in before[0].items():
        chain.raise_to(arc, value / 2)
    assert (chain.values, chain.bound()) == before
