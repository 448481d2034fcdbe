"""Workers, fences, time limits and failures, with a delegate made for these tests: no kernel is involved."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ExecutionError, OptionError, PlanError
from hetsched.graph import DType, Graph, Op, Role, Tensor
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket

HandPlan = Callable[..., Plan]


@dataclass(frozen=True)
class Compiled:
    stamped: tuple[str, ...]
    steps: tuple[Callable[[], None], ...]


class PythonDelegate:
    """Ops are Python functions by op type: ``function(op, input arrays, output arrays)``."""

    name = "python"

    def __init__(self, **functions: Callable[[Op, list[Any], list[Any]], None]) -> None:
        self.functions = functions

    def probe(self) -> Probe:
        return Probe(True)

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        return None

    def compile(self, job: SegmentJob) -> Compiled:
        def bind(op: Op) -> Callable[[], None]:
            reads, writes = [job.buffers[i] for i in op.inputs], [job.buffers[o] for o in op.outputs]
            return lambda: self.functions[op.type](op, reads, writes)

        return Compiled(tuple(op.name for op in job.ops), tuple(bind(op) for op in job.ops))

    def submit(self, compiled: Compiled, ticket: Ticket) -> None:
        ticket.wait()
        ticket.stamps.append(time.perf_counter_ns())
        for name, step in zip(compiled.stamped, compiled.steps, strict=True):
            try:
                step()
            except ValueError as e:
                raise ExecutionError(f"node {name} failed: {e}") from e
            ticket.stamps.append(time.perf_counter_ns())
            if ticket.observe is not None:
                ticket.observe(name)
        ticket.signal()


def add_one(op: Op, reads: list[Any], writes: list[Any]) -> None:
    np.add(reads[0], 1, out=writes[0])


def fail(op: Op, reads: list[Any], writes: list[Any]) -> None:
    raise ValueError("by request")


X = {"x": np.arange(8, dtype=np.float32)}


@pytest.mark.parametrize("mode", ["spin", "block"])
def test_many_small_segments_in_turn_on_two_queues(chain: Any, plan_by_hand: HandPlan, alternate: Any, mode: str) -> None:
    graph = chain(*["Add"] * 60)
    plan = plan_by_hand(graph, alternate, mode=mode)
    assert len(plan.segments) == 60
    with compile_plan(graph, plan, delegate=PythonDelegate(Add=add_one)) as executable:
        for _ in range(3):
            result = executable.run(X, repeat=40)
            np.testing.assert_array_equal(result.outputs["t59"], X["x"] + 60)
    spans = [s for s in result.trace.spans if s.kind == "op" and s.iteration == 39]
    assert [s.name for s in sorted(spans, key=lambda s: s.start_s)] == [f"op{i}" for i in range(60)]
    assert len(result.latencies_s) == 40


def two_branches(n: int) -> Graph:
    """``x`` -> ``n`` independent ops, then one that joins them."""
    t = {"x": Tensor("x", (8,), DType.F32, Role.INPUT), "y": Tensor("y", (8,), DType.F32, Role.OUTPUT)}
    t |= {f"b{i}": Tensor(f"b{i}", (8,), DType.F32) for i in range(n)}
    branches = tuple(Op(f"branch{i}", "Branch", ("x",), (f"b{i}",)) for i in range(n))
    return Graph("branches", t, (*branches, Op("join", "Join", tuple(f"b{i}" for i in range(n)), ("y",))), ("x",), ("y",))


def test_two_queues_are_busy_at_the_same_time(plan_by_hand: HandPlan) -> None:
    """Each branch waits, inside its op, for the other to have started: only overlapping queues can finish."""
    meet = threading.Barrier(2)

    def branch(op: Op, reads: list[Any], writes: list[Any]) -> None:
        meet.wait(20)
        np.copyto(writes[0], reads[0])

    graph = two_branches(2)
    plan = plan_by_hand(graph, lambda i: "cpu:0" if i != 1 else "gpu")
    delegate = PythonDelegate(Branch=branch, Join=lambda op, r, w: np.add(r[0], r[1], out=w[0]))
    with compile_plan(graph, plan, delegate=delegate) as executable:
        result = executable.run(X)
    a, b = (next(s for s in result.trace.spans if s.kind == "op" and s.name == f"branch{i}") for i in range(2))
    assert a.queue != b.queue
    assert max(a.start_s, b.start_s) < min(a.end_s, b.end_s)
    np.testing.assert_array_equal(result.outputs["y"], 2 * X["x"])


def test_a_failing_op_names_the_node_and_stops_the_other_queue(chain: Any, plan_by_hand: HandPlan, alternate: Any) -> None:
    graph = chain("Add", "Fail", "Add", "Add")
    delegate = PythonDelegate(Add=add_one, Fail=fail)
    with compile_plan(graph, plan_by_hand(graph, alternate), delegate=delegate) as executable:
        for _ in range(2):
            with pytest.raises(ExecutionError, match=r"op1.*by request"):
                executable.run(X)
        delegate.functions["Fail"] = add_one  # the workers survived
        np.testing.assert_array_equal(executable.run(X).outputs["t3"], X["x"] + 4)


def test_a_missing_signal_ends_at_the_time_limit(chain: Any, plan_by_hand: HandPlan, alternate: Any) -> None:
    graph = chain("Add", "Wait", "Add")
    delegate = PythonDelegate(Add=add_one, Wait=lambda op, r, w: time.sleep(0.5))
    with compile_plan(graph, plan_by_hand(graph, alternate, mode="block"), delegate=delegate) as executable:
        with pytest.raises(ExecutionError, match="time limit"):
            executable.run(X, timeout_s=0.1)
        delegate.functions["Wait"] = add_one
        np.testing.assert_array_equal(executable.run(X).outputs["t2"], X["x"] + 3)


def test_an_interrupt_stops_the_run_and_leaves_it_usable(chain: Any, plan_by_hand: HandPlan, alternate: Any) -> None:
    import _thread

    def interrupt(op: Op, reads: list[Any], writes: list[Any]) -> None:
        _thread.interrupt_main()
        time.sleep(0.2)

    graph = chain("Interrupt", "Add")
    delegate = PythonDelegate(Add=add_one, Interrupt=interrupt)
    with compile_plan(graph, plan_by_hand(graph, alternate), delegate=delegate) as executable:
        with pytest.raises(KeyboardInterrupt):
            executable.run(X)
        delegate.functions["Interrupt"] = add_one
        np.testing.assert_array_equal(executable.run(X).outputs["t1"], X["x"] + 2)


def test_closing_ends_the_threads(chain: Any, plan_by_hand: HandPlan, alternate: Any) -> None:
    graph = chain("Add", "Add")
    with compile_plan(graph, plan_by_hand(graph, alternate), delegate=PythonDelegate(Add=add_one)) as executable:
        executable.run(X)
        assert sum(t.name.startswith("hetsched ") for t in threading.enumerate()) == 2
    assert not any(t.name.startswith("hetsched ") for t in threading.enumerate())
    with pytest.raises(ExecutionError, match="closed"):
        executable.run(X)


def test_workers_run_on_the_cores_of_their_queue(chain: Any, plan_by_hand: HandPlan, alternate: Any) -> None:
    os = pytest.importorskip("os")
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("pinning needs Linux and two cores")
    seen: dict[str, Any] = {}

    def where(op: Op, reads: list[Any], writes: list[Any]) -> None:
        seen[op.name] = os.sched_getaffinity(0)

    graph = chain("Where", "Where")
    before = os.sched_getaffinity(0)
    with compile_plan(graph, plan_by_hand(graph, alternate), delegate=PythonDelegate(Where=where)) as executable:
        assert not executable.run(X).trace.notes
    assert [{int(alternate(i).split(":")[1])} for i in range(2)] == [seen["op0"], seen["op1"]]
    assert os.sched_getaffinity(0) == before


def test_a_queue_without_cores_is_noted(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Add")
    with compile_plan(graph, plan_by_hand(graph, lambda i: "npu"), delegate=PythonDelegate(Add=add_one)) as executable:
        assert executable.run(X).trace.notes == ["the worker of queue npu is not pinned: its name gives no cores"]


def test_the_trace_holds_every_op_segment_and_wait(chain: Any, plan_by_hand: HandPlan, alternate: Any) -> None:
    graph = chain("Add", "Add", "Add")
    plan = plan_by_hand(graph, alternate, seconds=3e-6)
    with compile_plan(graph, plan, delegate=PythonDelegate(Add=add_one)) as executable:
        trace = executable.run(X, repeat=2).trace
    assert trace.origin == "measured"
    for iteration in (0, 1):
        spans = [s for s in trace.spans if s.iteration == iteration]
        assert sorted(s.name for s in spans if s.kind == "op") == ["op0", "op1", "op2"]
        assert {s.predicted_s for s in spans if s.kind == "op"} == {3e-6}
        assert [s.segment for s in spans if s.kind == "segment"] == [0, 2, 1]
        assert len([s for s in spans if s.kind == "wait"]) == len(plan.fences)
        for s in spans:
            assert 0 <= s.start_s <= s.end_s
            if s.kind == "op":
                parent = next(p for p in spans if p.kind == "segment" and p.segment == s.segment)
                assert parent.start_s <= s.start_s and s.end_s <= parent.end_s
    assert [i.name for i in trace.instants if i.kind == "fence"] == ["segment 0", "segment 1"] * 2
    assert trace.counters["memory/arena"].values == [plan.arena_bytes]


def test_observing_copies_each_output(chain: Any, plan_by_hand: HandPlan, alternate: Any) -> None:
    graph = chain("Add", "Add", "Add")
    with compile_plan(graph, plan_by_hand(graph, alternate), delegate=PythonDelegate(Add=add_one)) as executable:
        observed = executable.run(X, observe=True).observed
        assert not executable.run(X).observed
    for i in range(3):
        np.testing.assert_array_equal(observed[f"t{i}"], X["x"] + i + 1)


def test_the_null_delegate_takes_the_predicted_time(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Anything", "Goes")
    plan = plan_by_hand(graph, lambda i: ("npu", "gpu")[i], seconds=0.004, delegate="qnn")
    with pytest.raises(PlanError, match="snapdragon-8-gen-3; run it there or plan for host"):
        compile_plan(graph, plan, soc="snapdragon-8-gen-3")
    with pytest.raises(PlanError, match="'qnn'"):
        compile_plan(graph, plan)
    with pytest.raises(PlanError, match="'npu', which is not a CPU"):
        compile_plan(graph, plan_by_hand(graph, lambda i: "npu"))
    with compile_plan(graph, plan, soc="snapdragon-8-gen-3", delegate="null") as executable:
        result = executable.run(X)
    assert all(s.end_s - s.start_s >= 0.0039 for s in result.trace.spans if s.kind == "op")
    assert not result.outputs["t1"].any()
    assert any("computes nothing" in n for n in result.trace.notes)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "'x'.*missing"),
        ({"x": np.zeros(9, np.float32)}, r"shape \[9\]"),
        ({"x": np.zeros(8)}, "float64"),
        ({**X, "y": X["x"]}, "no input 'y'"),
    ],
)
def test_bad_feeds(chain: Any, plan_by_hand: HandPlan, feeds: dict[str, Any], message: str) -> None:
    graph = chain("Add")
    executable = compile_plan(graph, plan_by_hand(graph), delegate=PythonDelegate(Add=add_one))
    with pytest.raises(OptionError, match=message):
        executable.run(feeds)


def test_a_plan_for_another_graph_is_refused(chain: Any, plan_by_hand: HandPlan) -> None:
    small, large = chain("Add"), chain("Add", "Add")
    with pytest.raises(PlanError, match="'op1'"):
        compile_plan(large, plan_by_hand(small), delegate=PythonDelegate())
    with pytest.raises(PlanError, match="'op1'"):
        compile_plan(small, plan_by_hand(large), delegate=PythonDelegate())
    plan = plan_by_hand(small)
    with pytest.raises(PlanError, match="no buffer for tensor 't0'"):
        compile_plan(small, plan.model_copy(update={"buffers": plan.buffers[:1]}), delegate=PythonDelegate())
    with pytest.raises(PlanError, match="outside its arena"):
        compile_plan(small, plan.model_copy(update={"arena_bytes": 32}), delegate=PythonDelegate())
