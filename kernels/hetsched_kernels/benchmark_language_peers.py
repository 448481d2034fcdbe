"""The same products and quantizers in ONNX Runtime on one thread, where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hetsched_kernels.arrays import Array

_CONTRIB = "com.microsoft"


def n_bits_runner(codes: Array, scales: Array, group: int, x: Array, accuracy: int, copies: int) -> Callable[[], Any] | None:
    """A call of ``copies`` products MatMulNBits with weights of their own; None without onnx and onnxruntime.

    Args:
        codes: uint8 [n, k] of 4 bits.
        scales: float32 [n, k / group].
        group: values of k that share a scale.
        x: float32 [m, k].
        accuracy: ONNX Runtime's accuracy level; 4 multiplies int8.
        copies: products.
    """
    try:
        from onnx import helper, numpy_helper
    except ImportError:
        return None
    n, k = codes.shape
    packed = (codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)).reshape(n, k // group, group // 2)
    attributes = {"K": k, "N": n, "bits": 4, "block_size": group, "accuracy_level": accuracy}
    nodes, weights = [], []
    for i in range(copies):  # weights that differ: equal ones are stored once
        parts = {f"w{i}": packed ^ np.uint8(i), f"s{i}": scales.reshape(-1) * np.float32(1 + i / copies)}
        weights += [numpy_helper.from_array(part, name) for name, part in parts.items()]
        nodes.append(helper.make_node("MatMulNBits", ["x", f"w{i}", f"s{i}"], [f"y{i}"], domain=_CONTRIB, **attributes))
    return _session(nodes, weights, x, [f"y{i}" for i in range(copies)])


def dynamic_quantize_runner(x: Array) -> Callable[[], Any] | None:
    """A call of DynamicQuantizeLinear; None without onnx and onnxruntime."""
    try:
        from onnx import helper
    except ImportError:
        return None
    return _session([helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])], [], x, ["q"])


def dynamic_product_runner(x: Array, w: Array, scales: Array) -> Callable[[], Any] | None:
    """A call of DynamicQuantizeMatMul of x [m, k] and int8 w [k, n] with a scale a column; None without onnx and onnxruntime."""
    try:
        from onnx import helper, numpy_helper
    except ImportError:
        return None
    node = helper.make_node("DynamicQuantizeMatMul", ["x", "w", "s"], ["y"], domain=_CONTRIB)
    return _session([node], [numpy_helper.from_array(w, "w"), numpy_helper.from_array(scales, "s")], x, ["y"])


def _session(nodes: Sequence[Any], weights: Sequence[Any], x: Array, outputs: Sequence[str]) -> Callable[[], Any] | None:
    try:
        import onnxruntime as ort
        from onnx import TensorProto, helper
    except ImportError:
        return None
    kind = TensorProto.FLOAT if outputs[0] != "q" else TensorProto.UINT8
    graph = helper.make_graph(
        list(nodes), "one", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs], list(weights),
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(_CONTRIB, 1)])
    model.ir_version = 9
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": x}
    return lambda: session.run(None, feeds)
