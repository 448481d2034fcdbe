"""8-bit images kept channels last: what every operator computes is what ONNX Runtime computes, within a step of the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetsched.channels_last import channels_last, planar
from hetsched.frontends import load


def quantized(name: str, of: str, scale: float, zero: Any) -> tuple[list[Any], dict[str, Any]]:
    """A Q/DQ pair from ``of`` to ``name``, and its constants."""
    constants = {f"{name}_s": np.float32(scale), f"{name}_z": np.asarray(zero)}
    return [
        ("QuantizeLinear", [of, f"{name}_s", f"{name}_z"], [f"{name}_q"], {}),
        ("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [name], {}),
    ], constants


def weights(name: str, w: Any) -> tuple[list[Any], dict[str, Any]]:
    """int8 weights with one scale a channel."""
    scales = np.linspace(0.003, 0.01, w.shape[0]).astype(np.float32)
    constants = {f"{name}_q": w, f"{name}_s": scales, f"{name}_z": np.zeros(w.shape[0], np.int8)}
    return [("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [name], {"axis": 0})], constants


def network(dtype: Any, channels: int, stride: int) -> tuple[list[Any], dict[str, Any]]:
    """Convolutions, a sum, a pool, a function and a mean, every tensor quantized."""
    rng = np.random.default_rng(3)
    zero = dtype(7)
    nodes: list[Any] = []
    constants: dict[str, Any] = {}

    def add(part: tuple[list[Any], dict[str, Any]]) -> None:
        nodes.extend(part[0])
        constants.update(part[1])

    def conv(to: str, of: str, w: Any, **attributes: Any) -> None:
        add(weights(f"w_{to}", w))
        constants[f"b_{to}"] = rng.standard_normal(w.shape[0]).astype(np.float32)
        nodes.append(("Conv", [of, f"w_{to}", f"b_{to}"], [f"{to}_f"], attributes))
        add(quantized(to, f"{to}_f", 0.11, zero))

    def ints(*shape: int) -> Any:
        return rng.integers(-128, 128, shape).astype(np.int8)

    add(quantized("x0", "x", 0.02, dtype(3)))
    conv("a", "x0", ints(channels, 3, 3, 3), pads=[1, 1, 1, 1], strides=[stride, stride])
    conv("b", "a", ints(channels, 1, 3, 3), pads=[1, 1, 1, 1], group=channels)
    conv("c", "b", ints(channels, channels, 1, 1))
    nodes.append(("Add", ["a", "c"], ["d_f"], {}))
    add(quantized("d", "d_f", 0.15, zero))
    nodes.append(("MaxPool", ["d"], ["e_f"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}))
    add(quantized("e", "e_f", 0.15, zero))
    nodes.append(("Sigmoid", ["e"], ["f_f"], {}))
    add(quantized("f", "f_f", 1 / 200, dtype(1)))
    nodes.append(("GlobalAveragePool", ["f"], ["g_f"], {}))
    add(quantized("y", "g_f", 1 / 200, dtype(1)))
    return nodes, constants


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("channels", "stride"), [(16, 1), (70, 2)])
def test_a_network_of_images(against_ort: Any, dtype: Any, channels: int, stride: int) -> None:
    nodes, constants = network(dtype, channels, stride)
    x = np.random.default_rng(0).standard_normal((2, 3, 13, 11)).astype(np.float32)
    ours, theirs = against_ort(nodes, {"x": x}, constants, precision="w8a8", passes=True)
    assert np.ptp(theirs["y"]) > 0.05
    np.testing.assert_allclose(ours["y"], theirs["y"], atol=1.01 / 200)


def test_which_tensors_are_kept_channels_last(tmp_path: Any) -> None:
    import onnx
    from onnx import helper, numpy_helper

    nodes, constants = network(np.uint8, 16, 1)
    protos = [helper.make_node(t, i, o, name=f"n{k}", **a) for k, (t, i, o, a) in enumerate(nodes)]
    x, y = helper.make_tensor_value_info("x", 1, [1, 3, 8, 8]), helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph(protos, "g", [x], [y], [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    from hetsched.passes import standard

    loaded = standard(load(path))
    names = {op.name: "numba" for op in loaded.ops}
    kept = channels_last(loaded, dict.fromkeys(names, "w8a8"), names)
    assert {"a_q", "b_q", "c_q", "d_q", "e_q", "f_q"} <= kept
    assert not kept & {"x", "x0_q", "y"}
    elsewhere = names | {op.name: "ort" for op in loaded.ops if "c_q" in op.outputs}
    assert channels_last(loaded, dict.fromkeys(names, "w8a8"), elsewhere).isdisjoint({"b_q", "c_q"})


def test_a_network_of_float_images(against_ort: Any) -> None:
    """Convolutions, functions, sums of images and of a value for each channel, pools; what comes between is converted."""
    rng = np.random.default_rng(5)

    def floats(*shape: int) -> Any:
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)

    constants = {
        "w0": floats(20, 3, 3, 3), "b0": floats(20), "w1": floats(20, 1, 5, 3), "w2": floats(37, 20, 1, 1), "w3": floats(37, 37, 1, 1),
        "c": floats(1, 37, 1, 1), "two": np.float32(2.0),
    }  # fmt: skip
    nodes = [
        ("Conv", ["x", "w0", "b0"], ["a"], {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ("HardSwish", ["a"], ["b"], {}),
        ("Conv", ["b", "w1"], ["d"], {"pads": [2, 1, 2, 1], "group": 20}),
        ("Conv", ["d", "w2"], ["e"], {}),
        ("Add", ["e", "c"], ["f"], {}),
        ("Mul", ["f", "two"], ["g"], {}),
        ("MaxPool", ["g"], ["h"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("Conv", ["h", "w3"], ["i"], {}),
        ("Sub", ["i", "h"], ["j"], {}),
        ("GlobalAveragePool", ["j"], ["k"], {}),
        ("Sigmoid", ["k"], ["l"], {}),
        ("Mul", ["j", "l"], ["m"], {}),
        ("Transpose", ["m"], ["y"], {"perm": [0, 2, 3, 1]}),
    ]
    for passes in (False, True):
        ours, theirs = against_ort(nodes, {"x": floats(2, 3, 15, 17)}, constants, passes=passes)
        np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-4, atol=1e-5)


def test_a_copy_in_the_models_own_order() -> None:
    x = np.arange(2 * 3 * 2 * 2, dtype=np.int8).reshape(2, 3, 2, 2)
    stored = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).view(np.uint8) ^ np.uint8(128)
    np.testing.assert_array_equal(planar(stored.view(np.int8).reshape(x.shape)), x)


@pytest.mark.parametrize("shape", [(1, 5, 1, 1), (1, 1, 3, 4), (2, 3, 1, 1), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8])
def test_what_is_looked_at_shares_no_memory_with_the_arena(shape: tuple[int, ...], dtype: Any) -> None:
    stored = np.zeros(shape, dtype)
    assert not np.shares_memory(planar(stored), stored)


def test_a_view_of_an_image_that_others_read_too(tmp_path: Any) -> None:
    """Its bytes may be the image's own, which it must not put into another order."""
    import onnx
    from onnx import helper, numpy_helper

    import hetsched

    rng = np.random.default_rng(1)
    constants = {n: (rng.standard_normal((8, 8, 3, 3)) / 8).astype(np.float32) for n in ("w", "v")} | {"s": np.array([1, -1])}
    pads = {"pads": [1, 1, 1, 1]}
    rows = [
        ("Conv", ["x", "w"], ["a"], pads), ("Reshape", ["a", "s"], ["q"], {}), ("Conv", ["a", "v"], ["b"], pads),
        ("Reshape", ["b", "s"], ["r"], {}), ("Add", ["q", "r"], ["y"], {}),
    ]  # fmt: skip
    nodes = [helper.make_node(t, i, o, name=o[0], **a) for t, i, o, a in rows]
    ends = [helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", [1, 8, 10, 10]), ("y", None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    ran = hetsched.run(tmp_path / "m.onnx", check=True, repeat=1)
    assert ran.check is not None and ran.check.passed, ran.check.sentence()
    names = {op.name: "numba" for op in load(tmp_path / "m.onnx").ops}
    assert channels_last(load(tmp_path / "m.onnx"), dict.fromkeys(names, "f32"), names) == {"b"}


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_a_mean_over_everything_has_no_padding(against_ort: Any, pads: list[int]) -> None:
    rng = np.random.default_rng(2)
    constants = {"w": rng.standard_normal((8, 3, 1, 1)).astype(np.float32)}
    pool = {"kernel_shape": [7, 7], "strides": [7, 7], "pads": pads}
    nodes = [("Conv", ["x", "w"], ["a"], {}), ("AveragePool", ["a"], ["b"], pool), ("Relu", ["b"], ["y"], {})]
    ours, theirs = against_ort(nodes, {"x": rng.standard_normal((1, 3, 7, 7)).astype(np.float32)}, constants, passes=True)
    np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-4, atol=1e-6)


