"""Operators that the standard passes fuse, against ONNX Runtime on the unfused nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Run = Callable[..., tuple[dict[str, Any], dict[str, Any]]]
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
SHAPE = (2, 6, 15, 20)  # 3600 elements: several blocks of a chain


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(pair: tuple[dict[str, Any], dict[str, Any]], tolerance: float = 1e-5) -> None:
    ours, theirs = pair
    for name, want in theirs.items():
        np.testing.assert_allclose(ours[name], want, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(want).max())))


OPERANDS = {"one": (), "row": (20,), "channel": (6, 1, 1), "image": (6, 15, 20), "odd": (6, 1, 20), "whole": SHAPE}
LINKS = st.tuples(
    st.sampled_from(["Add", "Mul", "Sub", "Max", "Sigmoid", "Tanh", "Relu", "Clip", "HardSigmoid"]), st.sampled_from(sorted(OPERANDS))
)


@quick
@given(st.lists(LINKS, min_size=2, max_size=7), st.booleans())
def test_chains(against_ort: Run, links: list[tuple[str, str]], swapped: bool) -> None:
    nodes: list[Any] = []
    constants: dict[str, Any] = {"lo": np.float32(-0.4), "hi": np.float32(0.8)}
    feeds, last = {"x": noise(*SHAPE)}, "x"
    for i, (kind, operand) in enumerate(links):
        inputs = [last]
        if kind in ("Add", "Mul", "Sub", "Max"):
            constants[f"c{i}"] = noise(*OPERANDS[operand], seed=i + 1)
            inputs = [f"c{i}", last] if swapped else [last, f"c{i}"]
        elif kind == "Clip":
            inputs = [last, "lo", "hi"]
        nodes.append((kind, inputs, [f"t{i}"], {}))
        last = f"t{i}"
    close(against_ort(nodes, feeds, constants, passes=True))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("activation", ["Relu", "HardSwish", "Clip", None])
def test_convolution_with_batch_norm_and_activation(against_ort: Run, transposed: bool, activation: str | None) -> None:
    w = noise(6, 8, 3, 3, seed=1) if transposed else noise(8, 6, 3, 3, seed=1)
    constants = {"w": w, "b": noise(8), "lo": np.float32(0), "hi": np.float32(6)}
    constants |= {k: np.abs(noise(8, seed=i)) + 0.1 for i, k in enumerate("smvt")}
    nodes: list[Any] = [
        ("ConvTranspose" if transposed else "Conv", ["x", "w", "b"], ["c"], {"strides": [2, 2]}),
        ("BatchNormalization", ["c", "s", "t", "m", "v"], ["n"], {}),
    ]
    if activation is not None:
        nodes.append((activation, ["n", "lo", "hi"] if activation == "Clip" else ["n"], ["y"], {}))
    close(against_ort(nodes, {"x": noise(*SHAPE)}, constants, passes=True))


@pytest.mark.parametrize("activation", ["Gelu", "Relu", "Tanh", None])
def test_matmul_with_bias_and_activation(against_ort: Run, activation: str | None) -> None:
    nodes: list[Any] = [("MatMul", ["x", "w"], ["p"], {}), ("Add", ["p", "b"], ["q"], {})]
    if activation is not None:
        nodes.append((activation, ["q"], ["y"], {}))
    close(against_ort(nodes, {"x": noise(2, 9, 33)}, {"w": noise(33, 50, seed=1), "b": noise(50)}, passes=True))


@pytest.mark.parametrize("mask", [(1, 1, 1, 9), (2, 1, 7, 9), (7, 9), (2, 3, 1, 9)])
def test_attention_with_scale_and_mask(against_ort: Run, mask: tuple[int, ...]) -> None:
    nodes: list[Any] = [
        ("MatMul", ["q", "k"], ["s"], {}), ("Div", ["s", "root"], ["d"], {}), ("Add", ["d", "mask"], ["m"], {}),
        ("Softmax", ["m"], ["p"], {"axis": -1}), ("MatMul", ["p", "v"], ["y"], {}),
    ]  # fmt: skip
    hidden = np.where(noise(*mask, seed=3) > 0, 0, -10000).astype(np.float32)
    feeds = {"q": noise(2, 3, 7, 8), "k": noise(2, 3, 8, 9, seed=1), "v": noise(2, 3, 9, 8, seed=2), "mask": hidden}
    close(against_ort(nodes, feeds, {"root": np.float32(8**0.5)}, passes=True))
