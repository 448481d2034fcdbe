"""Calibrate, plan, save, run: static integers of a float model through the verbs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsched
from hetsched.app.planned import Planned
from hetsched.app.sessions import read_plan
from hetsched.app.static_ranges import WITHOUT_RANGES
from hetsched.errors import OptionError, PlanError, RangesError
from hetsched.ranges import beside, read_ranges

PHONE = "snapdragon-8-gen-3"
DIMS = {"width": 16}
X = np.random.default_rng(5).standard_normal((4, 1, 3, 16, 16)).astype(np.float32)


@pytest.fixture
def ranges(two_branch: Path) -> Path:
    found = hetsched.calibrate_ranges(two_branch, {"x": X}, dims=DIMS)
    assert found.path == beside(two_branch)
    return beside(two_branch)


def quantized(planned: Planned) -> bool:
    return any(t.quantization is not None and not t.is_constant for t in planned.graph.tensors.values())


def test_the_file_is_the_same_whatever_the_order_of_samples(two_branch: Path, ranges: Path, tmp_path: Path) -> None:
    other = hetsched.calibrate_ranges(two_branch, {"x": X[::-1]}, dims=DIMS, output=tmp_path / "b.json")
    assert ranges.read_bytes() == (tmp_path / "b.json").read_bytes()
    text = ranges.read_text()
    assert str(tmp_path) not in text and json.loads(text)["samples"] == 4
    assert read_ranges(ranges) == other.ranges


def test_inputs_may_be_files_stacked_or_joined(two_branch: Path, ranges: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X[:2])
    np.savez_compressed(tmp_path / "b.npz", x=X[2:, 0])
    found = hetsched.calibrate_ranges(two_branch, [tmp_path / "a.npz", tmp_path / "b.npz"], dims=DIMS, output=tmp_path / "c.json")
    assert found.ranges == read_ranges(ranges)
    one = hetsched.calibrate_ranges(two_branch, {"x": X[0]}, dims=DIMS, output=tmp_path / "d.json")
    assert one.ranges.samples == 1


def test_a_plan_finds_the_ranges_beside_the_model(two_branch: Path, ranges: Path) -> None:
    planned = hetsched.plan(two_branch, "host", precision="w8a8", dims=DIMS)
    assert quantized(planned) and WITHOUT_RANGES not in planned.plan.notes
    assert planned.deployment.ranges is not None and planned.deployment.ranges.path == ranges.name
    ran = hetsched.run(planned, inputs={"x": X[0]}, check=True, repeat=1)
    assert ran.check is not None and ran.check.passed, ran.check.sentence()
    assert not ran.check.unmatched and "quantize-static" in [r.name for r in planned.passes]
    for other in ("float", "auto", "w8a8-dynamic"):
        assert not quantized(hetsched.plan(two_branch, "host", precision=other, dims=DIMS))


def test_a_saved_plan_rebuilds_the_same_integers(two_branch: Path, ranges: Path, tmp_path: Path) -> None:
    planned = hetsched.plan(two_branch, "host", precision="w8a8", dims=DIMS)
    path = planned.save(tmp_path / "plan.json")
    assert planned.save(tmp_path / "again.json").read_bytes() == path.read_bytes()
    again = read_plan(path)
    assert again.graph.ops == planned.graph.ops and again.plan == planned.plan
    a, b = (hetsched.run(p, inputs={"x": X[0]}, repeat=1).outputs["y"] for p in (planned, path))
    assert np.array_equal(a, b)
    folder = tmp_path / "moved"
    folder.mkdir()
    for file in (path, two_branch, ranges):
        file.rename(folder / file.name)
    assert read_plan(folder / "plan.json").plan == planned.plan


def test_changed_or_lost_ranges_are_noticed(two_branch: Path, ranges: Path, tmp_path: Path) -> None:
    path = hetsched.plan(two_branch, PHONE, precision="w8a8", dims=DIMS).save(tmp_path / "plan.json")
    hetsched.calibrate_ranges(two_branch, {"x": 2 * X}, dims=DIMS)
    with pytest.raises(PlanError, match=r"ranges.*have changed.*make the plan again"):
        read_plan(path)
    ranges.unlink()
    with pytest.raises(PlanError, match=r"the ranges of .* are not at"):
        read_plan(path)


def test_without_ranges_it_is_planned_and_not_run(two_branch: Path) -> None:
    planned = hetsched.plan(two_branch, "host", precision="w8a8", dims=DIMS)
    assert WITHOUT_RANGES in planned.plan.notes
    with pytest.raises(OptionError, match=r"two_branch\.onnx is a float model.*calibrate-ranges.*w8a8-dynamic"):
        hetsched.run(planned, repeat=1)
    assert hetsched.run(planned, repeat=1, delegate="null").outputs["y"].shape == (1, 10)
    dynamic = hetsched.run(two_branch, inputs={"x": X[0]}, precision="w8a8-dynamic", dims=DIMS, check=True, repeat=1)
    assert dynamic.check is not None and dynamic.check.passed
    assert "w8a8" in {p.precision for p in dynamic.planned.plan.placements}


def test_dynamic_integers_are_for_cpus(two_branch: Path) -> None:
    planned = hetsched.plan(two_branch, PHONE, precision="w8a8-dynamic", dims=DIMS)
    choices = {(a.queue, a.precision) for p in planned.plan.placements for a in p.alternatives}
    assert {p for q, p in choices if q == "npu"} <= {"f16"} and "w8a8" in {p for q, p in choices if q == "cpu"}
    assert any("only CPU kernels quantize" in r for p in planned.plan.placements for r in p.refusals)


def test_ranges_of_no_use_are_refused(two_branch: Path, ranges: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="only w8a8 reads ranges"):
        hetsched.plan(two_branch, PHONE, precision="float", ranges=ranges, dims=DIMS)
    by_channel = hetsched.calibrate_ranges(two_branch, {"x": X}, dims=DIMS, granularity="channel", output=tmp_path / "c.json")
    with pytest.raises(RangesError, match=r"per channel.*--granularity tensor"):
        hetsched.plan(two_branch, PHONE, precision="w8a8", ranges=by_channel.path, dims=DIMS)
    nothing = read_ranges(ranges).model_copy(update={"ranges": {"y": read_ranges(ranges).ranges["y"]}})
    nothing.save(tmp_path / "n.json")
    with pytest.raises(RangesError, match="no range for the input of any"):
        hetsched.plan(two_branch, PHONE, precision="w8a8", ranges=tmp_path / "n.json", dims=DIMS)


def test_a_quantized_model_is_not_calibrated(two_branch: Path, save: Any, tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] y) <float s = {0.1}, uint8 z = {3}> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"
    with pytest.raises(OptionError, match="quantized already"):
        hetsched.calibrate_ranges(save(text), {"x": np.zeros((1, 2), np.float32)})
    assert not list(tmp_path.glob("model*.ranges.json"))


@pytest.mark.real_models
@pytest.mark.parametrize("method", ["minmax", "mse"])
def test_mobilenet_is_as_good_as_onnx_runtimes_own(real_model: Any, tmp_path: Path, method: Any) -> None:
    """Both calibrated with the same eight images; mean SNR of the logits over other images."""
    import importlib.util

    import onnxruntime as ort

    from hetsched.runtime import compile as compile_plan

    spec = importlib.util.spec_from_file_location("mobilenet", Path(__file__).parents[1] / "models" / "mobilenet_v2.py")
    assert spec is not None and spec.loader is not None
    images = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(images)
    path = real_model("mobilenet_v2")
    samples = np.stack([images.images(seed, 1) for seed in range(2, 10)])
    ranges = hetsched.calibrate_ranges(path, {"input": samples}, method=method, output=tmp_path / "r.json").path
    planned = hetsched.plan(path, "host", precision="w8a8", ranges=ranges, solver="heft")
    nets = [ort.InferenceSession(real_model(n), providers=["CPUExecutionProvider"]) for n in ("mobilenet_v2", "mobilenet_v2_qdq")]
    ours, theirs = [], []
    with compile_plan(planned.graph, planned.plan) as executable:
        for seed in range(100, 106):
            feeds = {"input": images.images(seed, 1)}
            want, other = (net.run(None, feeds)[0] for net in nets)
            got = executable.run(feeds).outputs["logits"]
            ours.append(10 * np.log10((want**2).sum() / ((got - want) ** 2).sum()))
            theirs.append(10 * np.log10((want**2).sum() / ((other - want) ** 2).sum()))
    assert np.mean(ours) > np.mean(theirs) - 1.0


def test_noise_is_within_the_calibrated_ranges_and_far_inputs_are_reported(two_branch: Path, tmp_path: Path) -> None:
    hetsched.calibrate_ranges(two_branch, {"x": 40 + X}, dims=DIMS)
    ran = hetsched.run(two_branch, precision="w8a8", dims=DIMS, check=True, repeat=1)
    assert ran.inputs == "seeded noise (seed 0, within the calibrated ranges)" and not ran.notes
    assert ran.check is not None and ran.check.passed, ran.check.sentence()
    far = hetsched.run(two_branch, precision="w8a8", dims=DIMS, inputs={"x": X[0] - 40}, repeat=1)
    assert len(far.notes) == 1 and "'x' reaches from" in far.notes[0] and far.summary()["notes"] == list(far.notes)


def test_inputs_that_the_model_has_not_are_refused_before_kernels_are_compiled(
    two_branch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hetsched.runtime

    planned = hetsched.plan(two_branch, dims=DIMS)
    monkeypatch.setattr(hetsched.runtime, "compile", lambda *_, **__: pytest.fail("kernels were compiled"))
    np.savez(tmp_path / "x.npz", x=X[0], z=X[0])
    for inputs in (tmp_path / "x.npz", {"x": X[0], "z": X[0]}):
        with pytest.raises(OptionError, match=r"'z'.*its inputs are x"):
            hetsched.run(planned, inputs=inputs)
