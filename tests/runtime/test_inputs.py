"""Noise that a model can take: states at rest, indices in range, masks of ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import OptionError
from hetsched.frontends import load
from hetsched.graph import DType, Graph, Quantization, Role, Tensor, WeightRef
from hetsched.runtime import make_inputs
from hetsched.runtime.index_values import first_misfit


def graph_of(*inputs: Tensor, **constants: Any) -> Graph:
    values = {n: Tensor(n, np.shape(v), DType.U8, Role.WEIGHT, None, WeightRef(array=np.asarray(v))) for n, v in constants.items()}
    return Graph("g", {t.name: t for t in inputs} | values, (), tuple(t.name for t in inputs), (inputs[0].name,))


def test_states_are_zero_and_quantized_ones_their_zero_point() -> None:
    feeds = make_inputs(
        graph_of(
            Tensor("x", (4,), DType.F32, Role.INPUT), Tensor("v", (2, 3), DType.F32, Role.STATE),
            Tensor("q", (5,), DType.U8, Role.STATE, Quantization("s", "z")), Tensor("past_key_values.0.key", (1, 2), DType.F32, Role.INPUT),
            s=np.uint8(1), z=np.uint8(128),
        )
    )  # fmt: skip
    assert feeds["x"].any() and not feeds["v"].any() and not feeds["past_key_values.0.key"].any()
    assert (feeds["q"] == 128).all() and feeds["q"].dtype == np.uint8


def test_the_file_may_say_how_a_state_starts() -> None:
    graph = graph_of(Tensor("v", (3,), DType.U8, Role.STATE))
    first = Tensor("v", (3,), DType.U8, Role.WEIGHT, None, WeightRef(array=np.array([1, 2, 3], np.uint8)))
    assert make_inputs(graph.replace(first_values={"v": first}))["v"].tolist() == [1, 2, 3]


def test_quantized_inputs_cover_their_type_and_masks_beside_states_are_ones() -> None:
    feeds = make_inputs(
        graph_of(
            Tensor("i", (4000,), DType.I8, Role.INPUT, Quantization("s")), Tensor("attention_mask", (2, 3), DType.I64, Role.INPUT),
            Tensor("keep", (4,), DType.BOOL, Role.INPUT), Tensor("v", (2,), DType.F32, Role.STATE), s=np.uint8(1),
        )
    )  # fmt: skip
    assert (feeds["i"].min(), feeds["i"].max()) == (-128, 127)
    assert (feeds["attention_mask"] == 1).all() and feeds["keep"].all()


@given(st.integers(1, 40), st.integers(0, 5))
def test_indices_stay_within_what_they_gather(rows: int, seed: int) -> None:
    import onnx

    text = (
        "g (int32[9] ids, int64[3] other) => (float[3, 3, 2] y, float[2, 3] z) <int64[2] two = {3, 3}> "
        "{ wide = Cast<to = 7>(ids) square = Reshape(wide, two) y = Gather(table, square) "
        "flipped = Transpose(table) z = Gather<axis = 1>(flipped, other) }"
    )
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((rows, 2), np.float32), "table"))
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        onnx.save(model, path)
        feeds = make_inputs(load(path), seed)
    assert feeds["ids"].dtype == np.int32
    for ids in feeds.values():
        assert ids.min() >= 0 and ids.max() < rows


def test_indices_run_on_this_machine(save: Callable[..., Path]) -> None:
    import hetsched

    path = save("g (int64[6] ids) => (float[6, 2] y) <float[3, 2] t = {1, 2, 3, 4, 5, 6}> { e = Gather(t, ids) y = Relu(e) }")
    assert hetsched.run(path, repeat=1, seed=4).outputs["y"].shape == (6, 2)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_gives_the_same_noise(seed: int) -> None:
    graph = graph_of(Tensor("x", (8,), DType.F32, Role.INPUT))
    assert (make_inputs(graph, seed)["x"] == make_inputs(graph, seed)["x"]).all()
    assert (make_inputs(graph, seed)["x"] != make_inputs(graph, seed + 1)["x"]).any()


@pytest.mark.parametrize("seed", range(4))
def test_indices_that_are_computed_stay_within_what_they_index(save: Callable[..., Path], seed: int) -> None:
    text = (
        "g (int64[1] position, float[2, 4] new) => (float[2, 4, 8] y, float[1, 4, 8] z) <int64[1] two = {2}, int64[1] three = {3}, "
        "int64[3] column = {1, 1, -1}, int64[3] rows = {2, 4, 1}, int64[1] last = {-1}> "
        "{ table = RandomUniform<shape = [2, 4, 8], seed = 1.0>() twice = Mul(position, two) places = Add(twice, three) "
        "line = Reshape(places, column) all = Expand(line, rows) deep = Unsqueeze(new, last) "
        "y = ScatterElements<axis = 2>(table, all, deep) z = Gather(table, position) }"
    )
    graph = load(save(text))
    feeds = make_inputs(graph, seed)
    assert first_misfit(graph, feeds) is None
    assert 2 * int(feeds["position"][0]) + 3 < 8
    misfit = first_misfit(graph, {**feeds, "position": np.array([2])})
    assert misfit is not None and (misfit.value, misfit.size, misfit.inputs) == (2, 2, ("position",))


def test_indices_that_no_noise_suits_are_asked_for(save: Callable[..., Path]) -> None:
    text = "g (int64[2] i) => (float[2] y) <float[3] t = {1, 2, 3}, int64[1] far = {9}> { j = Add(i, far) y = Gather(t, j) }"
    with pytest.raises(OptionError, match=r"give the values of i with --input"):
        make_inputs(load(save(text)))


def test_floats_stay_within_calibrated_ranges() -> None:
    graph = graph_of(Tensor("x", (4000,), DType.F32, Role.INPUT), Tensor("other", (9,), DType.F32, Role.INPUT))
    feeds = make_inputs(graph, within={"x": (2.0, 8.0)})
    assert feeds["x"].dtype == np.float32 and 2.0 <= feeds["x"].min() < 3.0 and 7.0 < feeds["x"].max() <= 8.0
    assert feeds["other"].min() < 0
