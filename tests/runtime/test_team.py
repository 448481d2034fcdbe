"""A queue of two cores computes what a queue of one does, and can be given up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ExecutionError
from hetsched.frontends import load
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime import make_inputs
from hetsched.runtime.affinity import allowed, cores_of
from hetsched.runtime.team import Team
from hetsched_kernels.movement import fill
from hetsched_kernels.program import Call, compile_program, counters


@pytest.fixture
def graph(tmp_path: Path) -> Any:
    """A convolution, a function, a product and a layer normalisation, each large enough to be split."""
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"w": (24, 3, 3, 3), "m": (32, 48), "s": (48,)}
    values = [numpy_helper.from_array((rng.standard_normal(shape) * 0.2).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "m"], ["c"]),
        helper.make_node("LayerNormalization", ["c", "s"], ["y"]),
    ]
    x, y = helper.make_tensor_value_info("x", 1, [1, 3, 32, 32]), helper.make_tensor_value_info("y", 1, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], values), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    return standard(load(tmp_path / "m.onnx"))


def two_cores() -> str:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0, 1]
    return f"cpu:{cores[0]},{cores[-1]}" if len(cores) > 1 else "cpu:0,1"


def test_two_cores_compute_what_one_does(graph: Any, plan_by_hand: Callable[..., Plan]) -> None:
    feeds = make_inputs(graph, 0)
    with compile_plan(graph, plan_by_hand(graph)) as one, compile_plan(graph, plan_by_hand(graph, lambda i: two_cores())) as two:
        expected = one.run(feeds).outputs["y"]
        for _ in range(5):
            result = two.run(feeds, repeat=10)
            np.testing.assert_array_equal(result.outputs["y"], expected)
        observed = two.run(feeds, observe=True)
    np.testing.assert_array_equal(observed.outputs["y"], expected)
    assert {s.name for s in result.trace.spans if s.kind == "op"} == {op.name for op in graph.ops}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one core, or no pinning")
def test_threads_move_to_other_cores_between_runs() -> None:
    """The first threads, the leader among them, are where they are told; the others are not lost."""
    old = threading.enumerate()
    team, steps = Team(two_cores(), 16), compile_program([[Call(fill, ("uint64",), (np.zeros(8, np.uint64), np.ones(1, np.uint64)))]])
    shared, stop, stamps = counters(1), np.zeros(1, np.int64), np.zeros(0, np.int64)
    first, last = cores_of(two_cores())
    try:
        for turn, to in ((0, (first, last)), (1, (last,)), (1, (last, first)), (2, (first, last))):
            team.move(to)
            team.run(steps.table, steps.steps, shared, stop, stamps, 0, 1, turn, len(to))
            assert os.sched_getaffinity(0) == {to[0]}
            new = [t.native_id for t in threading.enumerate() if t not in old]
            assert [os.sched_getaffinity(i) for i in new if i is not None] == [{first if to[0] == last else last}]
    finally:
        team.close()
    assert os.sched_getaffinity(0) == allowed()


def test_a_run_that_is_out_of_time_stops_and_can_be_repeated(graph: Any, plan_by_hand: Callable[..., Plan]) -> None:
    feeds, others = make_inputs(graph, 0), make_inputs(graph, 1)
    with compile_plan(graph, plan_by_hand(graph, lambda i: two_cores())) as executable:
        expected = executable.run(feeds).outputs["y"]
        for _ in range(3):
            with pytest.raises(ExecutionError, match="time limit"):
                executable.run(others, repeat=1_000_000, timeout_s=0.05)
            np.testing.assert_array_equal(executable.run(feeds).outputs["y"], expected)


def test_where_threads_cannot_be_pinned_all_cores_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert allowed.__wrapped__() == frozenset(range(os.cpu_count() or 1))


def test_what_is_closed_does_not_wait_for_threads_that_have_ended() -> None:
    out, team = np.zeros(64, np.uint64), Team(two_cores(), 1)
    program, shared, stop = compile_program([[Call(fill, ("uint64",), (out, np.ones(1, np.uint64)))]]), counters(1), np.zeros(1, np.int64)
    team.run(program.table, program.steps, shared, stop, np.zeros(0, np.int64), 0, 1, 0)
    assert (out == 1).all()
    team.close()
    team.close()
    with pytest.raises(ExecutionError, match="computes no more"):
        team.run(program.table, program.steps, shared, stop, np.zeros(0, np.int64), 0, 1, 1)
