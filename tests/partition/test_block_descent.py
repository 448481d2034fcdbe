"""A block as a problem of its own: its seconds are those of the whole plan, and answers become plans."""

from __future__ import annotations

import numpy as np
import pytest
from random_costs import budget, heads

from hetsched.partition.additive_chain import AdditiveChain
from hetsched.partition.alike import Classes
from hetsched.partition.block_descent import BlockDescent
from hetsched.partition.chain import Chain
from hetsched.partition.frontier import Additive
from hetsched.partition.overlap import Window
from hetsched.partition.relaxed import Relaxed
from hetsched.partition.sequences import SequenceModel
from hetsched.partition.timing import Costs, figures


def window(c: Costs, count: int, a: int, b: int) -> Window:
    """The block of the heads between the a-th alternative of its entry and the b-th of its exit."""
    chain, serial = Chain(Relaxed(c)), AdditiveChain(c, Additive(c))
    k = next(k for k, block in enumerate(chain.blocks) if len(block.inner) == 2 * count)
    block = chain.blocks[k]
    return Window(chain.relaxed, block, c.alts[block.entry][a], c.alts[block.exit][b], serial.charged[k])


@pytest.mark.parametrize("seed", range(6))
def test_a_block_takes_what_it_adds_to_the_plan(random_table, seed):
    c = Costs(heads(random_table, seed, 3, 3))
    r = np.random.default_rng(seed)
    w = window(c, 3, seed % 2, (seed + 1) % 3)
    descent = BlockDescent(w, budget())
    for _ in range(10):
        ways = r.integers(0, 3, c.n).tolist()
        alternative = [row[way] for row, way in zip(c.alts, ways, strict=True)]
        alternative[0], alternative[-1] = w.a, w.b
        inside = [x.start + (0 if v in (0, c.n - 1) else ways[v]) for v, x in enumerate(descent.c.alts)]
        t, q = c.inputs[0][0], c.queue[w.a]
        before = c.launch[q] + c.transfer[t][c.input_domain][c.domain[w.a]] + c.time[w.a]
        whole = figures(c, range(c.n), alternative).latency_s - c.sync[c.queue[w.b]][c.host]
        assert descent.measured(range(c.n), inside) == pytest.approx(whole - before, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_the_optimum_of_a_sequence_is_a_plan(random_table, seed):
    """Numbers of ops per class say all that a plan needs, so what local search starts from takes what the model says."""
    c = Costs(heads(random_table, seed, 4, 3))
    w = window(c, 4, 0, 1)
    classes = Classes(w)
    answer = SequenceModel(w, classes, (1, 2, 0), 0.0, 0.01).solve(budget(), 5.0)
    assert not answer.open
    found = BlockDescent(w, budget()).found(classes, answer.placed)
    assert found.cost <= answer.bound * (1 + 1e-3)
    assert sorted(op for op, _ in found.placed) == list(range(8))
