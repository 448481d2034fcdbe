"""The same convolutions and products in ONNX Runtime on one thread, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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


def quantized_convolution_runner(x: Array, w: Array, attributes: dict[str, Any]) -> Callable[[], Any] | None:
    """A call of QLinearConv on uint8, with one int8 weight scale a channel, in a one-thread session; None as above.

    Several of them in a chain would stay in the session's own layout; here the two copies at the ends are made too, so the
    convolution is repeated between them and one repetition is what counts: see :data:`REPEATED`.

    Args:
        x: uint8 [1, C, H, W].
        w: int8 [C, C / groups, kh, kw], so that the result can be convolved again.
        attributes: the operator's; they keep the image's size.
    """
    try:
        import onnxruntime as ort
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return None
    count, nodes = len(w), []
    constants: dict[str, Array] = {
        "s": np.array(0.02, np.float32), "z": np.array(128, np.uint8), "w": w, "ws": np.full(count, 1e-3, np.float32),
        "wz": np.zeros(count, np.int8),
    }  # fmt: skip
    values = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    for i in range(REPEATED):
        names = [f"x{i}", "s", "z", "w", "ws", "wz", "s", "z"]
        nodes.append(helper.make_node("QLinearConv", names, [f"x{i + 1}"], **attributes))
    inputs = [helper.make_tensor_value_info("x0", TensorProto.UINT8, x.shape)]
    outputs = [helper.make_tensor_value_info(f"x{REPEATED}", TensorProto.UINT8, None)]
    model = helper.make_model(helper.make_graph(nodes, "chain", inputs, outputs, values), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x0": x})


#: Convolutions in the chain of :func:`quantized_convolution_runner`.
REPEATED = 10
