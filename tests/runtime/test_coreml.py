"""Core ML packages: written, read again, and interpreted; what cannot be written is refused by name."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from segment_graphs import QDQ, STEPS, TRAPS, arithmetic, movement, windows

from hetsched.errors import DelegateError, ExecutionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.lowering.mil import mil_package, names_in, refusal
from hetsched.lowering.onnx_segment import ends_of
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.reference.executor import run
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates import coreml, load_delegate

HandPlan = Callable[..., Plan]
Save = Callable[..., Path]
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("coremltools") is None, reason="coremltools is not installed"),
    pytest.mark.skipif(sys.platform == "darwin", reason="these tests are of the interpreter that stands in for Core ML"),
]


def written(save: Save, tmp_path: Path, text: str, *, half: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the graph's outputs are by the reference, and by the package."""
    graph = load(save(text))
    rng = np.random.default_rng(5)
    feeds = {n: rng.standard_normal(graph.tensors[n].shape).astype(np.float32) for n in graph.inputs}
    ends = ends_of(graph, graph.ops)
    mil_package(graph, graph.ops, ends, tmp_path / "m.mlpackage", half=half, units="npu")
    named = names_in((*ends.inputs, *ends.outputs))
    got = coreml.interpreter(tmp_path / "m.mlpackage", graph, ends)({named[n]: feeds[n] for n in ends.inputs})
    wanted = run(graph, feeds)
    return {n: wanted[n] for n in ends.outputs}, {n: got[named[n]].reshape(wanted[n].shape) for n in ends.outputs}


@pytest.mark.parametrize(("text", "count"), [(arithmetic(), 29), (movement(), 19), (windows(), 9)])
def test_every_node(text: str, count: int, save: Save, tmp_path: Path) -> None:
    wanted, got = written(save, tmp_path, text)
    assert len(wanted) == count
    for name in wanted:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-3, atol=1e-4, err_msg=name)


_REFUSED = {
    "integers_beyond_32_bits", "remainders_with_a_sign", "factors_beside_the_sizes", "averages_while_shrinking", "nearest_below",
    "transposed_to_a_shape",
}  # fmt: skip


@pytest.mark.parametrize("name", TRAPS)
def test_what_is_easily_written_wrong(name: str, save: Save, tmp_path: Path) -> None:
    if name in _REFUSED:
        with pytest.raises(UnsupportedModelError, match="Core ML"):
            written(save, tmp_path, TRAPS[name])
        return
    wanted, got = written(save, tmp_path, TRAPS[name])
    for n in wanted:
        np.testing.assert_allclose(got[n], wanted[n], rtol=1e-3, atol=STEPS.get(name, 1e-4))


def test_a_mask_stays_finite_in_float16(save: Save, tmp_path: Path) -> None:
    text = """g (float[2,3] x) => (float[2,3] y) <float[2,3] k = {1, 0, 0, 0, 1, 1}, float m = {-3.4e38}> {
        a = Mul(k, m) b = Add(x, a) y = Softmax(b) }"""
    wanted, got = written(save, tmp_path, text, half=True)
    np.testing.assert_allclose(got["y"], wanted["y"], atol=2e-3)


