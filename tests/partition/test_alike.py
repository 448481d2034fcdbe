"""Classes of ops that nothing tells apart."""

from __future__ import annotations

from random_costs import alike, heads

from hetsched.partition.additive_chain import AdditiveChain
from hetsched.partition.alike import Classes
from hetsched.partition.chain import Chain
from hetsched.partition.frontier import Additive
from hetsched.partition.overlap import Window
from hetsched.partition.relaxed import Relaxed
from hetsched.partition.timing import Costs


def classes(c: Costs) -> Classes:
    """Of the largest block."""
    chain, serial = Chain(Relaxed(c)), AdditiveChain(c, Additive(c))
    k = max(range(len(chain.blocks)), key=lambda k: len(chain.blocks[k].inner))
    block = chain.blocks[k]
    return Classes(Window(chain.relaxed, block, chain.entries(block)[0], chain.exits(block)[0], serial.charged[k]))


def test_the_same_op_of_every_head_is_one_class(random_table):
    found = classes(Costs(heads(random_table, 1, 3)))
    assert found.rows == ((1, 3, 5), (2, 4, 6))
    assert found.few
    assert found.arcs == {(0, 1): (1, 1)}
    by_maker = {moved.maker: (moved.many, moved.readers) for moved in found.moved}
    assert by_maker == {-1: (1, ((0, 3),)), 0: (3, ((1, 3),)), 1: (3, ((-1, 3),))}


def test_what_costs_something_else_is_another_class_and_so_is_what_follows_it(random_table):
    c = Costs(heads(random_table, 1, 3))
    c.time[c.alts[1].start] *= 2
    assert classes(c).rows == ((1,), (2,), (3, 5), (4, 6))


def test_groups_of_heads_are_alike_too(random_table):
    """Two joins of two heads each, which the last op reads."""
    inputs = [[0], [1], [1], [1], [1], [2, 3], [4, 5], [6, 7]]
    found = classes(Costs(alike(random_table, 2, inputs, [0, 1, 1, 1, 1, 5, 5, 7])))
    assert found.rows == ((1, 2, 3, 4), (5, 6))
    assert found.arcs == {(0, 1): (1, 2)}


def test_ops_that_differ_are_classes_of_their_own(random_table):
    found = classes(Costs(random_table(3, 9, 3, density=0.25, precisions=1)))
    assert all(len(row) == 1 for row in found.rows)
    assert not found.few
