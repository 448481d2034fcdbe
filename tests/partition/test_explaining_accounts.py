"""Where the time of a placement goes, what cuts it into segments, and what baselines lose."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.accounts import Accounts, RefusedOps, TypeWork
from hetsched.costs import CostTable, Refusal
from hetsched.graph import Csr
from hetsched.partition import Problem, baselines, build_plan, explain_plan, solve
from hetsched.partition.accounting import accounts_of, critical_path, refused_by, work_by_type
from hetsched.partition.timing import Costs
from hetsched.partition.vendor import preferred
from hetsched.plans import Baseline, Plan
from hetsched.segments import schedule

PARTS = ("work", "launch", "sync", "transfer")


def placed_anyhow(table: CostTable, seed: int) -> list[int]:
    r = np.random.default_rng(seed)
    return [int(r.choice(list(table.alternatives(op)))) for op in range(len(table.op_names))]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 14), st.booleans())
def test_the_parts_add_up_to_the_latency_and_the_energy(random_table, seed, n, shared):
    table = random_table(seed, n, 4, shared_domains=shared)
    timed = schedule(table, range(n), placed_anyhow(table, seed))
    found = accounts_of(table, timed)
    assert sum(getattr(found, f"{p}_s") for p in PARTS) == pytest.approx(timed.latency_s, abs=1e-12)
    assert sum(getattr(found, f"{p}_j") for p in PARTS) == pytest.approx(timed.energy_j, abs=1e-12)
    assert found.count == len(timed.segments)
    assert found.segments == {
        q.name: sum(s.queue == k for s in timed.segments) for k, q in enumerate(table.queues) if any(s.queue == k for s in timed.segments)
    }


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 14))
def test_every_segment_of_the_critical_path_begins_when_the_one_before_allows(random_table, seed, n):
    table = random_table(seed, n)
    timed = schedule(table, range(n), placed_anyhow(table, seed))
    path, *_ = critical_path(table, timed)
    assert timed.start_s[path[0]] == 0
    for a, b in pairwise(path):
        sync = float(table.sync_s[timed.segments[a].queue, timed.segments[b].queue])
        assert timed.start_s[b] == pytest.approx(timed.end_s[a] + sync, abs=1e-15)


def test_an_op_on_the_host_is_work_and_a_launch_and_nothing_else(random_table):
    table = random_table(1, 1, support=0)
    found = accounts_of(table, schedule(table, [0], [0]))
    assert found.work_s == table.time_s[0] and found.launch_s == table.launch_s[0] and found.sync_s == found.transfer_s == 0
    assert found.segments == {"cpu0": 1}


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 12))
def test_work_by_type_holds_every_op_once(random_table, seed, n):
    table = random_table(seed, n)
    c, chosen = Costs(table), placed_anyhow(table, seed)
    types = ["Conv" if i % 3 else "Add" for i in range(n)]
    found = work_by_type(c, table, types, chosen)
    assert sum(w.ops for w in found) == n and len({(w.type, w.queue) for w in found}) == len(found)
    assert sum(w.seconds for w in found) == pytest.approx(float(table.time_s[chosen].sum()))
    assert sum(w.energy_j for w in found) == pytest.approx(float(table.energy_j[chosen].sum()))


def with_alternative(table: CostTable, chosen: list[int], ops: list[int], queue: int, domain: int) -> tuple[CostTable, list[int]]:
    """The table with one more alternative, the last, of each of ``ops``, as long as the chosen one; and the placement that uses it."""
    counts = np.diff(table.alt_start) + np.isin(np.arange(len(table.op_names)), ops)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    at = [int(table.alt_start[op + 1]) for op in ops]
    columns = {}
    for name in ("alt_queue", "alt_domain", "compute_s", "overhead_s", "dram_bytes", "weight_bytes", "macs", "energy_j"):
        old = getattr(table, name)
        columns[name] = np.insert(old, at, {"alt_queue": queue, "alt_domain": domain}.get(name, old[[chosen[op] for op in ops]]))
    precision = tuple(np.insert(np.array(table.alt_precision, object), at, ["f32"] * len(ops)).tolist())
    moved = [int(start[op + 1]) - 1 if op in ops else a + int(start[op] - table.alt_start[op]) for op, a in enumerate(chosen)]
    return replace(table, alt_start=start, alt_precision=precision, **columns), moved


def test_refused_ops_are_timed_as_if_the_queue_took_them(random_table):
    seen = 0
    for seed in range(20):
        table = random_table(seed, 10, support=0.6)
        answer = solve(Problem(table), "vendor")
        c, chosen, types = Costs(table), list(answer.alternative), ["Conv" if i % 2 else "Resize" for i in range(10)]
        queue = preferred(c, table)
        before = (list(c.queue), list(c.domain), list(c.time), list(c.energy))
        found = refused_by(c, table, types, answer.order, chosen, queue)
        assert (c.queue, c.domain, c.time, c.energy) == before
        held = [int(table.alt_domain[a]) for a in chosen if table.alt_queue[a] == queue]
        for r in found:
            ops = [i for i in range(10) if types[i] == r.type and all(table.alt_queue[a] != queue for a in table.alternatives(i))]
            assert r.ops == len(ops) and r.example == table.op_names[ops[0]] and r.queue == table.queues[queue].name
            assert r.reason == "not in its operator table"
            other, moved = with_alternative(table, chosen, ops, queue, max(sorted(set(held)), key=held.count))
            assert r.latency_s == pytest.approx(schedule(other, answer.order, moved).latency_s, rel=1e-12)
            seen += 1
        assert [r.latency_s for r in found] == sorted(r.latency_s for r in found)
    assert seen > 10


def test_refusals_that_differ_in_a_detail_count_together(random_table):
    table, queue = random_table(3, 6, support=1.0), 2
    cut = table.restrict(~((table.alt_queue == queue) & np.isin(table.alt_op, (1, 4))))
    cut = replace(cut, refusals=tuple((Refusal(queue, "f32", f"too wide (scale is {i})"),) for i in range(6)))
    chosen = [next((a for a in cut.alternatives(i) if cut.alt_queue[a] == queue), int(cut.alt_start[i])) for i in range(6)]
    found = refused_by(Costs(cut), cut, ["Resize"] * 6, range(6), chosen, queue)
    assert [(r.reason, r.ops, r.example) for r in found] == [("too wide", 2, "op1")]


def test_a_plan_file_holds_the_accounts_of_the_plan_and_of_its_baselines(random_table, graph_of):
    table = random_table(11, 12, crossing_us=40)
    graph = graph_of(table)
    problem = Problem.of(graph, table)
    plan = build_plan(graph, problem, solve(problem, "auto", time_limit_s=0.2), baselines(problem))
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert plan.accounts is not None and plan.accounts.count == len(plan.segments)
    for b in plan.baselines:
        if b.accounts is None:
            assert b.latency_s is None
            continue
        assert sum(getattr(b.accounts, f"{p}_s") for p in PARTS) == pytest.approx(b.latency_s, rel=1e-12)
        assert b.accounts.count == b.segments and sum(w.ops for w in b.types) == 12
        assert not b.refused or b.solver == "vendor"


def test_baselines_leave_out_a_queue_that_is_closed_to_all(random_table, graph_of):
    table = random_table(4, 8, support=1.0)
    problem = replace(Problem.of(graph_of(table), table), forbidden=(("*", "npu2"), ("op3", "gpu1")))
    found = {b.solver: b for b in baselines(problem)}
    assert found["single:npu2"].latency_s is None
    assert found["single:gpu1"].latency_s is not None, "what single ops may not do is no matter of the baselines"
    assert all("npu2" not in b.accounts.segments for b in found.values() if b.accounts is not None)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 10), st.sampled_from(["latency", "energy"]))
def test_losses_are_differences_of_figures(random_table, graph_of, seed, n, objective):
    table = random_table(seed, n)
    graph = graph_of(table)
    problem = Problem.of(graph, table, objective)
    plan = build_plan(graph, problem, solve(problem, "frontier-dp"), baselines(problem))
    found = explain_plan(plan)
    known = {b.solver: b for b in plan.baselines}
    assert found.losses[0].solver == "vendor"
    for x in found.losses:
        b = known[x.solver]
        its, mine = (b.energy_j, plan.prediction.energy_j) if objective == "energy" else (b.latency_s, plan.prediction.latency_s)
        assert x.lost == pytest.approx(its - mine, abs=1e-12)
        assert sum(x.parts.values()) == pytest.approx(x.lost, abs=1e-15)
    singles = [b for b in plan.baselines if b.solver.startswith("single") and b.latency_s is not None]
    best = min(singles, key=lambda b: b.energy_j if objective == "energy" else b.latency_s)
    assert found.losses[-1].solver == best.solver
    assert len(found.rows()) == 1 + sum(b.accounts is not None for b in plan.baselines)


def accounts(work: float, launch: float, sync: float, transfer: float, **segments: int) -> Accounts:
    return Accounts(
        work_s=work, launch_s=launch, sync_s=sync, transfer_s=transfer, work_j=1.0, launch_j=0.0, sync_j=0.0, transfer_j=0.0,
        segments=segments,
    )  # fmt: skip


@pytest.fixture
def told(random_table, graph_of):
    """A plan beside a vendor's default that is cut in pieces."""
    table = replace(random_table(1, 2, support=0, density=0), successors=Csr.from_rows([[], []]))
    graph = graph_of(table)
    plan = build_plan(graph, Problem.of(graph, table), solve(Problem(table), "single:cpu0"))
    vendor = Baseline(
        solver="vendor", latency_s=5e-3, energy_j=1.0, segments=17, accounts=accounts(1.9e-3, 1e-3, 2e-3, 1e-4, cpu=8, npu=9),
        types=(TypeWork(type="Conv", queue="npu", ops=2, seconds=1.9e-3, energy_j=1.0),),
        refused=(RefusedOps(type="Resize", queue="npu", reason="scale", ops=8, example="r", latency_s=3e-3),),
    )  # fmt: skip
    placements = tuple(p.model_copy(update={"seconds": 4e-4}) for p in plan.placements)
    return plan.model_copy(
        update={"accounts": accounts(8e-4, 2e-4, 0, 0, cpu=1), "baselines": (vendor,), "placements": placements, "segments": plan.segments}
    )