def test_4_bit_weights_stay_4_bit(save: Save, tmp_path: Path, plan_by_hand: HandPlan) -> None:
    import onnx
    from onnx import numpy_helper

    rng = np.random.default_rng(3)
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[2,256] x) => (float[2,64] y) {
            y = com.microsoft.MatMulNBits <K = 256, N = 64, bits = 4, block_size = 32> (x, b, s, z) }""")
    held: dict[str, Any] = {"b": rng.integers(0, 256, (64, 8, 16)).astype(np.uint8), "s": rng.random(512).astype(np.float32)}
    held["z"] = rng.integers(0, 256, 256).astype(np.uint8)
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in held.items())
    graph = load(save(model))
    mil_package(graph, graph.ops, ends_of(graph, graph.ops), tmp_path / "m.mlpackage", half=False, units="npu")
    stored = (tmp_path / "m.mlpackage/Data/com.apple.CoreML/weights/weight.bin").stat().st_size
    assert 64 * 256 / 2 < stored < 64 * 256, "half a byte a weight, with scales and zero points"
    x = {"x": rng.standard_normal((2, 256)).astype(np.float32)}
    with compile_plan(graph, plan_by_hand(graph, delegate="coreml")) as executable:  # the weights' file is still there
        np.testing.assert_allclose(executable.run(x).outputs["y"], run(graph, x)["y"], rtol=1e-3, atol=1e-2)


def test_inputs_that_do_not_fit_are_refused() -> None:
    assert coreml.passed(np.array([5, -7])).dtype == np.int32 and coreml.passed(np.array([True])).tolist() == [1]
    with pytest.raises(ValueError, match="32 bits"):
        coreml.passed(np.array([2**40]))


def test_float16_inside(save: Save, tmp_path: Path) -> None:
    wanted, got = written(save, tmp_path, "g (float[2,8] x) => (float[2,8] y) { a = Exp(x) y = Tanh(a) }", half=True)
    assert np.abs(got["y"] - wanted["y"]).max() < 2e-3
    assert (got["y"] != wanted["y"]).any(), "it did not compute in float16"


def test_integers_come_as_quantize_and_dequantize(save: Save, tmp_path: Path) -> None:
    wanted, got = written(save, tmp_path, QDQ)
    np.testing.assert_allclose(got["y"], wanted["y"], atol=0.1001)  # one step of the result
    assert (np.abs(got["y"] - wanted["y"]) < 1e-5).mean() > 0.95


def test_a_plan_runs_through_the_arena(save: Save, plan_by_hand: HandPlan, alternate: Any) -> None:
    graph = standard(load(save(QDQ)))
    x = {"x": np.random.default_rng(1).standard_normal((1, 2, 4, 4)).astype(np.float32)}
    with compile_plan(graph, plan_by_hand(graph, precision=lambda i: "w8a8", delegate="coreml")) as executable:
        result = executable.run(x, repeat=2)
        observed = executable.run(x, observe=True).observed
    wanted = run(graph, x)
    np.testing.assert_allclose(result.outputs["y"], wanted["y"], atol=0.1001)
    assert set(observed) == {o for op in graph.ops for o in op.outputs} and result.copied_bytes > 0


def test_what_cannot_be_written_is_refused_by_name(save: Save, plan_by_hand: HandPlan) -> None:
    graph = load(save("g (float[4] x) => (float[4] y) { a = Relu(x) y = Sinh(a) }"))
    assert refusal(graph, graph.ops[0]) is None
    assert refusal(graph, graph.ops[1]) == "there is no Core ML operation for Sinh"
    with pytest.raises(UnsupportedModelError, match=r"Sinh\) cannot run with Core ML: there is no Core ML operation for Sinh"):
        compile_plan(graph, plan_by_hand(graph, delegate="coreml"))
    delegate = load_delegate("coreml")
    assert "calibrate ranges" in (delegate.supports(graph.ops[0], graph, "w8a8") or "")
    assert "not in w4a8" in (delegate.supports(graph.ops[0], graph, "w4a8") or "")


def test_a_package_that_is_not_the_plan_is_refused(save: Save, tmp_path: Path) -> None:
    graph = load(save("g (float[4] x) => (float[4] y) { y = Relu(x) }"))
    other = load(save("g (float[5] x) => (float[5] y) { y = Relu(x) }", name="other"))
    mil_package(other, other.ops, ends_of(other, other.ops), tmp_path / "m.mlpackage", half=False, units="cpu")
    with pytest.raises(DelegateError, match=r"has \[5\] f32 where the plan has 'x', \[4\] f32"):
        coreml.interpreter(tmp_path / "m.mlpackage", graph, ends_of(graph, graph.ops))


def test_a_failing_prediction_names_the_node(chain: Any, plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def opened(job: Any, ends: Any, notes: Any) -> Any:
        def predict(feeds: Any) -> Any:
            calls.append(1)
            if len(calls) == 3:
                raise RuntimeError("the device is lost\nmore")
            return {n: np.maximum(a, 0) for n, a in (("t0", feeds["x"]),)}

        return predict

    monkeypatch.setattr(coreml, "opened", opened)
    graph = chain("Relu")
    x = {"x": np.linspace(-1, 1, 8, dtype=np.float32)}
    with compile_plan(graph, plan_by_hand(graph, delegate="coreml")) as executable:
        executable.run(x, repeat=2)
        with pytest.raises(ExecutionError, match=r"Core ML failed in op0 \(nodes '/user/node_0', …\): the device is lost$"):
            executable.run(x)
        np.testing.assert_array_equal(executable.run(x).outputs["t0"], np.maximum(x["x"], 0))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(coreml, "version", absent)
    probe = load_delegate("coreml").probe()
    assert not probe.available and "hetsched[coreml]" in probe.reason


def test_names_of_ends_are_core_mls() -> None:
    assert names_in(("a/b:0", "a_b_0", "0", "ü")) == {"a/b:0": "a_b_0", "a_b_0": "a_b_0_", "0": "t_0", "ü": "t__"}
    assert names_in(("func", "x")) == {"func": "func_", "x": "x"}


def test_what_core_ml_runs_elsewhere_is_said() -> None:
    """With stand-ins for what only macOS has: classes named as coremltools names them."""
    from types import SimpleNamespace

    from hetsched.runtime.delegates.coreml_devices import elsewhere

    npu, cpu = (type(name, (), {})() for name in ("MLNeuralEngineComputeDevice", "MLCPUComputeDevice"))
    inner = SimpleNamespace(operator_name="relu", blocks=[])
    outer = SimpleNamespace(operator_name="cond", blocks=[SimpleNamespace(operations=[inner])])
    ops = [*(SimpleNamespace(operator_name=n, blocks=[]) for n in ("const", "conv", "softmax", "topk", "gather", "tile")), outer]
    homes = {"conv": npu, "softmax": npu, "topk": cpu, "gather": cpu, "tile": cpu, "cond": cpu, "relu": npu}
    structure = SimpleNamespace(program=SimpleNamespace(functions={"main": SimpleNamespace(block=SimpleNamespace(operations=ops))}))

    def usage(operation: Any) -> Any:
        home = homes.get(operation.operator_name)
        return None if home is None else SimpleNamespace(preferred_compute_device=home)

    plan = SimpleNamespace(model_structure=structure, get_compute_device_usage_for_mlprogram_operation=usage)
    said = "Core ML prefers the cpu for 4 of 7 operations that the plan has on the npu: topk, gather, tile, …"
    assert elsewhere(plan, "npu") == [said]
    homes = dict.fromkeys(homes, npu)
    assert elsewhere(plan, "npu") == []
