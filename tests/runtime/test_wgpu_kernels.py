"""Every GPU kernel against numpy, over sizes that are not multiples of anything; on a software adapter where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from wgpu_table import TABLE, Case, Row

from hetsched import reference
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates import load_delegate

pytestmark = pytest.mark.skipif(not load_delegate("wgpu").probe().available, reason="there is no WebGPU adapter")
HandPlan = Callable[..., Plan]


class HypothesisDraw:
    """Sizes from hypothesis, so that failures shrink; data from a seeded generator."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))

    def integer(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.data.draw(st.integers(0, len(options) - 1))]


def graph_of(case: Case, folder: Path) -> Graph:
    protos = [helper.make_node(t, i, o, name=f"n{k}", **a) for k, (t, i, o, a) in enumerate(case.nodes)]
    inputs = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in case.feeds.items()]
    values = [numpy_helper.from_array(np.asarray(v), k) for k, v in case.constants.items()]
    graph = helper.make_graph(protos, "case", inputs, [onnx.ValueInfoProto(name="y")], values)
    path = folder / "case.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return load(path)


def on_gpu(graph: Graph, feeds: dict[str, Any], plan_by_hand: HandPlan, precision: str) -> Any:
    """The result, every operator at ``precision`` where it has it, else in float32."""
    gpu = load_delegate("wgpu")

    def place(i: int) -> str:
        return precision if gpu.supports(graph.ops[i], graph, precision) is None else "f32"

    with compile_plan(graph, plan_by_hand(graph, lambda i: "gpu", place, delegate="wgpu"), delegate="wgpu") as executable:
        return executable.run(feeds).outputs["y"]


@pytest.mark.parametrize(("row", "precision"), [(row, p) for row in TABLE for p in row.precisions], ids=lambda v: getattr(v, "name", v))
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate])
@given(data=st.data())
def test_kernel_equals_numpy(row: Row, precision: str, data: st.DataObject, plan_by_hand: HandPlan, tmp_path: Path) -> None:
    case = row.case(HypothesisDraw(data))
    graph = standard(graph_of(case, tmp_path))
    expected = reference.run(graph, case.feeds)["y"]
    got = on_gpu(graph, case.feeds, plan_by_hand, precision)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
    elif case.step:
        error = np.abs(got - expected)
        assert error.max() <= case.step * 1.001 and (error > case.step * 1e-3).mean() <= 0.05  # only ties may round differently
    else:
        size = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(got, expected, rtol=0, atol=size * (2e-2 if precision == "f16" else 2e-5))
