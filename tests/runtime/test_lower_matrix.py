"""Convolution, MatMul and Gemm against ONNX Runtime: shapes, attributes, float32 and 8-bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Run = Callable[..., tuple[dict[str, Any], dict[str, Any]]]
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(pair: tuple[dict[str, Any], dict[str, Any]], tolerance: float = 1e-5) -> None:
    ours, theirs = pair
    assert list(ours) == list(theirs)
    for name, want in theirs.items():
        assert ours[name].dtype == want.dtype and ours[name].shape == want.shape
        scale = max(1.0, float(np.abs(want).max(initial=0)))
        np.testing.assert_allclose(ours[name], want, rtol=tolerance, atol=tolerance * scale)


def snr_db(pair: tuple[dict[str, Any], dict[str, Any]]) -> float:
    ours, theirs = pair
    (a,), (b,) = ours.values(), theirs.values()
    return float(10 * np.log10((b.astype(float) ** 2).sum() / ((a.astype(float) - b) ** 2).sum()))


@quick
@given(
    st.integers(1, 2), st.sampled_from([(1, 1), (4, 1), (8, 2), (6, 6), (16, 1)]), st.sampled_from([4, 6, 12]),
    st.sampled_from([(1, 1), (3, 3), (2, 5)]), st.integers(1, 2), st.integers(1, 2), st.integers(0, 2), st.integers(7, 12),
)  # fmt: skip
def test_conv_2d(
    against_ort: Run,
    n: int,
    channels: tuple[int, int],
    per_group: int,
    kernel: tuple[int, int],
    stride: int,
    dilation: int,
    pad: int,
    size: int,
) -> None:
    c, groups = channels
    m = per_group * groups
    attributes = {
        "kernel_shape": kernel, "strides": [stride, 1], "dilations": [dilation, 1], "pads": [pad, 0, 0, pad], "group": groups,
    }  # fmt: skip
    constants = {"w": noise(m, c // groups, *kernel, seed=1), "b": noise(m, seed=2)}
    close(against_ort([("Conv", ["x", "w", "b"], ["y"], attributes)], {"x": noise(n, c, size, size + 1)}, constants))


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_conv_with_automatic_padding(against_ort: Run, mode: str) -> None:
    attributes = {"auto_pad": mode, "strides": [2, 2], "kernel_shape": [3, 4]}
    close(against_ort([("Conv", ["x", "w"], ["y"], attributes)], {"x": noise(1, 3, 8, 9)}, {"w": noise(5, 3, 3, 4)}))


def test_conv_1d(against_ort: Run) -> None:
    attributes = {"pads": [1, 2], "strides": [2], "kernel_shape": [3]}
    close(against_ort([("Conv", ["x", "w", "b"], ["y"], attributes)], {"x": noise(2, 8, 21)}, {"w": noise(6, 8, 3), "b": noise(6)}))


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 2], "kernel_shape": [2, 2]},
        {"strides": [2, 1], "pads": [1, 0, 0, 1], "output_padding": [1, 0], "kernel_shape": [3, 3]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER", "kernel_shape": [3, 3]},
        {"strides": [2, 2], "output_shape": [11, 12], "kernel_shape": [3, 3]},
        {"strides": [1, 1], "dilations": [2, 1], "group": 2, "kernel_shape": [3, 3]},
    ],
)
def test_transposed_conv(against_ort: Run, attributes: dict[str, Any]) -> None:
    w = noise(4, 3, *attributes["kernel_shape"], seed=1)
    nodes = [("ConvTranspose", ["x", "w", "b"], ["y"], attributes)]
    close(against_ort(nodes, {"x": noise(1, 4, 5, 6)}, {"w": w, "b": noise(3 * attributes.get("group", 1))}))


@quick
@given(
    st.sampled_from([((5, 7), (7, 3)), ((2, 5, 7), (7, 9)), ((2, 1, 5, 4), (3, 4, 6)), ((7,), (7, 3)), ((2, 5, 7), (7,)), ((7,), (7,))]),
    st.booleans(),
)  # fmt: skip
def test_matmul(against_ort: Run, shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: bool) -> None:
    a, b = noise(*shapes[0]), noise(*shapes[1], seed=1)
    nodes = [("MatMul", ["a", "b"], ["y"], {})]
    close(against_ort(nodes, {"a": a}, {"b": b}) if constant else against_ort(nodes, {"a": a, "b": b}))


@quick
@given(st.booleans(), st.booleans(), st.booleans(), st.sampled_from(["none", "vector", "row", "one"]), st.sampled_from([1.0, 0.5]))
def test_gemm(against_ort: Run, trans_a: bool, trans_b: bool, constant: bool, bias: str, alpha: float) -> None:
    m, k, n = 5, 9, 7
    a, b = noise(*((k, m) if trans_a else (m, k))), noise(*((n, k) if trans_b else (k, n)), seed=1)
    c = {"none": {}, "vector": {"c": noise(n)}, "row": {"c": noise(1, n)}, "one": {"c": noise(1)}}[bias]
    attributes = {"transA": int(trans_a), "transB": int(trans_b), "alpha": alpha, "beta": 1.5}
    nodes = [("Gemm", ["a", "b", *c], ["y"], attributes)]
    close(against_ort(nodes, {"a": a}, {"b": b} | c) if constant else against_ort(nodes, {"a": a, "b": b}, c))


@pytest.mark.parametrize("case", ["conv", "grouped", "depthwise", "conv1d", "matmul", "batched", "gemm"])
def test_dynamic_8_bit_is_close_to_float(against_ort: Run, case: str) -> None:
    x = noise(1, 16, 12, 12)
    nodes, feeds, constants = {
        "conv": ([("Conv", ["x", "w", "b"], ["y"], {"pads": [1] * 4})], {"x": x}, {"w": noise(24, 16, 3, 3), "b": noise(24)}),
        "grouped": ([("Conv", ["x", "w"], ["y"], {"group": 4})], {"x": x}, {"w": noise(8, 4, 3, 3)}),
        "depthwise": ([("Conv", ["x", "w"], ["y"], {"group": 16, "strides": [2, 2]})], {"x": np.maximum(x, 0)}, {"w": noise(16, 1, 3, 3)}),
        "conv1d": ([("Conv", ["x", "w"], ["y"], {"pads": [1, 1]})], {"x": x[0]}, {"w": noise(24, 12, 3)}),
        "matmul": ([("MatMul", ["x", "w"], ["y"], {})], {"x": noise(9, 64)}, {"w": noise(64, 33)}),
        "batched": ([("MatMul", ["x", "w"], ["y"], {})], {"x": noise(2, 3, 64)}, {"w": noise(64, 33)}),
        "gemm": (
            [("Gemm", ["x", "w", "b"], ["y"], {"transB": 1, "alpha": 0.5})],
            {"x": noise(9, 64)},
            {"w": noise(33, 64), "b": noise(33)},
        ),
    }[case]
    pair = against_ort(nodes, feeds, constants, precision="w8a8")
    assert 30 < snr_db(pair) < 80  # 8-bit noise, and really 8-bit
