"""No plan makes a kernel write over bytes that another op still needs: such plans are refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetsched
from hetsched.errors import ModelError, PlanError
from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.plan_rules import check_graph, check_memory
from hetsched.plans import Fence, Plan
from hetsched.runtime import compile as compile_plan

PlanByHand = Callable[..., Plan]


def branches(kind: str = "Transpose") -> Graph:
    """x -> a -> a2, x -> b, (a2, b) -> y: ``a`` is over once ``a2`` is written, whatever ``b`` does; ``kind``: of all but the last."""
    names = ("x", "a", "a2", "b", "y")
    roles = {"x": Role.INPUT, "y": Role.OUTPUT}
    tensors = {n: Tensor(n, (16,), DType.F32, roles.get(n, Role.ACTIVATION)) for n in names}
    ops = (
        Op("opa", kind, ("x",), ("a",)), Op("opa2", kind, ("a",), ("a2",)), Op("opb", kind, ("x",), ("b",)),
        Op("opy", "Add" if kind == "Relu" else "Concat", ("a2", "b"), ("y",)),
    )  # fmt: skip
    return Graph("branches", tensors, ops, ("x",), ("y",))


def moved(plan: Plan, tensor: str, onto: str) -> Plan:
    offset = next(b.offset for b in plan.buffers if b.tensor == onto)
    return plan.model_copy(
        update={"buffers": tuple(b.model_copy(update={"offset": offset}) if b.tensor == tensor else b for b in plan.buffers)}
    )


@pytest.mark.parametrize(
    ("tensor", "onto"), [("a", "x"), ("a2", "a"), ("b", "a2"), ("y", "b"), ("b", "x"), ("y", "a2")], ids=lambda v: str(v)
)
def test_bytes_shared_by_tensors_that_are_needed_at_once(plan_by_hand: PlanByHand, tensor: str, onto: str) -> None:
    graph = branches()
    with pytest.raises(PlanError, match="over each other"):
        compile_plan(graph, moved(plan_by_hand(graph), tensor, onto))


@pytest.mark.parametrize(("tensor", "onto"), [("b", "a"), ("y", "a"), ("y", "x")], ids=lambda v: str(v))
def test_bytes_shared_one_after_the_other(plan_by_hand: PlanByHand, tensor: str, onto: str) -> None:
    graph = branches()
    check_memory(moved(plan_by_hand(graph), tensor, onto), graph)


@pytest.mark.parametrize(("tensor", "onto"), [("a2", "a"), ("y", "b"), ("y", "a2"), ("b", "x")], ids=lambda v: str(v))
def test_an_elementwise_op_writes_over_what_it_alone_still_reads(plan_by_hand: PlanByHand, tensor: str, onto: str) -> None:
    graph = branches("Relu")
    plan = moved(plan_by_hand(graph), tensor, onto)
    check_memory(plan, graph)
    shifted = [b.model_copy(update={"offset": b.offset + 32}) if b.tensor == tensor else b for b in plan.buffers]
    with pytest.raises(PlanError, match="over each other"):
        check_memory(plan.model_copy(update={"buffers": tuple(shifted)}), graph)


def test_an_elementwise_op_may_not_write_over_what_others_read_later(plan_by_hand: PlanByHand) -> None:
    graph = branches("Relu")
    with pytest.raises(PlanError, match=r"'a'.*'x'|'x'.*'a'"):
        check_memory(moved(plan_by_hand(graph), "a", "x"), graph)
    two_queues = plan_by_hand(graph, queue_of=lambda i: "cpu:1" if i == 2 else "cpu:0")
    with pytest.raises(PlanError, match=r"'b'.*'x'|'x'.*'b'"):  # opa may still be reading x
        check_memory(moved(two_queues, "b", "x"), graph)


def test_a_view_lies_where_what_it_shows_lies_and_nothing_is_written_over_it(plan_by_hand: PlanByHand) -> None:
    graph = branches("Reshape")
    plan = moved(moved(plan_by_hand(graph), "a", "x"), "b", "x")
    check_memory(plan, graph)
    elsewhere = branches("Relu")  # the same places, but these ops write
    with pytest.raises(PlanError, match="over each other"):
        check_memory(plan, elsewhere)


def test_list_order_does_not_count_between_queues(plan_by_hand: PlanByHand) -> None:
    """``b`` on its own queue may be written while ``a`` is read, although the plan lists it later."""
    graph = branches()
    plan = plan_by_hand(graph, queue_of=lambda i: "cpu:1" if i == 2 else "cpu:0")
    with pytest.raises(PlanError, match=r"'a'.*'b'|'b'.*'a'"):
        check_memory(moved(plan, "b", "a"), graph)


def test_a_missing_fence(plan_by_hand: PlanByHand) -> None:
    graph = branches()
    plan = plan_by_hand(graph, queue_of=lambda i: f"cpu:{i % 2}")
    check_graph(plan, graph)
    for left_out in plan.fences:
        cut = plan.model_copy(update={"fences": tuple(f for f in plan.fences if f != left_out)})
        with pytest.raises(PlanError, match="reads from"):
            compile_plan(graph, cut)


@pytest.mark.parametrize(("signal", "wait"), [(1, 0), (0, 0), (0, 1 << 40), (-5, 0)])
def test_fences_that_lead_nowhere(plan_by_hand: PlanByHand, signal: int, wait: int) -> None:
    graph = branches()
    plan = plan_by_hand(graph, queue_of=lambda i: f"cpu:{i % 2}")
    bad = plan.model_copy(update={"fences": (*plan.fences, Fence(signal=signal, wait=wait, sync_s=0.0, mode="block"))})
    with pytest.raises(PlanError, match="fence"):
        compile_plan(graph, bad)


def test_the_null_delegate_does_not_wait_for_ever(plan_by_hand: PlanByHand) -> None:
    graph = branches()
    with pytest.raises(PlanError, match="at most 600"):
        compile_plan(graph, plan_by_hand(graph, seconds=1e6), delegate="null")


@pytest.mark.parametrize("solver", ["heft", "auto", "single:cpu"])
def test_what_the_planner_makes_is_safe(two_branch: Path, solver: str) -> None:
    for soc in ("host", "snapdragon-8-gen-3"):
        planned = hetsched.plan(two_branch, soc, dims={"width": 16}, solver=solver, simulated=False)
        check_graph(planned.plan, planned.graph)
        check_memory(planned.plan, planned.graph)


def test_a_model_without_its_weights_is_refused_before_anything_is_compiled(plan_by_hand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {
        "x": Tensor("x", (2, 3), DType.F32, Role.INPUT), "w": Tensor("w", (3, 4), DType.F32, Role.WEIGHT, None, WeightRef()),
        "y": Tensor("y", (2, 4), DType.F32, Role.OUTPUT),
    }  # fmt: skip
    graph = Graph("net", tensors, (Op("product", "MatMul", ("x", "w"), ("y",)),), ("x",), ("y",))
    monkeypatch.setattr("hetsched.runtime.compiling._compile_segments", lambda *_: pytest.fail("kernels were compiled"))
    with pytest.raises(ModelError, match=r"the weights of 'net' are absent \(1 tensors, the first is 'w'\): .*planned but not run"):
        compile_plan(graph, plan_by_hand(graph))
