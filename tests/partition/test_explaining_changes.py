"""What would have to change for an op to go elsewhere: every claim is tried by changing that figure in the table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.costs import CostTable
from hetsched.partition import Problem, build_plan, explain, smallest_changes, solve
from hetsched.partition.conditions import condition, in_precision, sentence, shortest
from hetsched.partition.counterfactuals import STEP, Change, Elsewhere, Moved, Placed, break_even, elsewhere
from hetsched.partition.other_precisions import Wider, in_other_precisions
from hetsched.partition.timing import Costs
from hetsched.segments import schedule

TINY = 1e-13


def worth(table: CostTable, objective: str, order, alternative) -> float:
    timed = schedule(table, order, alternative)
    return timed.energy_j if objective == "energy" else timed.latency_s


def lowered(table: CostTable, objective: str, figure: str, move: Moved, queue: int, now: float, to: float) -> CostTable:
    """The table with one figure lowered, all else equal."""
    joules = objective == "energy"
    share = to / now
    if figure == "launch":
        name = "launch_energy_j" if joules else "launch_s"
        column = getattr(table, name).copy()
        column[queue] = to
        return replace(table, **{name: column})
    if figure == "sync":
        name = "sync_energy_j" if joules else "sync_s"
        column = getattr(table, name).copy()
        column[queue, :] = np.minimum(column[queue, :], to)
        column[:, queue] = np.minimum(column[:, queue], to)
        return replace(table, **{name: column})
    if figure == "time":
        name = "energy_j" if joules else "compute_s"
        column = getattr(table, name).copy()
        column[[move.alternative[op] for op in move.ops]] *= share
        return replace(table, **{name: column})
    rows = sorted({t for op in move.ops for t in (*table.op_inputs.row(op).tolist(), *table.op_outputs.row(op).tolist())})
    changed = {}
    for name in ("transfer_energy_j",) if joules else ("conversion_s", "maintenance_s"):
        column = getattr(table, name).copy()
        column[rows] *= share
        changed[name] = column
    return replace(table, **changed)


def the_move(placed: Placed, op: int, found: Elsewhere) -> tuple[Moved, int]:
    queue = [q.name for q in placed.table.queues].index(found.queue)
    names = placed.table.op_names
    return next(m for m in placed.moves(op, queue) if tuple(names[v] for v in m.ops) == found.ops), queue


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 9), st.sampled_from(["latency", "energy"]), st.sampled_from([20, 100, 300]))
def test_each_claim_holds_when_the_figure_is_changed_in_the_table(random_table, seed, n, objective, crossing):
    table = random_table(seed, n, crossing_us=crossing)
    answer = solve(Problem(table, objective), "frontier-dp")
    placed = Placed(table, objective, answer.order, answer.alternative)
    before = worth(table, objective, answer.order, answer.alternative)
    for op in range(n):
        found = elsewhere(placed, op)
        offered = sorted(set(table.alt_queue[table.alternatives(op)].tolist()) - {int(table.alt_queue[answer.alternative[op]])})
        assert [e.queue for e in found] == [table.queues[k].name for k in offered]
        for e in found:
            move, queue = the_move(placed, op, e)
            assert op in move.ops and {int(table.alt_queue[move.alternative[v]]) for v in move.ops} == {queue}
            assert e.extra == pytest.approx(worth(table, objective, answer.order, move.alternative) - before, abs=TINY)
            for change in e.changes:

                def loss(to: float, c: Change = change, move: Moved = move, queue: int = queue) -> float:
                    other = lowered(table, objective, c.figure, move, queue, c.now, to)
                    stays = worth(other, objective, answer.order, answer.alternative)
                    return worth(other, objective, answer.order, move.alternative) - stays

                if change.now <= 0:
                    assert change.below is None
                    continue
                assert loss(0.0) == pytest.approx(change.left, abs=TINY)
                if change.below is None:
                    assert loss(0.0) > -TINY  # a tie may fall either way
                else:
                    assert loss(change.below) <= TINY
                    assert loss(min(change.now, change.below + STEP * change.now)) > -TINY


def test_once_a_figure_is_low_enough_the_plan_is_no_longer_the_best(random_table, optimum):
    """Solved again by brute force with the figure a little lower."""
    tried = 0
    for seed in range(6):
        table = random_table(seed, 4, crossing_us=120)
        answer = solve(Problem(table), "ilp", time_limit_s=2)
        placed = Placed(table, "latency", answer.order, answer.alternative)
        for op in range(4):
            for e in elsewhere(placed, op):
                assert e.extra >= -TINY, "an optimal plan gains by no move"
                if not e.changes or not e.changes[0].below:
                    continue
                first, (move, queue) = e.changes[0], the_move(placed, op, e)
                other = lowered(table, "latency", first.figure, move, queue, first.now, 0.8 * first.below)
                stays = worth(other, "latency", answer.order, answer.alternative)
                if worth(other, "latency", answer.order, move.alternative) < stays - 1e-9 and tried < 10:
                    tried += 1
                    assert optimum(Costs(other))["latency"] < stays - 1e-9
    assert tried == 10


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 0.99), st.floats(0.001, 5)), max_size=5), st.floats(0.01, 0.99))
def test_break_even_of_piecewise_linear_functions(kinks, root):
    def loss(x: float) -> float:
        return (x - root) + sum(slope * (max(x, k) - max(root, k)) for k, slope in kinks)

    found = break_even(loss)
    assert loss(found) <= 0 and found == pytest.approx(root, abs=2 * STEP)


def test_break_even_takes_a_few_steps_where_it_can():
    asked = []

    def loss(x: float) -> float:
        asked.append(x)
        return 3 * x - 1

    assert break_even(loss) == pytest.approx(1 / 3, abs=STEP) and len(asked) <= 8


def test_nothing_goes_to_closed_queues_or_to_cores_that_are_taken(random_table):
    table = random_table(5, 6, 4, support=1.0)
    queues = tuple(replace(q, cores=(0, 1)) if q.kind == "cpu" else q for q in table.queues)
    table = replace(table, queues=queues)
    on_cpu = [next(a for a in table.alternatives(op) if table.alt_queue[a] == 0) for op in range(6)]
    free = Placed(table, "latency", range(6), on_cpu)
    assert [e.queue for e in elsewhere(free, 2)] == ["gpu1", "npu2"]
    assert [e.queue for e in elsewhere(Placed(table, "latency", range(6), on_cpu, ["npu2"]), 2)] == ["gpu1"]
    alone = [*on_cpu[:2], *(next(a for a in table.alternatives(op) if table.alt_queue[a] == 1) for op in range(2, 6))]
    alone[1] = next(a for a in table.alternatives(1) if table.alt_queue[a] == 1)
    assert [e.queue for e in elsewhere(Placed(table, "latency", range(6), alone), 0)] == ["gpu1", "npu2", "cpu3"]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 8))
def test_another_precision_is_timed_in_the_wider_table(random_table, seed, n):
    wide = random_table(seed, n, support=0.8)
    narrow = wide.restrict(np.array([p == "f32" for p in wide.alt_precision]))
    answer = solve(Problem(narrow), "frontier-dp")
    kept = np.flatnonzero([p == "f32" for p in wide.alt_precision]).tolist()
    same = [kept[a] for a in answer.alternative]
    before = schedule(wide, answer.order, same).latency_s
    placed, wider = Placed(narrow, "latency", answer.order, answer.alternative), Placed(wide, "latency", answer.order, same)
    pure = replace(wide, launch_s=wide.launch_s / 2)
    for op in range(n):
        found = in_other_precisions(placed, Wider(wider, pure), op)
        assert {(e.queue, e.precision) for e in found} == {
            (wide.queues[wide.alt_queue[a]].name, "w8a8") for a in wide.alternatives(op) if wide.alt_precision[a] == "w8a8"
        }
        for e in found:
            queue = [q.name for q in wide.queues].index(e.queue)
            launches = wide.launch_s.copy()
            launches[queue] /= 2
            lost = []
            for m in wider.moves(op, queue, "w8a8"):
                alone = all(wide.alt_precision[a] == "w8a8" for a in m.alternative if wide.alt_queue[a] == queue)
                table = replace(wide, launch_s=launches) if alone else wide
                lost.append(schedule(table, answer.order, m.alternative).latency_s - before)
            assert e.extra == pytest.approx(min(lost), abs=TINY)


def test_a_wider_table_with_other_times_says_nothing(random_table):
    table = random_table(6, 5)
    answer = solve(Problem(table), "heft")
    narrow = Placed(table, "latency", answer.order, answer.alternative)
    slower = replace(table, compute_s=2 * table.compute_s, alt_precision=("w4a16",) * len(table.alt_precision))
    assert in_other_precisions(narrow, Wider(Placed(slower, "latency", answer.order, answer.alternative), slower), 0) == ()


SYNC = Change("sync", 120e-6, 47.5e-6, -1e-5)
TIME = Change("time", 2e-4, 5e-5, -1e-5)
GONE = Change("transfer", 9e-5, 0.0, 0.0)
NEVER = Change("launch", 5e-5, None, 9e-5)


def gpu(extra: float, *changes: Change, ops: int = 1) -> Elsewhere:
    return Elsewhere("gpu", "f16", tuple(f"op{i}" for i in range(ops)), extra, changes)


@pytest.mark.parametrize(
    ("found", "objective", "said"),
    [
        (gpu(1e-4, SYNC, NEVER), "latency", "gpu f16 costs 100 µs more; it would pay if a sync with gpu took at most 47.5 µs (now 120 µs)"),
        (
            gpu(1e-4, TIME, GONE, ops=3), "latency",
            "gpu f16 with 2 neighbours costs 100 µs more; it would pay if they ran 4 times faster there (at most 50 µs, now 200 µs),"
            " or if converting and moving their tensors took nothing (now 90 µs)",
        ),
        (gpu(1e-4, TIME), "energy", "gpu f16 costs 100 µJ more; it would pay if it needed 4 times less there (at most 50 µJ, now 200 µJ)"),
        (gpu(1e-4, NEVER), "latency", "gpu f16 costs 100 µs more; no single figure would make it pay: with the launch at 0 still 90 µs"),
        (gpu(-1e-5, ops=2), "latency", "gpu f16 with 1 neighbour would gain 10 µs"),
        (gpu(0.0), "latency", "gpu f16 costs the plan nothing"),
        (gpu(1e-9, SYNC), "edp", "gpu f16 costs 1 nJ s more; it would pay if a sync with gpu took at most 47.5 µs (now 120 µs)"),
    ],
)  # fmt: skip
def test_what_would_have_to_change_in_words(found, objective, said):
    assert sentence(found, objective) == said


def test_the_shortest_form_names_one_change_or_nothing():
    assert shortest(gpu(1e-4, SYNC, TIME), "latency") == "gpu f16 if a sync with gpu took at most 47.5 µs (now 120 µs)"
    assert shortest(gpu(1e-4, NEVER), "latency") == shortest(gpu(-1e-4), "latency") == ""
    assert condition(replace(TIME, below=0.0), gpu(1e-4), "latency") == "its work there took nothing (now 200 µs)"
    assert in_precision(replace(gpu(-4e-4), precision="w8a8"), "latency") == "gpu if w8a8: saves 400 µs"
    assert in_precision(gpu(4e-4), "latency") == "gpu if f16: costs 400 µs more"


def test_explain_adds_conditions_where_the_costs_are_at_hand(random_table, graph_of):
    table = random_table(11, 12, crossing_us=40)
    graph = graph_of(table)
    problem = Problem.of(graph, table)
    plan = build_plan(graph, problem, solve(problem, "auto", time_limit_s=0.2))
    bare, free, full = explain(plan, "op4"), explain(plan, "op4", table), explain(plan, "op4", table, closed=["cpu0"])
    assert bare.elsewhere == () and bare.conditions() == []
    assert full.elsewhere == tuple(e for e in free.elsewhere if e.queue != "cpu0") and len(full.elsewhere) < len(free.elsewhere)
    assert full.conditions() == [*(sentence(e, "latency") for e in full.elsewhere), "cpu0 is off in this plan"]
    changes = smallest_changes(plan, table)
    assert set(changes) == set(table.op_names)
    assert changes["op4"] == tuple(filter(None, (shortest(e, "latency") for e in free.elsewhere)))


def test_a_report_of_a_large_plan_leaves_the_lightest_ops_out(random_table, graph_of, monkeypatch):
    table = random_table(11, 12, crossing_us=40)
    graph = graph_of(table)
    plan = build_plan(graph, Problem.of(graph, table), solve(Problem(table), "heft"))
    monkeypatch.setattr("hetsched.partition.explaining.QUICK_OPS", 12 * 200)
    found = smallest_changes(plan, table)
    heaviest = sorted(plan.placements, key=lambda p: -p.seconds)
    assert 0 < len(found) < 12 and set(found) == {p.op for p in heaviest[: len(found)]}
