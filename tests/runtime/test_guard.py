"""A result that is not finite although what it was made of is: an integer product is computed again in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hetsched.frontends import load
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan

HandPlan = Callable[..., Plan]


def model(path: Any, nodes: list[Any], constants: dict[str, Any], shape: list[int]) -> Any:
    """A loaded graph of ``nodes``, from ``x`` to ``y``."""
    protos = [helper.make_node(t, i, o, name=f"/user/{k}") for k, (t, i, o) in enumerate(nodes)]
    x, y = helper.make_tensor_value_info("x", 1, shape), helper.make_tensor_value_info("y", 1, None)
    values = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    onnx.save(helper.make_model(helper.make_graph(protos, "g", [x], [y], values), opset_imports=[helper.make_opsetid("", 21)]), path)
    return load(path)


def test_an_integer_product_whose_scales_overflow_is_computed_in_float(tmp_path: Any, plan_by_hand: HandPlan) -> None:
    """The range of the inputs, 6e38, is beyond float32, and so the scale of their integers is infinite."""
    w = np.eye(8, dtype=np.float32) * np.float32(1e-3)
    graph = model(tmp_path / "m.onnx", [("MatMul", ["x", "w"], ["y"])], {"w": w}, [1, 8])
    x = np.array([[3e38, -3e38, 1, 2, 3, 4, 5, 6]], np.float32)
    with compile_plan(graph, plan_by_hand(graph, precision=lambda i: "w8a8")) as executable:
        plain, guarded = executable.run({"x": x}), executable.run({"x": x}, guard=True)
        calm = executable.run({"x": np.ones((1, 8), np.float32)}, guard=True)
    assert not np.isfinite(plain.outputs["y"]).all()
    np.testing.assert_allclose(guarded.outputs["y"], x @ w, rtol=1e-6)
    assert [n for n in guarded.trace.notes if "/user/0" in n and "again in float32" in n]
    assert not [n for n in calm.trace.notes if "float32" in n]


def test_a_float_op_that_overflows_is_named(tmp_path: Any, plan_by_hand: HandPlan) -> None:
    graph = model(tmp_path / "m.onnx", [("Exp", ["x"], ["h"]), ("Neg", ["h"], ["y"])], {}, [4])
    with compile_plan(graph, plan_by_hand(graph)) as executable:
        result = executable.run({"x": np.full(4, 1000, np.float32)}, guard=True)
    notes = [n for n in result.trace.notes if "infinities" in n]
    assert len(notes) == 1
    assert "'/user/0' (Exp)" in notes[0]
    assert "no higher precision" in notes[0]
