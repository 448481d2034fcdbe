"""What the host spends on the order of channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.passes import standard
from hetsched_cost_models.layouts import _orders


@pytest.fixture
def graph(tmp_path: Path) -> Any:
    """Two convolutions around a pool and a transposition of rows: the pool follows the first one, the transposition does not."""
    import onnx
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first"),
        helper.make_node("MaxPool", ["a"], ["b"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Transpose", ["b"], ["c"], name="turned", perm=[0, 1, 3, 2]),
        helper.make_node("Conv", ["c", "w"], ["y"], name="second"),
    ]
    w = numpy_helper.from_array(np.ones((8, 8, 1, 1), np.float32), "w")
    x, y = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 8, 16, 12]), ("y", None)))
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [w]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    return standard(load(tmp_path / "m.onnx"))


def test_each_reader_of_the_other_order_makes_a_copy(graph: Any) -> None:
    copied, pooled = _orders(graph, "f32")
    large, small = 2.0 * 4 * 8 * 16 * 12, 2.0 * 4 * 8 * 8 * 6
    assert [op.type for op in graph.ops] == ["Conv", "MaxPool", "Transpose", "Conv"]
    # The input and the output are in ONNX's order; between the first convolution and the pool nothing is copied.
    assert copied.tolist() == [large, 0.0, small, 2 * small]
    assert pooled.tolist() == [False, True, False, False]
