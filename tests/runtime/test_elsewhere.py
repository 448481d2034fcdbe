"""Plans for another SoC run here: who stands in for its processors, and what is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hetsched.errors import OptionError, PlanError
from hetsched.graph import Graph
from hetsched.plans import Plan
from hetsched.runtime import Executable
from hetsched.runtime import compile as compile_plan

pytest.importorskip("onnxruntime")
HandPlan = Callable[..., Plan]
PHONE = "snapdragon-8-gen-3"
QUEUES = ("cpu", "gpu", "npu")
X = np.linspace(-2, 2, 8, dtype=np.float32)


@pytest.fixture
def graph(chain: Any) -> Graph:
    made: Graph = chain("Relu", "Exp", "Neg")
    return made


@pytest.fixture
def plan(graph: Graph, plan_by_hand: HandPlan) -> Plan:
    """An op on each processor, GPU and NPU in float16, with offsets for float16 tensors."""
    made = plan_by_hand(graph, lambda i: QUEUES[i], precision=lambda i: ("f32", "f16", "f16")[i])
    halved = tuple(b.model_copy(update={"offset": b.offset // 2, "nbytes": b.nbytes // 2}) for b in made.buffers)
    copy = halved[0].model_copy(update={"tensor": "x@npu:f16"})
    return made.model_copy(update={"buffers": (*halved, copy), "arena_bytes": made.arena_bytes // 2})


def as_run(executable: Executable) -> Plan:
    assert executable.assigned is not None
    return executable.assigned.plan


def test_each_processor_needs_somebody(graph: Graph, plan: Plan) -> None:
    with pytest.raises(PlanError, match=r"for snapdragon-8-gen-3; .*say who stands in: --delegate gpu=numba --delegate npu=numba"):
        compile_plan(graph, plan, soc=PHONE, delegate={"cpu": "numba"})
    with pytest.raises(PlanError, match=r"try it with --delegate null"):
        compile_plan(graph, plan, soc=PHONE)


def test_it_runs_with_stand_ins(graph: Graph, plan: Plan) -> None:
    with compile_plan(graph, plan, soc=PHONE, delegate={"cpu": "numba", "gpu": "ort", "npu": "numba"}) as executable:
        result = executable.run({"x": X})
        assert {p.queue: (p.precision, p.delegate) for p in as_run(executable).placements} == {
            "cpu": ("f32", "numba"), "gpu": ("f32", "ort"), "npu": ("f32", "numba"),
        }  # fmt: skip
    np.testing.assert_allclose(result.outputs["t2"], -np.exp(np.maximum(X, 0)), rtol=1e-5)
    notes = " ".join(result.trace.notes)
    assert "1 ops on gpu are planned in f16 and run in f32" in notes and "bytes of its own" in notes
    assert {i.name: i.detail.split()[0] for i in result.trace.instants if i.kind == "delegate"} == {
        "cpu": "numba", "gpu": "ort", "npu": "numba",
    }  # fmt: skip


def test_unknown_queues_and_delegates(graph: Graph, plan: Plan) -> None:
    with pytest.raises(OptionError, match=r"--delegate tpu=ort: the plan uses cpu, gpu, npu"):
        compile_plan(graph, plan, soc=PHONE, delegate={"tpu": "ort"})
    with pytest.raises(PlanError, match="no delegate is called 'cuda'"):
        compile_plan(graph, plan, soc=PHONE, delegate=dict.fromkeys(QUEUES, "cuda"))


def test_the_first_that_takes_an_op_gets_it(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Sinh", "Neg")
    plan = plan_by_hand(graph, lambda i: "cpu:0")
    with compile_plan(graph, plan, delegate={"cpu": "numba,ort"}) as executable:
        assert [p.delegate for p in as_run(executable).placements] == ["numba", "ort", "numba"]
        np.testing.assert_allclose(executable.run({"x": X}).outputs["t2"], -np.sinh(np.maximum(X, 0)), rtol=1e-5)
        assert as_run(executable).buffers == plan.buffers


def test_a_queue_comes_before_its_processor(graph: Graph, plan_by_hand: HandPlan, alternate: Any) -> None:
    plan = plan_by_hand(graph, alternate)
    first, second = (p.queue for p in plan.placements[:2])
    with compile_plan(graph, plan, delegate={"cpu": "ort", first: "numba"}) as executable:
        assert {p.queue: p.delegate for p in as_run(executable).placements} == {first: "numba", second: "ort"}


def test_a_delegate_without_work_is_said(graph: Graph, plan_by_hand: HandPlan) -> None:
    with compile_plan(graph, plan_by_hand(graph), delegate={"npu": "ort"}) as executable:
        trace = executable.run({"x": X}).trace
    assert "the plan puts nothing on npu, so the delegate ort has nothing to do" in trace.notes
    assert any(s.predicted_s is not None for s in trace.spans)
