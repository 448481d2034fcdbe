"""Instants of governors: all of a few, an even choice of many."""

from __future__ import annotations

from hetsched_simulations.instants import LIMIT, Instants


def noted(count: int) -> Instants:
    found = Instants()
    for k in range(count):
        found.note("trip", "skin", float(k), "")
    return found


def test_a_few_are_all_kept() -> None:
    found = noted(LIMIT)
    assert [i.time_s for i in found.kept] == [float(k) for k in range(LIMIT)] and found.left_out == 0


def test_of_many_every_second_or_fourth_one_is_kept() -> None:
    found = noted(3 * LIMIT)
    times = [i.time_s for i in found.kept]
    assert times == [4.0 * k for k in range(len(times))] and LIMIT // 2 < len(times) <= LIMIT
    assert found.seen == 3 * LIMIT and found.left_out == found.seen - len(times)
