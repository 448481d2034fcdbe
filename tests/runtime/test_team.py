"""A queue of two cores computes what a queue of one does, and can be given up."""

from __future__ import annotations

import os
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


def test_a_run_that_is_out_of_time_stops_and_can_be_repeated(graph: Any, plan_by_hand: Callable[..., Plan]) -> None:
    feeds, others = make_inputs(graph, 0), make_inputs(graph, 1)
    with compile_plan(graph, plan_by_hand(graph, lambda i: two_cores())) as executable:
        expected = executable.run(feeds).outputs["y"]
        for _ in range(3):
            with pytest.raises(ExecutionError, match="time limit"):
                executable.run(others, repeat=1_000_000, timeout_s=0.05)
            np.testing.assert_array_equal(executable.run(feeds).outputs["y"], expected)
