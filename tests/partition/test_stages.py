"""Blocks with the segments of the main queue one by one: no bound is above what brute force finds, and answers become plans."""

from __future__ import annotations

import pytest
from random_costs import budget, table

from hetsched.partition.additive_chain import AdditiveChain
from hetsched.partition.block_plans import op_ends
from hetsched.partition.blocks import Block
from hetsched.partition.chain import Chain, chains
from hetsched.partition.frontier import Additive
from hetsched.partition.overlap import Window
from hetsched.partition.problem import Budget, Problem
from hetsched.partition.relaxed import Relaxed
from hetsched.partition.search import as_solution
from hetsched.partition.stage_model import StageModel
from hetsched.partition.stage_search import improve_by_stages, spliced
from hetsched.partition.stages import main_queue, staged
from hetsched.partition.tightening import Tightened
from hetsched.partition.timing import Costs, figures
from hetsched.segments import schedule

INFINITE = float("inf")


def raised(c: Costs, chain: Chain, most: float) -> float:
    """The chain's bound once every block on its cheapest path is serial or staged."""
    kept = set(chain.relaxed.ops)
    serial = AdditiveChain(c, Additive(c), [v for v in range(c.n) if v not in kept])
    done: set[tuple[int, int, int]] = set()
    while True:
        total, path = chain.bound()
        arc = next((arc for arc in path if arc not in done), None)
        if arc is None:
            return total
        done.add(arc)
        k, a, b = arc
        window = Window(chain.relaxed, chain.blocks[k], a, b, serial.charged[k])
        overlapped = staged(window, chain.values[arc], most, budget(), 20.0).bound if len(chain.blocks[k].inner) > 1 else INFINITE
        chain.raise_to(arc, min(most, overlapped, serial.search(arc, INFINITE, 10**6).cost))


@pytest.mark.parametrize("shared", [False, True])
def test_staged_blocks_are_below_the_optimum(random_table, optimum, shared):
    above = exact = 0
    for seed in range(12 if shared else 40):
        c = table(random_table, seed, 5 + seed % 2, shared_domains=shared, precisions=1 + (shared and seed % 5 == 0))
        best = optimum(c)["latency"]
        for chain in chains(c):
            before = chain.bound()[0]
            after = raised(c, chain, 2 * best)
            assert before * (1 - 1e-9) <= after <= best * (1 + 1e-9)
            above += after > before * (1 + 1e-6)
            exact += after > best * (1 - 1e-6)
    assert above > 5
    assert shared or exact > 5


def test_more_segments_cost_more_launches(random_table):
    c = table(random_table, 7, 9, density=0.25)
    relaxed = Relaxed(c)
    for block in (b for b in relaxed.blocks() if len(b.inner) > 1):
        window = Window(
            relaxed, block, -1 if block.entry < 0 else c.alts[block.entry].start, -1 if block.exit < 0 else c.alts[block.exit].start
        )
        main = main_queue(window)
        bounds = [window.fractional(main, k) for k in range(4)]
        assert bounds[0] == window.fractional()
        assert bounds == sorted(bounds)
        assert bounds[3] > bounds[1]


def test_whole_segments_bound_no_less_than_fractions(random_table):
    seen = 0
    for seed in range(8):
        c = table(random_table, seed, 9, density=0.25)
        relaxed = Relaxed(c)
        for block in (b for b in relaxed.blocks() if len(b.inner) > 1):
            for a in [-1] if block.entry < 0 else c.alts[block.entry]:
                window = Window(relaxed, block, a, -1 if block.exit < 0 else c.alts[block.exit].start)
                fractions = window.fractional(main_queue(window), 1)
                found = StageModel(window, main_queue(window), 1, 0.0, 10 * fractions).solve(budget(), 20.0)
                assert fractions * (1 - 1e-4) <= found.bound
                assert found.units > 0
                seen += not found.open
    assert seen > 5


def test_an_answer_becomes_a_plan_and_the_rest_of_the_plan_stays(random_table):
    for seed in range(10):
        raw = random_table(seed, 14, 3, precisions=2, density=0.3)
        problem, c = Problem(raw), Costs(raw)
        plan = as_solution(problem, "file", list(range(c.n)), [row.start for row in c.alts])
        relaxed = Relaxed(c)
        block = max(relaxed.blocks(), key=lambda b: len(b.inner))
        a, b = (-1 if v < 0 else c.alts[v].start for v in (block.entry, block.exit))
        found = staged(Window(relaxed, block, a, b), 0.0, 100.0, budget(), 5.0)
        for placed in found.placed:
            order, alternative = spliced(c, plan, block, placed)
            schedule(raw, order, alternative)  # raises on a broken order
            assert [c.queue[alternative[v]] for v in block.inner] == [role.queue for role in placed]
            assert all(alternative[v] == plan.alternative[v] for v in range(c.n) if v not in block.inner)
            outside = [v for v in order if v not in block.inner]
            assert outside == [v for v in plan.order if v not in block.inner]
        assert found.placed


def test_work_is_limited_and_nothing_gets_worse(random_table):
    for seed in range(2):
        raw = random_table(seed, 40, 3, precisions=1, density=0.3, crossing_us=20)
        problem, c = Problem(raw), Costs(raw)
        start = as_solution(problem, "file", list(range(c.n)), [row.start for row in c.alts])
        spent = Budget(wall_limit_s=1e9)
        best, bound = improve_by_stages(problem, c, [Tightened(c, chain, spent) for chain in chains(c)], start, 0.01, spent, 0.5)
        assert bound <= best.objective <= start.objective
        assert spent.spent < 1.0


def test_answers_often_take_what_the_model_says(random_table):
    met = 0
    for seed in range(60):
        raw = random_table(seed, 7, 3, precisions=1, density=0.4, crossing_us=(20, 80, 250)[seed % 3])
        c, plan = Costs(raw), as_solution(Problem(raw), "file", list(range(7)), raw.alt_start[:-1].tolist())
        relaxed, serial = Relaxed(c), AdditiveChain(c, Additive(c), [])
        for k, block in enumerate(relaxed.blocks()):
            a, b = (-1 if v < 0 else c.alts[v].start for v in (block.entry, block.exit))
            window = Window(relaxed, block, a, b, serial.charged[k])
            found = StageModel(window, main_queue(window), 0, 0.0, 0.01).solve(budget(), 5.0) if len(block.inner) >= 5 else None
            if found and found.placed:
                order, alternative = spliced(c, plan, block, found.placed[-1])
                ends = op_ends(c, order, alternative)
                left = figures(c, order, alternative).latency_s if b < 0 else ends[block.exit]
                seconds = left - (ends[block.entry] if a >= 0 else 0.0)
                assert seconds >= found.bound - 1e-7
                met += seconds <= found.bound + 1e-7
    assert met > 5


def test_what_the_exit_reads_is_transferred(random_table):
    raw = random_table(3, 4, 2, precisions=1, density=1.0, chain=True, support=1.0)
    c = Costs(raw)
    relaxed = Relaxed(c)
    block = Block(0, (1, 2), 3)
    window = Window(relaxed, block, c.alts[0].start, c.alts[3].start, set(range(len(c.producer))))
    reads = {t for v in (1, 2) for t in c.outputs[v]} & set(c.inputs[3])
    assert all(2 in window.readers(t) for t in reads)
    assert window.domains(c.queue[window.b], [2]) == {c.domain[window.b]}
    assert window.domains(1 - c.queue[window.b], [2]) == set()