def test_the_vendors_loss_in_words(told):
    found = explain_plan(told)
    assert found.lines() == [
        "vendor loses 4 ms (work +1.1 ms, launches +800 µs, syncs +2 ms, transfers +100 µs), in 17 segments (8 cpu, 9 npu)",
        "  npu refuses 8 Resize (scale): with them there it would be 2 ms faster",
        "  Conv: 1.9 ms on npu, 800 µs in this plan on cpu0",
    ]
    assert found.brief() == [found.lines()[0], found.lines()[1].strip()]
    assert found.rows()[-1] == ["this plan", "1 ms", "800 µs", "200 µs", "0", "0", "1 cpu"]


def test_a_vendor_that_is_as_good_or_better_loses_nothing(told):
    mine = told.accounts
    same = told.baselines[0].model_copy(update={"accounts": mine, "refused": (), "types": ()})
    assert explain_plan(told.model_copy(update={"baselines": (same,)})).lines() == ["vendor: as good as this plan, in 1 segment (1 cpu)"]
    better = same.model_copy(update={"accounts": accounts(5e-4, 2e-4, 0, 0, cpu=1)})
    found = explain_plan(told.model_copy(update={"baselines": (better,)}))
    assert found.lines()[0].startswith("vendor would be better by 300 µs (work -300 µs)") and found.brief() == []


def test_what_was_said_of_a_twin_is_not_said_again(told):
    single = told.baselines[0].model_copy(update={"solver": "single:npu"})
    found = explain_plan(told.model_copy(update={"baselines": (*told.baselines, single)}))
    assert found.lines()[3:] == ["single:npu: as vendor"] and found.as_dict()["single:npu"]["lost"] == found.as_dict()["vendor"]["lost"]


def test_a_plan_file_without_accounts_compares_nothing(told):
    found = explain_plan(told.model_copy(update={"accounts": None}))
    assert found.lines() == [] and found.brief() == [] and found.as_dict() == {}
