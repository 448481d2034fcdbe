"""Recurrent layers and local response normalisation against ONNX Runtime."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.runtime.layer_rules import gate_functions
from hetsched.runtime.support import supported

Run = Callable[..., tuple[dict[str, Any], dict[str, Any]]]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    ours, theirs = pair
    assert list(ours) == list(theirs)
    for name, want in theirs.items():
        assert np.ptp(want) > 1e-3
        np.testing.assert_allclose(ours[name], want, rtol=2e-5, atol=2e-5)


def layer(kind: str, directions: int, inputs: int = 7, hidden: int = 11) -> dict[str, Any]:
    g = GATES[kind]
    return {
        "w": noise(directions, g * hidden, inputs, seed=1) * 0.4,
        "r": noise(directions, g * hidden, hidden, seed=2) * 0.4,
        "b": noise(directions, 2 * g * hidden, seed=3) * 0.3,
    }


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions_and_lengths(against_ort: Run, kind: str, direction: str) -> None:
    both = 1 + (direction == "bidirectional")
    outputs = ["y", "h", *(["c"] if kind == "LSTM" else [])]
    attributes = {"hidden_size": 11, "direction": direction}
    feeds = {"x": noise(5, 3, 7), "n": np.array([5, 2, 4], np.int32)}
    close(against_ort([(kind, ["x", "w", "r", "b", "n"], outputs, attributes)], feeds, layer(kind, both)))
    close(against_ort([(kind, ["x", "w", "r"], outputs, attributes)], {"x": feeds["x"]}, layer(kind, both)))


@pytest.mark.parametrize("kind", GATES)
def test_states_go_in_and_only_the_last_comes_out(against_ort: Run, kind: str) -> None:
    states = {"h0": noise(1, 2, 11, seed=4), **({"c0": noise(1, 2, 11, seed=5)} if kind == "LSTM" else {})}
    nodes = [(kind, ["x", "w", "r", "b", "", *states], ["", "h"], {"hidden_size": 11})]
    nodes.append(("Relu", ["h"], ["out"], {}))
    close(against_ort(nodes, {"x": noise(1, 2, 7), **states}, layer(kind, 1)))


def test_other_functions_clip_and_reset(against_ort: Run) -> None:
    names = ["HardSigmoid", "Relu", "LeakyRelu"]
    lstm = {"hidden_size": 11, "activations": names, "activation_alpha": [0.3, 0.1], "activation_beta": [0.4], "clip": 0.7}
    close(against_ort([("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], lstm)], {"x": noise(4, 1, 7)}, layer("LSTM", 1)))
    for early in (0, 1):
        gru = {"hidden_size": 11, "linear_before_reset": early, "clip": 0.9}
        close(against_ort([("GRU", ["x", "w", "r", "b"], ["y", "h"], gru)], {"x": noise(4, 9, 7)}, layer("GRU", 1)))


@pytest.mark.parametrize(("size", "beta"), [(5, 0.75), (7, 0.5), (3, 1.2), (1, 0.75)])
def test_local_response(against_ort: Run, size: int, beta: float) -> None:
    close(against_ort([("LRN", ["x"], ["y"], {"size": size, "beta": beta, "alpha": 0.3, "bias": 2.0})], {"x": 3 * noise(2, 9, 5, 7)}))


def recurrent_op(**attributes: Any) -> tuple[Op, Graph]:
    shapes = {"x": (5, 1, 7), "w": (1, 44, 7), "r": (1, 44, 11), "p": (1, 33), "y": (5, 1, 1, 11)}
    tensors = {n: Tensor(n, s, DType.F32, Role.OUTPUT if n == "y" else Role.INPUT) for n, s in shapes.items()}
    for n in ("w", "r", "p"):
        tensors[n] = Tensor(n, shapes[n], DType.F32, Role.WEIGHT, None, WeightRef(array=np.zeros(shapes[n], np.float32)))
    names = attributes.pop("inputs", ("x", "w", "r"))
    op = Op("lstm", "LSTM", names, ("y",), {"hidden_size": 11, **attributes})
    return op, Graph("g", tensors, (op,), ("x",), ("y",))


def test_what_has_no_kernel_is_refused_with_a_sentence() -> None:
    refusals: dict[str, dict[str, Any]] = {
        "peepholes": {"inputs": ("x", "w", "r", "", "", "", "", "p")},
        "couples": {"input_forget": 1},
        "Softsign": {"activations": ("Sigmoid", "Softsign", "Tanh")},
        "packs it once": {"inputs": ("x", "x", "r")},
        "int32": {"inputs": ("x", "w", "r", "", "x")},
    }
    for words, attributes in refusals.items():
        assert words in (supported(*recurrent_op(**attributes), "f32") or "")
    assert supported(*recurrent_op(), "f32") is None


def test_parameters_belong_to_the_functions_that_take_them() -> None:
    op = Op("gru", "GRU", ("x",), ("y",), {"activations": ("Tanh", "HardSigmoid", "Elu", "Relu"), "activation_alpha": (0.5, 0.6)})
    first, second = gate_functions(op, 2)
    assert [(f.name, f.alpha, f.beta) for f in (*first, *second)] == [
        ("Tanh", 0.0, 0.0), ("HardSigmoid", 0.5, 0.5), ("Elu", 0.6, 0.0), ("Relu", 0.0, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample(against_ort: Run, mode: str, padding: str, corners: int) -> None:
    feeds = {"x": noise(2, 3, 5, 7), "at": np.random.default_rng(1).uniform(-2.6, 2.6, (2, 4, 6, 2)).astype(np.float32)}
    close(against_ort([("GridSample", ["x", "at"], ["y"], {"mode": mode, "padding_mode": padding, "align_corners": corners})], feeds))
