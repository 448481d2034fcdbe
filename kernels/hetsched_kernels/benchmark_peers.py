"""The same convolutions and products in ONNX Runtime on one thread, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched_kernels.arrays import Array


def ort_runner(operator: str, x: Array, w: Array, attributes: dict[str, Any]) -> Callable[[], Any] | None:
    """A call of ``Relu(operator(x, w))`` in a one-thread session; None without onnx and onnxruntime.

    Args:
        operator: ``Conv`` or ``MatMul``.
        x: input, in the operator's shape.
        w: weights.
        attributes: the operator's.
    """
    try:
        import onnxruntime as ort
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return None
    nodes = [helper.make_node(operator, ["x", "w"], ["h"], **attributes), helper.make_node("Relu", ["h"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "one", inputs, outputs, [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})
