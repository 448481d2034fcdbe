"""Every solver: precedence, capacity, bounds; exactness of ``ilp``; ``auto`` never worse; constraints; determinism."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.costs import Queue
from hetsched.errors import InfeasibleError, OptionError
from hetsched.partition import Budget, Problem, Solution, solve, solver_named, solver_names
from hetsched.partition.heft import first_gap
from hetsched.partition.ilp import Ilp
from hetsched.partition.limits import Limits
from hetsched.partition.problem import objective_of, value_of
from hetsched.partition.rules import read_rules
from hetsched.partition.timing import Costs
from hetsched.segments import schedule

SOLVERS = ("single:cpu0", "vendor", "rules", "heft", "peft", "cpop", "frontier-dp", "ilp", "auto")


def typed(table, objective="latency", **more):
    kinds = ("Conv", "Softmax", "Gather", "LayerNormalization", "Einsum")
    return Problem(table, objective, op_types=tuple(kinds[i % 5] for i in range(len(table.op_names))), **more)


def check(problem: Problem, s: Solution) -> None:
    """Precedence, capacity, and figures that are what the segment rule says."""
    table = problem.table
    timed = schedule(table, s.order, s.alternative)  # raises on a broken order or a foreign alternative
    assert s.objective == pytest.approx(objective_of(problem, s.order, s.alternative), rel=1e-12)
    assert 0 <= s.bound <= s.objective * (1 + 1e-9)
    assert 0 <= s.gap <= 1
    assert len(s.causes) == len(table.op_names)
    assert all(cause and "\n" not in cause for cause in s.causes)
    for q in range(len(table.queues)):
        own = [x for x in timed.segments if x.queue == q]
        assert all(timed.end_s[a.index] <= timed.start_s[b.index] + 1e-15 for a, b in itertools.pairwise(own))
    for x in timed.segments:
        for p in x.feeds_from:
            sync = table.sync_s[timed.segments[p].queue, x.queue]
            assert timed.start_s[x.index] >= timed.end_s[p] + sync - 1e-15


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 14), st.sampled_from(SOLVERS[:-2]), st.sampled_from(["latency", "energy", "edp", "period"]))
def test_fast_solvers_give_valid_plans(random_table, seed, n, solver, objective):
    problem = typed(random_table(seed, n), objective)
    check(problem, solve(problem, solver))


@pytest.mark.parametrize("objective", ["latency", "energy", "period"])
@pytest.mark.parametrize("seed", range(14))
def test_ilp_equals_brute_force_over_placements_and_orders(random_table, optimum, seed, objective):
    n, crossing = 4 + seed % 3, (5, 60, 250)[seed % 3]
    table = random_table(100 + seed, n, 3 if n < 6 else 2, precisions=2 if n == 4 else 1, crossing_us=crossing, density=0.35, support=0.7)
    answer = solve(Problem(table, objective), "ilp")
    check(Problem(table, objective), answer)
    assert answer.objective == pytest.approx(optimum(Costs(table))[objective], rel=1e-5)
    assert answer.status == "optimal"


@pytest.mark.parametrize("seed", range(6))
def test_auto_is_never_worse_than_another_solver_by_the_evaluator_it_used(random_table, seed):
    objective = ("latency", "energy", "edp", "period")[seed % 4]
    problem = typed(random_table(seed, 5 + 4 * (seed % 3), crossing_us=(20, 150)[seed % 2]), objective)

    def odd(s: Solution) -> float:
        return s.objective * (1 + 0.3 * np.sin(sum(s.alternative) + 0.1 * s.order[-1]))

    plain, ranked = solve(problem, "auto", time_limit_s=1), solve(problem, "auto", time_limit_s=1, evaluate=odd)
    for name in (*SOLVERS[:-1], "single:npu2"):
        try:
            other = solve(problem, name, time_limit_s=1)
        except InfeasibleError:
            continue
        assert plain.objective <= other.objective * (1 + 1e-12), name
        assert odd(ranked) <= odd(other) * (1 + 1e-12), name
    check(problem, plain)
    check(problem, ranked)


def shared(table):
    """The table with queues 0 and 3 on the same cores."""
    cores = ((0, 1, 2, 3), (), (), (2, 3))
    return replace(table, queues=tuple(replace(q, cores=c) for q, c in zip(table.queues, cores, strict=True)))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**9), st.integers(4, 14), st.sampled_from(["latency", "energy", "edp", "period"]), st.booleans())
def test_the_evaluator_sees_the_problems_own_alternatives_and_ranks_everything(random_table, seed, n, objective, clash):
    table = random_table(seed, n, 4, precisions=1 + seed % 2, crossing_us=(5, 60)[seed % 2], support=0.8)
    table = shared(table) if clash else table
    free = [q for q in table.alt_queue[table.alternatives(2)].tolist() if q in (1, 2)]  # either side of the clash stays possible
    forced = {"op2": table.queues[free[0]].name} if free else {}
    last = table.queues[table.alt_queue[int(table.alt_start[4]) - 1]].name
    forbidden = ((f"op{n - 1}", "gpu1"), ("op3", last)) if last != "cpu0" else ((f"op{n - 1}", "gpu1"),)
    problem = typed(table, objective, forced=forced, forbidden=forbidden)
    seen: list[Solution] = []

    def odd(s: Solution) -> float:
        timed = schedule(table, s.order, s.alternative)  # raises on an alternative of another table
        assert problem.keep[list(s.alternative)].all()
        used = {int(table.alt_queue[a]) for a in s.alternative}
        assert not (clash and {0, 3} <= used)
        assert s.objective == pytest.approx(value_of(timed, objective, len(table.queues)), rel=1e-9)
        seen.append(s)
        return timed.serial_s * (1 + 0.5 * np.sin(7 * sum(s.alternative) + s.order[-1]))

    ranked = solve(problem, "auto", time_limit_s=0.5, evaluate=odd)
    assert seen
    check(problem, ranked)
    assert all(odd(ranked) <= odd(s) * (1 + 1e-12) for s in (*seen, *ranked.finalists))
    for name in (*SOLVERS[:-1], "single:npu2", "single:cpu3"):
        try:
            other = solve(problem, name, time_limit_s=0.5)
        except InfeasibleError:
            continue
        assert odd(ranked) <= odd(other) * (1 + 1e-12), name


@pytest.mark.parametrize("solver", ["ilp", "auto"])
def test_the_budget_is_kept_whatever_the_graph(random_table, solver):
    for n, precisions, units in ((9, 2, 0.5), (40, 2, 0.5), (60, 1, 1.0)):
        problem = Problem(random_table(n, n, crossing_us=60, density=0.25, precisions=precisions))
        budget = Budget(units=units)
        solver_named(solver).solve(problem, budget)
        assert 0 < budget.spent < 1.5 * units
    chain = Problem(random_table(4, 20, 1, density=0.0, chain=True))
    budget = Budget(units=100.0)
    solver_named(solver).solve(chain, budget)
    assert budget.spent < 1.0  # nothing to improve: it does not use up what it is given


def test_larger_graphs_improve_on_every_cheap_solver_and_stay_above_the_bound(random_table):
    problem = typed(random_table(3, 24, crossing_us=60, density=0.25, precisions=1))
    best = solve(problem, "ilp", time_limit_s=2)
    check(problem, best)
    assert best.objective < min(solve(problem, s).objective for s in SOLVERS[:-2])


def test_a_queue_that_refuses_an_op_is_named_with_the_reason(random_table):
    table = random_table(2, 8, support=0.4)
    with pytest.raises(InfeasibleError, match=r"op\d cannot run on gpu1: not in its operator table"):
        solve(Problem(table), "single:gpu")


def test_forced_and_forbidden_places_are_kept(random_table):
    table = random_table(8, 10, support=1.0)
    problem = typed(table, forced={"op3": "npu2", "op4": "cpu0"}, forbidden=(("op5", "npu2"), ("*", "gpu")))
    for solver in ("vendor", "rules", "heft", "peft", "cpop", "frontier-dp", "auto"):
        s = solve(problem, solver, time_limit_s=1)
        queue = [table.queues[table.alt_queue[a]].name for a in s.alternative]
        assert queue[3] == "npu2" and queue[4] == "cpu0" and queue[5] != "npu2" and "gpu1" not in queue
        assert s.causes[3] == "placed on npu2 by request"


def test_unknown_names_are_refused_with_what_to_do(random_table):
    table = random_table(1, 4)
    with pytest.raises(OptionError, match="no op 'op33': did you mean op3"):
        solve(Problem(table, forced={"op33": "cpu"}), "heft")
    with pytest.raises(OptionError, match="no queue is called 'tpu'"):
        solve(Problem(table, forced={"op3": "tpu"}), "heft")
    with pytest.raises(OptionError, match="no solver 'magic': use one of auto"):
        solve(Problem(table), "magic")
    with pytest.raises(OptionError, match="no objective 'speed'"):
        Problem(table, "speed")
    with pytest.raises(OptionError, match="needs a queue"):
        solve(Problem(table), "single")
    with pytest.raises(OptionError, match="time limit is 0"):
        solve(Problem(table), time_limit_s=0)
    assert set(solver_names()) >= {"auto", "cpop", "frontier-dp", "heft", "ilp", "peft", "rules", "single", "vendor"}


def test_forbidding_every_place_is_infeasible(random_table):
    table = random_table(1, 4, 1)
    with pytest.raises(InfeasibleError, match="op0"):
        solve(Problem(table, forbidden=(("op0", "cpu0"),)), "auto")


def test_the_number_of_segments_can_be_limited(random_table, optimum):
    table = random_table(7, 7, 2, crossing_us=3, precisions=1)
    free = solve(Problem(table), "auto")
    count = len(schedule(table, free.order, free.alternative).segments)
    assert count > 2
    for solver in ("frontier-dp", "ilp", "auto"):
        tight = solve(Problem(table, limits=Limits(segments=2)), solver)
        assert len(schedule(table, tight.order, tight.alternative).segments) <= 2
        assert tight.objective >= free.objective


def test_queues_that_share_cores_are_never_used_together(random_table):
    table = random_table(12, 9, 3, crossing_us=2, support=1.0)
    queues = (Queue("cpu:0-3", "cpu", "cpu", (0, 1, 2, 3)), Queue("cpu:2-3", "cpu", "cpu", (2, 3)), Queue("cpu:4-5", "cpu", "cpu", (4, 5)))
    table = replace(table, queues=queues)
    together = solve(Problem(replace(table, queues=tuple(replace(q, cores=()) for q in queues))), "auto", time_limit_s=1)
    assert {0, 1} <= {int(table.alt_queue[a]) for a in together.alternative}
    apart = solve(Problem(table), "auto", time_limit_s=1)
    assert not {0, 1} <= {int(table.alt_queue[a]) for a in apart.alternative}
    assert apart.objective >= together.objective * (1 - 1e-9)


def test_rules_follow_the_users_table(random_table, tmp_path):
    table = random_table(4, 10, support=1.0)
    mine = tmp_path / "mine.yaml"
    mine.write_text("Conv: [gpu]\n'*': [cpu0]\n")
    s = solve(typed(table), f"rules:{mine}")
    assert [table.queues[table.alt_queue[a]].kind for a in s.alternative] == ["gpu" if i % 5 == 0 else "cpu" for i in range(10)]
    assert solve(typed(table, affinity={"*": ("npu",)}), "rules").objective == solve(typed(table), "single:npu").objective
    with pytest.raises(OptionError, match="needs the ops' types"):
        solve(Problem(table), "rules")


@pytest.mark.parametrize(
    ("text", "why"),
    [("[1, 2]", "must map"), ("Conv: npu", "must map 'Conv'"), ("a: [", "not valid YAML"), ("!!python/object:x {}", "not valid YAML")],
)
def test_a_bad_affinity_table_is_refused(tmp_path, text, why):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(OptionError, match=why):
        read_rules(path)
    with pytest.raises(OptionError, match="no affinity table"):
        read_rules(tmp_path / "absent.yaml")


def test_heft_takes_the_first_gap_that_holds_the_op():
    busy = [(0.0, 2.0), (3.0, 5.0), (9.0, 10.0)]
    assert first_gap(busy, 0.0, 1.0) == 2.0
    assert first_gap(busy, 0.0, 2.0) == 5.0
    assert first_gap(busy, 6.0, 3.0) == 6.0
    assert first_gap(busy, 6.0, 3.5) == 10.0


def test_a_stopped_clock_is_told(random_table):
    problem = typed(random_table(2, 20))
    budget = Budget(units=1.0, wall_limit_s=-1.0)
    assert Ilp().solve(problem, budget).objective > 0
    assert budget.clock_stopped


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import conftest
from hetsched.partition import Problem, solve
from hetsched.partition.problem import Budget
Budget.left_s = lambda self: float("inf")  # a stop by the clock is exempt
Budget.out_of_time = lambda self: False
for seed, n in ((1, 6), (2, 15)):
    p = Problem(conftest.make_table(seed, n, crossing_us=60), "latency", op_types=("Conv",) * n)
    for solver in ("heft", "frontier-dp", "ilp", "auto"):
        s = solve(p, solver, time_limit_s=1)
        print(solver, s.order, s.alternative, s.objective.hex(), s.bound.hex(), s.status, s.causes, s.notes)
"""


def test_same_answer_whatever_the_hash_seed():
    here = str(Path(__file__).parent)
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, here], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "77")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.count("\n") == 8


def test_a_bound_holds_for_choices_of_queues_that_the_solver_could_not_use(random_table):
    table = random_table(5, 6, 2, support=0.5, crossing_us=2)
    queues = (Queue("cpu:0-1", "cpu", "cpu", (0, 1)), Queue("cpu:1-2", "cpu", "cpu", (1, 2)))
    table = replace(table, queues=queues)
    assert solve(Problem(table), "single:cpu:0-1").bound <= solve(Problem(table), "auto").objective
