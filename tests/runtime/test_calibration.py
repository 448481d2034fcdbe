"""Ranges of a model's activations: through ONNX Runtime and through the reference executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hetsched.errors import ExecutionError
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.ranges import ChannelRange, TensorRange
from hetsched.reference import run
from hetsched.runtime import calibration
from hetsched.runtime.calibration import Calibration, calibrated, quantized_op

SAMPLES = [{"x": np.random.default_rng(i).standard_normal((1, 3, 16, 16)).astype(np.float32)} for i in range(3)]


@pytest.fixture
def net(two_branch: Path) -> Graph:
    return load(two_branch, {"width": 16})


def seen(graph: Graph) -> dict[str, Any]:
    runs = [run(graph, s) for s in SAMPLES]
    return {n: np.concatenate([r[n] for r in runs]) for n in runs[0]}


def test_min_and_max_are_those_of_the_reference(net: Graph) -> None:
    found, values = calibrated(net, SAMPLES, Calibration()), seen(net)
    assert set(found) == {n for n, v in values.items() if v.dtype.kind == "f"}
    for name, r in found.items():
        assert isinstance(r, TensorRange)
        want = (min(values[name].min(), 0), max(values[name].max(), 0))
        np.testing.assert_allclose((r.min, r.max), want, rtol=1e-4, atol=1e-6)


def test_other_formats_run_in_the_reference_executor(net: Graph) -> None:
    by_ort, by_reference = (calibrated(g, SAMPLES, Calibration()) for g in (net, net.replace(source=None)))
    assert by_ort.keys() == by_reference.keys()
    for name, r in by_ort.items():
        other = by_reference[name]
        assert isinstance(r, TensorRange) and isinstance(other, TensorRange)
        np.testing.assert_allclose((r.min, r.max), (other.min, other.max), rtol=1e-4, atol=1e-6)


def test_groups_of_tensors_give_the_same_ranges(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = calibrated(net, SAMPLES, Calibration("mse"))
    monkeypatch.setattr(calibration, "GROUP_BYTES", 1 << 13)
    shares: list[float] = []
    assert calibrated(net, SAMPLES, Calibration("mse"), shares.append) == whole
    assert shares == sorted(shares) and shares[-1] == 1.0


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_channels_lie_within_the_tensor(net: Graph, method: Any) -> None:
    tensors, channels = (
        calibrated(net, SAMPLES, Calibration("minmax" if g == "tensor" else method, 99.0, g)) for g in ("tensor", "channel")
    )  # type: ignore[arg-type]
    image = channels["x"]
    assert isinstance(image, ChannelRange) and image.axis == 1 and len(image.min) == 3
    for name, r in channels.items():
        whole = tensors[name]
        assert isinstance(r, ChannelRange) and isinstance(whole, TensorRange) and len(r.min) == net.tensors[name].shape[r.axis]
        assert min(r.min) >= whole.min and max(r.max) <= whole.max


def test_an_activation_that_is_no_number_is_named(save: Any) -> None:
    graph = load(save("g (float[1, 4] x) => (float[1, 4] y) { a = Log(x) y = Relu(a) }"))
    with pytest.raises(ExecutionError, match=r"'a' is not a number.*sample 1"):
        calibrated(graph, [{"x": np.full((1, 4), v, np.float32)} for v in (1.0, -1.0)], Calibration())


def test_a_quantized_model_has_ranges_of_its_own(net: Graph, save: Any) -> None:
    assert quantized_op(net) is None
    text = "g (float[2] x) => (float[2] y) <float s = {0.1}, uint8 z = {3}> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"
    op = quantized_op(load(save(text, 18)))
    assert op is not None and op.type == "QuantizeLinear"


def test_external_weights_are_found(two_branch: Path, tmp_path: Path) -> None:
    whole = calibrated(load(two_branch, {"width": 16}), SAMPLES, Calibration())
    folder = tmp_path / "external"
    folder.mkdir()
    path = folder / "two_branch.onnx"
    onnx.save(onnx.load(two_branch), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert calibrated(load(path, {"width": 16}), SAMPLES, Calibration()) == whole
