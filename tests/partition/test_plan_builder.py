"""Plans, baselines, explanations and differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.errors import InfeasibleError, OptionError, PlanError
from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.partition import Move, Problem, Solution, baselines, build_plan, diff, explain, solve
from hetsched.partition.limits import Limits
from hetsched.partition.memory import weight_bytes
from hetsched.placement import placement_of
from hetsched.plans import Plan
from hetsched.segments import schedule


@pytest.fixture(scope="module")
def made(random_table, graph_of):
    table = random_table(11, 12, crossing_us=40)
    graph = graph_of(table)
    problem = Problem.of(graph, table)
    solution = solve(problem, "auto", time_limit_s=1)
    return graph, problem, solution, build_plan(graph, problem, solution, baselines(problem))


def test_the_plan_says_what_the_segment_rule_says(made):
    graph, problem, solution, plan = made
    timed = schedule(problem.table, solution.order, solution.alternative)
    assert plan.prediction.latency_s == timed.latency_s
    assert [s.ops for s in plan.segments] == [tuple(graph.ops[i].name for i in s.ops) for s in timed.segments]
    assert [(s.start_s, s.end_s) for s in plan.segments] == list(zip(timed.start_s, timed.end_s, strict=True))
    assert plan.order == tuple(graph.ops[i].name for i in solution.order)
    assert [p.op for p in plan.placements] == [op.name for op in graph.ops]
    assert plan.prediction.peak_memory_bytes == plan.arena_bytes + plan.prediction.weight_bytes + plan.prediction.workspace_bytes
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_every_alternative_is_timed_for_the_whole_plan(made):
    _, problem, solution, plan = made
    table = problem.table
    for i, p in enumerate(plan.placements):
        for a, choice in zip(table.alternatives(i), p.alternatives, strict=True):
            moved = [*solution.alternative[:i], a, *solution.alternative[i + 1 :]]
            assert choice.plan_latency_s == pytest.approx(schedule(table, solution.order, moved).latency_s, rel=1e-12)
            assert choice.seconds == table.time_s[a]


def test_baselines_have_figures_or_a_reason(random_table, graph_of):
    table = random_table(2, 8, support=0.5)
    found = {b.solver: b for b in baselines(Problem.of(graph_of(table), table))}
    assert list(found) == ["single:cpu0", "single:gpu1", "single:npu2", "vendor", "rules", "heft"]
    assert found["single:cpu0"].segments == 1 and found["single:cpu0"].latency_s > 0
    assert found["single:npu2"].latency_s is None and "cannot run on npu2: not in its operator table" in found["single:npu2"].reason


def test_explain_speaks_of_the_users_nodes(made):
    _, problem, _, plan = made
    by_name, by_origin = (explain(plan, name, problem.table) for name in ("op4", "n4/Conv"))
    assert by_name == by_origin
    assert by_name.lines()[0].startswith(f"op4 (Conv, made from n4/Conv) runs on {plan.placements[4].queue}")
    assert sum("(chosen)" in row[0] for row in by_name.rows()) == 1
    assert len(by_name.rows()) == len(problem.table.alternatives(4)) and all(len(row) == 5 for row in by_name.rows())
    assert all(" f32: not in its operator table" in r for r in by_name.refusals)
    with pytest.raises(OptionError, match="no op or node 'n4/Conf': did you mean n4/Conv"):
        explain(plan, "n4/Conf")


def test_explain_times_alternatives_that_the_plan_left_out(made):
    _, problem, _, plan = made
    bare = [
        p.model_copy(update={"alternatives": tuple(a.model_copy(update={"plan_latency_s": None}) for a in p.alternatives)})
        for p in plan.placements
    ]
    thin = plan.model_copy(update={"placements": tuple(bare)})
    assert explain(thin, "op7").alternatives[0].plan_latency_s is None
    assert explain(thin, "op7", problem.table).alternatives == explain(plan, "op7").alternatives


def test_diff_names_what_moved(made):
    graph, problem, _, plan = made
    other = build_plan(graph, problem, solve(problem, "single:cpu0"))
    change = diff(plan, other)
    assert {m.op for m in change.moves} == {
        p.op for p, q in zip(plan.placements, other.placements, strict=True) if (p.queue, p.precision) != (q.queue, q.precision)
    }
    assert change.latency_s == (plan.prediction.latency_s, other.prediction.latency_s)
    assert not change.same and len(change.lines()) == 1 + len({(m.before, m.after) for m in change.moves})
    assert diff(plan, plan).same and "same place" in diff(plan, plan).lines()[1]


def test_a_memory_limit_finds_a_thriftier_plan_or_says_how_much_is_missing(made):
    graph, problem, solution, plan = made
    need = plan.prediction.peak_memory_bytes
    assert build_plan(graph, replace(problem, memory_limit_bytes=need), solution).arena_bytes == plan.arena_bytes
    tight = build_plan(graph, replace(problem, memory_limit_bytes=need - 1), solution)
    assert tight.prediction.peak_memory_bytes < need
    assert "more than the limit" in tight.notes[-1] and tight.status in ("heuristic", "optimal")
    assert tight.bound_s <= tight.prediction.latency_s
    with pytest.raises(InfeasibleError, match=rf"fits into 64 B: the fastest needs {need / 1e3:g} kB, the thriftiest [\d.]+ kB"):
        build_plan(graph, replace(problem, memory_limit_bytes=64), solution)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 12), st.floats(0.1, 1.0), st.floats(1.0, 3.0))
def test_the_interval_is_the_tables(random_table, graph_of, seed, n, low, high):
    table = replace(random_table(seed, n), interval=(low, high))
    plan = build_plan(graph_of(table), Problem(table), solve(Problem(table), "heft"))
    assert plan.prediction.latency_interval_s == pytest.approx((plan.prediction.latency_s * low, plan.prediction.latency_s * high))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.integers(4, 10), st.floats(0.8, 0.999), st.booleans())
def test_under_a_memory_limit_no_known_placement_that_fits_ranks_better(random_table, graph_of, seed, n, share, evaluated):
    table = random_table(seed, n, crossing_us=40)
    graph, free = graph_of(table), Problem.of(graph_of(table), table)

    def odd(s: Solution) -> float:
        return schedule(table, s.order, s.alternative).serial_s * (1 + 0.9 * np.sin(sum(s.alternative)))

    solution = solve(free, "auto", time_limit_s=0.1, evaluate=odd if evaluated else None)
    need = build_plan(graph, free, solution).prediction.peak_memory_bytes
    limit = int(need * share)
    tight = replace(free, memory_limit_bytes=limit)
    others = [solve(free, name, time_limit_s=10) for name in ("single:cpu0", "vendor", "rules", "heft", "frontier-dp")]
    sizes = [build_plan(graph, free, s).prediction.peak_memory_bytes for s in (*others, *solution.finalists)]
    fitting = [s for s, size in zip((*others, *solution.finalists), sizes, strict=True) if size <= limit]
    try:
        plan = build_plan(graph, tight, solution)
    except InfeasibleError:
        assert not fitting
        return
    assert plan.prediction.peak_memory_bytes <= limit
    order, alternative = placement_of(plan, table)
    made = Solution("", tuple(order), tuple(alternative), plan.prediction.latency_s)
    rank = odd if evaluated else (lambda s: s.objective)
    assert all(rank(made) <= rank(s) * (1 + 1e-9) for s in fitting)


def test_a_memory_limit_keeps_the_other_constraints(random_table, graph_of):
    kept = 0
    for seed in range(12):
        table = random_table(seed, 10, crossing_us=20, support=1.0)
        graph = graph_of(table)
        problem = replace(Problem.of(graph, table), forced={"op3": "npu2"}, forbidden=(("op5", "npu2"),), limits=Limits(segments=4))
        solution = solve(problem, "auto", time_limit_s=0.2)
        need = build_plan(graph, problem, solution).prediction.peak_memory_bytes
        try:
            plan = build_plan(graph, replace(problem, memory_limit_bytes=need - 1), solution)
        except InfeasibleError:
            continue
        kept += 1
        assert plan.placements[3].queue == "npu2" and plan.placements[5].queue != "npu2" and len(plan.segments) <= 4
    assert kept > 3


def test_a_table_of_another_graph_is_refused(made, random_table, graph_of):
    _, problem, solution, _ = made
    with pytest.raises(PlanError, match="another graph"):
        build_plan(graph_of(random_table(1, 5)), problem, solution)


def test_a_weight_that_two_processors_need_counts_twice(random_table):
    table = random_table(3, 2, 3, precisions=3, density=0.0, support=1.0)
    weight = Tensor("w", (8, 16), DType.F32, Role.WEIGHT, data=WeightRef(array=np.zeros((8, 16), np.float32)))
    tensors = {"w": weight, **{n: Tensor(n, (4,), DType.F32) for n in ("x", "y", "z")}}
    graph = Graph("shared", tensors, (Op("op0", "MatMul", ("x", "w"), ("y",)), Op("op1", "MatMul", ("x", "w"), ("z",))), ("x",), ("y", "z"))

    def choose(queue: int, precision: str) -> list[int]:
        return [a for i in range(2) for a in table.alternatives(i) if table.alt_queue[a] == queue and table.alt_precision[a] == precision]

    float_cpu, half_npu, bytes_npu = choose(0, "f32"), choose(2, "f16"), choose(2, "w8a8")
    assert weight_bytes(graph, table, float_cpu) == 512
    assert weight_bytes(graph, table, half_npu) == 256
    assert weight_bytes(graph, table, [float_cpu[0], half_npu[1]]) == 512 + 256
    assert weight_bytes(graph, table, bytes_npu) == 128


def test_a_cause_says_what_moving_the_op_would_do_to_the_plan(random_table, graph_of):
    kept = left = 0
    for seed in range(25):
        table = random_table(seed, 10, crossing_us=150)
        problem = Problem.of(graph_of(table), table)
        for solver in ("single:cpu0", "frontier-dp"):
            solution = solve(problem, solver)
            for i, cause in enumerate(solution.causes):
                here = solution.alternative[i]
                others = [a for a in table.alternatives(i) if table.alt_queue[a] != table.alt_queue[here]]
                cheapest = min(others, key=lambda a: table.time_s[a], default=here)
                moved = [*solution.alternative[:i], cheapest, *solution.alternative[i + 1 :]]
                change = schedule(table, solution.order, moved).latency_s - solution.objective
                if cause.startswith("kept on"):
                    assert change >= 0 and table.time_s[cheapest] < table.time_s[here]
                    kept += 1
                if cause.startswith("left on"):
                    assert change < 0
                    left += 1
                if cause.startswith("only"):
                    assert not others
    assert kept > 10 and left > 10


@pytest.mark.parametrize("objective", ["latency", "energy"])
def test_an_op_that_costs_nothing_is_said_to_cost_nothing(random_table, objective):
    said = 0
    for seed in range(10):
        table = random_table(seed, 8, support=1.0)
        free = np.isin(table.alt_op, [2, 5]) & ((table.alt_queue == 0) | (table.alt_op == 5))
        table = replace(table, compute_s=np.where(free, 0.0, table.compute_s), energy_j=np.where(free, 0.0, table.energy_j))
        problem = Problem(table, objective)
        for solver in ("single:cpu0", "frontier-dp"):
            causes = solve(problem, solver).causes
            assert not any(len(figure) > 12 for cause in causes for figure in cause.split())
            said += sum(cause.startswith("costs nothing here") for cause in causes)
        assert solve(problem, "single:cpu0").causes[5].startswith("costs nothing here, nor on ")
    assert said >= 20


def test_diff_speaks_of_ops_that_move_alike_together(made):
    graph, problem, _, plan = made
    moves = tuple(Move(f"op{k}", "npu f16", "gpu f16", "cheapest here") for k in range(9))
    other = build_plan(graph, problem, solve(problem, "single:cpu0"))
    found = replace(diff(plan, other), moves=moves, only_second=("a/1of3", "a/2of3", "a/3of3", "a/join"))
    assert found.lines()[-2:] == [
        "9 ops (op0, op1, op2 ...): npu f16 -> gpu f16 (op0: cheapest here)",
        "4 ops (a/1of3, a/2of3, a/3of3 ...): only in the second plan",
    ]