def _residual_network(kernel: int, tail: str) -> tuple[list[Any], dict[str, Any]]:
    """Three convolutions, the third of which is added to the first one's result."""
    rng = np.random.default_rng(7)
    shapes = {"w0": (24, 3, 3, 3), "w1": (20, 24, 1, 1), "w2": (24, 20, kernel, kernel), "w3": (24, 24, 3, 3)}
    constants: dict[str, Any] = {n: (rng.standard_normal(s) * 0.2).astype(np.float32) for n, s in shapes.items()}
    constants |= {"b2": rng.standard_normal(24).astype(np.float32), "low": np.float32(-0.5), "high": np.float32(0.75)}
    pads = {"pads": [kernel // 2] * 4}
    nodes: list[Any] = [
        ("Conv", ["x", "w0"], ["a"], {"pads": [1] * 4}), ("Conv", ["a", "w1"], ["b"], {}), ("Relu", ["b"], ["c"], {}),
        ("Conv", ["c", "w2", "b2"], ["d"], pads), ("Add", ["d", "a"] if tail == "Clip" else ["a", "d"], ["e"], {}),
        *({"Relu": [("Relu", ["e"], ["f"], {})], "Clip": [("Clip", ["e", "low", "high"], ["f"], {})]}.get(tail, [])),
    ]  # fmt: skip
    return [*nodes, ("Conv", [nodes[-1][2][0], "w3"], ["y"], {"pads": [1] * 4})], constants


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("tail", ["", "Relu", "Clip"])
def test_a_sum_is_computed_with_the_convolution_before_it(against_ort: Any, kernel: int, tail: str) -> None:
    nodes, constants = _residual_network(kernel, tail)
    x = np.random.default_rng(0).standard_normal((1, 3, 25, 26)).astype(np.float32)
    for passes in (False, True):
        ours, theirs = against_ort(nodes, {"x": x}, constants, passes=passes)
        np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-4, atol=1e-4)


def test_which_sums_a_convolution_computes(tmp_path: Any) -> None:
    """Only its own reader, and only where the result is a plain image."""
    import onnx
    from onnx import helper, numpy_helper

    from hetsched.channels_last import added, sum_after
    from hetsched.passes import standard

    nodes, constants = _residual_network(3, "Relu")
    protos = [helper.make_node(t, i, o, name=o[0], **a) for t, i, o, a in nodes]
    ends = [helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", [1, 3, 8, 8]), ("y", None))]
    graph = helper.make_graph(protos, "g", ends[:1], ends[1:], [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    loaded = standard(load(tmp_path / "m.onnx"))
    found = {op.outputs[0]: after for op in loaded.ops if (after := sum_after(op, loaded)) is not None}
    assert {name: after.outputs[0] for name, after in found.items()} == {"d": "f"}
    assert added(next(op for op in loaded.ops if op.outputs == ("d",)), found["d"]) == "a"


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_a_transposed_convolution_whose_windows_lie_side_by_side(against_ort: Any, stored: bool, size: int) -> None:
    rng = np.random.default_rng(4)
    constants: dict[str, Any] = {
        "w": (rng.standard_normal((8, 3, 3, 3)) * 0.3).astype(np.float32),
        "t": (rng.standard_normal((8, 10, 2, size)) * 0.3).astype(np.float32), "b": rng.standard_normal(10).astype(np.float32),
    }  # fmt: skip
    nodes: list[Any] = [("Conv", ["x", "w"], ["a"], {"pads": [1] * 4})]
    given = "a"
    if stored:
        pair, more = quantized("q", "a", 0.05, np.uint8(130))
        nodes, constants, given = [*nodes, *pair], constants | more, "q"
    nodes += [("ConvTranspose", [given, "t", "b"], ["c"], {"strides": [2, size]}), ("Relu", ["c"], ["y"], {})]
    x = rng.standard_normal((2, 3, 5, 9)).astype(np.float32)
    for passes in (False, True):
        ours, theirs = against_ort(nodes, {"x": x}, constants, passes=passes)
        np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-4, atol=1e-5 if not stored else 0.05)
