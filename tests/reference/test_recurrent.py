"""RNN, GRU and LSTM of the reference against ONNX Runtime: directions, states, lengths, peepholes, activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

from hetsched.graph import Op
from hetsched.reference import run_op

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 6
Array = np.ndarray[Any, Any]


def f(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([*shape, seed]).standard_normal(shape).astype(np.float32)


def both(kind: str, inputs: list[Array | None], attrs: dict[str, Any]) -> tuple[list[Array], list[Array]]:
    names = ["" if a is None else f"x{k}" for k, a in enumerate(inputs)]
    outs = ["y", "h", *(["c"] if kind == "LSTM" else [])]
    feeds = {n: a for n, a in zip(names, inputs, strict=True) if a is not None}
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    node = helper.make_node(kind, names, outs, "node", hidden_size=HIDDEN, **attrs)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(o) for o in outs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items()}
    return run_op(Op("node", kind, tuple(names), tuple(outs), values), inputs), session.run(None, feeds)


def layer(kind: str, directions: int = 1, *, bias: bool = True, states: bool = False, lengths: bool = False, peepholes: bool = False,
          batch: int = BATCH) -> list[Array | None]:  # fmt: skip
    gates = GATES[kind]
    inputs: list[Array | None] = [
        f(STEPS, batch, INPUTS), f(directions, gates * HIDDEN, INPUTS), f(directions, gates * HIDDEN, HIDDEN),
        f(directions, 2 * gates * HIDDEN) if bias else None, np.array([5, 2, 3][:batch], np.int32) if lengths else None,
        f(directions, batch, HIDDEN, seed=1) if states else None,
    ]  # fmt: skip
    if kind == "LSTM":
        inputs += [f(directions, batch, HIDDEN, seed=2) if states else None, f(directions, 3 * HIDDEN) if peepholes else None]
    return inputs


def assert_equal(kind: str, inputs: list[Array | None], attrs: dict[str, Any]) -> None:
    got, expected = both(kind, inputs, attrs)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_directions_and_initial_states(kind: str, direction: str, states: bool) -> None:
    count = 2 if direction == "bidirectional" else 1
    assert_equal(kind, layer(kind, count, states=states, bias=states), {"direction": direction})


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_sequences_of_other_lengths(kind: str, direction: str) -> None:
    assert_equal(kind, layer(kind, 2 if direction == "bidirectional" else 1, lengths=True, states=True), {"direction": direction})


@pytest.mark.parametrize("reset", [0, 1])
def test_gru_with_the_reset_before_or_after_the_product(reset: int) -> None:
    assert_equal("GRU", layer("GRU", states=True), {"linear_before_reset": reset})


def test_lstm_with_peepholes() -> None:
    assert_equal("LSTM", layer("LSTM", peepholes=True, states=True), {})


@pytest.mark.parametrize("kind", GATES)
def test_clip_bounds_what_an_activation_gets(kind: str) -> None:
    assert_equal(kind, layer(kind), {"clip": 0.7})


def test_activations_and_their_parameters() -> None:
    names = ["HardSigmoid", "ScaledTanh", "LeakyRelu"]
    attrs = {"activations": names, "activation_alpha": [0.3, 0.9, 0.2], "activation_beta": [0.4, 1.1]}
    got, expected = both("LSTM", layer("LSTM"), attrs)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=5e-6)
    assert_equal("RNN", layer("RNN", 2), {"activations": ["Relu", "Softsign"], "direction": "bidirectional"})


@pytest.mark.parametrize("kind", GATES)
def test_batch_first_is_the_same_with_axes_swapped(kind: str) -> None:
    inputs = layer(kind, states=True)
    steps_first = run_op(Op("n", kind, ("x",), ("y", "h"), {"hidden_size": HIDDEN}), inputs)
    moved = [None if a is None else np.swapaxes(a, 0, 1) if k in (0, 5, 6) else a for k, a in enumerate(inputs)]
    batch_first = run_op(Op("n", kind, ("x",), ("y", "h"), {"hidden_size": HIDDEN, "layout": 1}), moved)
    np.testing.assert_array_equal(batch_first[0], np.transpose(steps_first[0], (2, 0, 1, 3)))
    np.testing.assert_array_equal(batch_first[1], np.swapaxes(steps_first[1], 0, 1))
