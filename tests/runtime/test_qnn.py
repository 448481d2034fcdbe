"""The Hexagon NPU through ONNX Runtime: numerics on the emulator, stored contexts, and what is refused."""

from __future__ import annotations

import builtins
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import DelegateError, ExecutionError, PlanError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates import load_delegate, qnn, qnn_context, qnn_target
from hetsched.runtime.delegates.qnn_target import Target
from hetsched.soc_files import load_soc
from hetsched.socs import SoC

HandPlan = Callable[..., Plan]
Save = Callable[..., Path]
PHONE = "snapdragon-8-gen-3"
#: SoC -> architecture and number in Qualcomm's SDK.
TARGETS = {
    "snapdragon-8-gen-2": ("73", "43"), "snapdragon-8-gen-3": ("75", "57"), "snapdragon-8-elite": ("79", "69"),
    "snapdragon-8-elite-gen-5": ("81", "87"), "snapdragon-x-elite": ("73", "60"),
}  # fmt: skip
here = pytest.mark.skipif(not load_delegate("qnn").probe().available, reason="onnxruntime-qnn is not installed")
QDQ = """
g (uint8[1,4,4,4] x) => (uint8[1,2,4,4] y)
  <int8[2,4,1,1] w = {10,-20,30,40, 7,-50,60,-70}, float s = {0.05}, uint8 z = {128}, float t = {0.1}, int8 n = {0}, float r = {0.02}> {
    f = DequantizeLinear(x, s, z)
    k = DequantizeLinear(w, r, n)
    c = Conv(f, k)
    y = QuantizeLinear(c, t, z)
}"""
MIXED = "g (float[1,4] x) => (float[1,4] y, float[1,4] z) { y = Softmax(x) z = Sinh(y) }"


@pytest.fixture(scope="module")
def phone() -> SoC:
    return load_soc(PHONE)


@pytest.fixture(autouse=True)
def contexts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Contexts of a test are its own."""
    folder = tmp_path / "contexts"
    monkeypatch.setattr(qnn_context, "folder_for", lambda target: folder / target.soc_model)
    return folder


@pytest.fixture
def half(save: Save) -> Graph:
    values = ", ".join(f"{v:.4f}" for v in np.random.default_rng(1).standard_normal(32))
    return load(save(f"g (float[2,8] x) => (float[2,4] y) <float[8,4] w = {{{values}}}> {{ m = MatMul(x, w)  y = Softmax(m) }}"))


def on_npu(graph: Graph, plan_by_hand: HandPlan, precision: str = "f16") -> Plan:
    return plan_by_hand(graph, lambda i: "npu", precision=lambda i: precision, delegate="qnn")


def stored(contexts: Path) -> list[Path]:
    return sorted(contexts.glob("*/*.onnx"))


@here
def test_float16_numerics(half: Graph, plan_by_hand: HandPlan, phone: SoC) -> None:
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    with compile_plan(half, on_npu(half, plan_by_hand), soc=phone, delegate={"npu": "qnn"}) as executable:
        result = executable.run({"x": x})
    m = x @ half.tensors["w"].numpy()
    e = np.exp(m - m.max(1, keepdims=True))
    np.testing.assert_allclose(result.outputs["y"], e / e.sum(1, keepdims=True), atol=3e-3)
    assert result.copied_bytes == 0
    assert [(i.kind, i.name) for i in result.trace.instants if i.kind == "delegate"] == [("delegate", "npu")]


@here
def test_integers_stay_integers_at_the_ends(save: Save, plan_by_hand: HandPlan, phone: SoC) -> None:
    graph = standard(load(save(QDQ)))
    assert len(graph.ops) == 1 and graph.ops[0].is_composite
    x = np.random.default_rng(0).integers(0, 256, (1, 4, 4, 4)).astype(np.uint8)
    with compile_plan(graph, on_npu(graph, plan_by_hand, "w8a8"), soc=phone, delegate={"npu": "qnn"}) as executable:
        got = executable.run({"x": x}).outputs["y"]
    w = graph.tensors["w"].numpy()[:, :, 0, 0] * 0.02
    want = np.clip(np.rint(np.einsum("oc,bchw->bohw", w, (x.astype(float) - 128) * 0.05) / 0.1) + 128, 0, 255)
    assert got.dtype == np.uint8 and np.abs(got.astype(float) - want).max() <= 1


@here
def test_emulated_processors_are_labelled(half: Graph, plan_by_hand: HandPlan, phone: SoC) -> None:
    if not qnn_target.is_emulated():
        pytest.skip("there is an NPU here")
    with compile_plan(half, on_npu(half, plan_by_hand), soc=phone, delegate={"npu": "qnn"}) as executable:
        trace = executable.run({"x": np.zeros((2, 8), np.float32)}).trace
    assert any("npu is emulated" in note and "times mean nothing" in note for note in trace.notes)
    assert any("emulated: the HTP emulator" in i.detail for i in trace.instants if i.kind == "delegate")
    assert all(s.predicted_s is None for s in trace.spans)


@here
def test_a_context_is_made_once_and_read_again(
    half: Graph, plan_by_hand: HandPlan, phone: SoC, contexts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, x = on_npu(half, plan_by_hand), np.ones((2, 8), np.float32)
    with compile_plan(half, plan, soc=phone, delegate={"npu": "qnn"}) as executable:
        first = executable.run({"x": x}).outputs["y"]
    (context,) = stored(contexts)
    header = json.loads(context.with_suffix(".json").read_text())
    assert (header["soc"], header["htp_arch"], header["soc_model"]) == (PHONE, "75", "57")
    monkeypatch.setattr(qnn, "build_context", lambda *_: pytest.fail("it was compiled again"))
    with compile_plan(half, plan, soc=phone, delegate={"npu": "qnn"}) as executable:
        np.testing.assert_array_equal(executable.run({"x": x}).outputs["y"], first)


@here
def test_a_damaged_context_is_made_again(half: Graph, plan_by_hand: HandPlan, phone: SoC, contexts: Path) -> None:
    plan = on_npu(half, plan_by_hand)
    compile_plan(half, plan, soc=phone, delegate={"npu": "qnn"}).close()
    (context,) = stored(contexts)
    whole = context.read_bytes()
    context.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DelegateError, match=r"is damaged: its bytes are not those"):
        qnn_context.check_context(context, Target.of(phone))
    with compile_plan(half, plan, soc=phone, delegate={"npu": "qnn"}) as executable:
        assert np.isfinite(executable.run({"x": np.ones((2, 8), np.float32)}).outputs["y"]).all()
    qnn_context.check_context(context, Target.of(phone))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"soc": 1}', "{" * 100])
def test_a_damaged_header_is_refused(tmp_path: Path, phone: SoC, text: str) -> None:
    context = tmp_path / "a.onnx"
    context.write_bytes(b"abc")
    context.with_suffix(".json").write_text(text)
    with pytest.raises(DelegateError, match="is not the header of a context binary"):
        qnn_context.check_context(context, Target.of(phone))


def test_a_context_of_another_soc_is_refused(tmp_path: Path, phone: SoC) -> None:
    context = tmp_path / "a.onnx"
    context.write_bytes(b"abc")
    qnn_context.write_header(context, Target.of(load_soc("snapdragon-8-elite")), "2.7.0", b"model")
    with pytest.raises(
        DelegateError, match=r"made for snapdragon-8-elite \(HTP v79, SoC model 69\) and does not run on snapdragon-8-gen-3"
    ):
        qnn_context.check_context(context, Target.of(phone))
    qnn_context.write_header(context, Target.of(phone), "2.7.0", b"model")
    assert qnn_context.check_context(context, Target.of(phone)).soc == PHONE
    with pytest.raises(DelegateError, match="there is no context binary"):
        qnn_context.check_context(tmp_path / "absent.onnx", Target.of(phone))


@pytest.mark.parametrize("soc", TARGETS)
def test_targets_are_those_of_the_soc_files(soc: str) -> None:
    target = Target.of(load_soc(soc))
    assert (target.htp_arch, target.soc_model) == TARGETS[soc]
    assert qnn.options_for(target, half=True)["htp_arch"] == target.htp_arch


@here
@pytest.mark.parametrize("soc", [s for s in TARGETS if s != PHONE])
def test_every_soc_has_its_own_contexts(half: Graph, plan_by_hand: HandPlan, soc: str, contexts: Path) -> None:
    with compile_plan(half, on_npu(half, plan_by_hand), soc=load_soc(soc), delegate={"npu": "qnn"}) as executable:
        got = executable.run({"x": np.ones((2, 8), np.float32)}).outputs["y"]
    np.testing.assert_allclose(got.sum(1), 1.0, atol=5e-3)
    (context,) = stored(contexts)
    assert context.parent.name == TARGETS[soc][1]
    with pytest.raises(DelegateError, match=f"was made for {soc}"):
        qnn_context.check_context(context, Target.of(load_soc(PHONE)))


def test_keys_depend_on_all_that_a_context_depends_on(phone: SoC) -> None:
    target, other = Target.of(phone), Target.of(load_soc("snapdragon-8-elite"))
    plain, half = (qnn.options_for(target, half=h) for h in (False, True))
    keys = [
        qnn_context.key_of(b"m", target, "2.7.0", plain), qnn_context.key_of(b"n", target, "2.7.0", plain),
        qnn_context.key_of(b"m", other, "2.7.0", plain), qnn_context.key_of(b"m", target, "2.8.0", plain),
        qnn_context.key_of(b"m", target, "2.7.0", half),
    ]  # fmt: skip
    assert len(set(keys)) == 5 and keys[0] == qnn_context.key_of(b"m", target, "2.7.0", plain)


def test_socs_without_an_htp_are_refused(half: Graph, plan_by_hand: HandPlan, phone: SoC) -> None:
    with pytest.raises(DelegateError, match=r"apple-a17-pro: its file has no compiler_target"):
        Target.of(load_soc("apple-a17-pro"))
    with pytest.raises(DelegateError, match="give the plan's SoC"):
        Target.of(None)
    odd = phone.model_copy(
        update={
            "processors": tuple(
                p.model_copy(update={"compiler_target": {"htp_arch": "99", "soc_model": "57"}}) if p.delegate == "qnn" else p
                for p in phone.processors
            )
        }
    )
    with pytest.raises(DelegateError, match=r"htp_arch '99': the HTP compiler knows 68, 69"):
        Target.of(odd)


@here
def test_an_op_outside_the_table_is_refused_by_name(save: Save, plan_by_hand: HandPlan, phone: SoC) -> None:
    graph = load(save(MIXED))
    with pytest.raises(UnsupportedModelError, match=r"Sinh_1.*cannot run on the NPU with QNN: Sinh is not in the operator list"):
        compile_plan(graph, on_npu(graph, plan_by_hand), soc=phone, delegate={"npu": "qnn"})


@here
def test_what_the_provider_leaves_to_the_cpu_is_an_error(
    save: Save, plan_by_hand: HandPlan, phone: SoC, monkeypatch: pytest.MonkeyPatch, contexts: Path
) -> None:
    monkeypatch.setattr(qnn.QnnDelegate, "supports", lambda *_: None)  # a table that is wrong
    graph = load(save(MIXED))
    with pytest.raises(UnsupportedModelError, match=r"Sinh_1.*is planned on the NPU, and QNN does not take it for snapdragon-8-gen-3"):
        compile_plan(graph, on_npu(graph, plan_by_hand), soc=phone, delegate={"npu": "qnn"})
    assert not stored(contexts)


@pytest.mark.parametrize(("precision", "said"), [("f32", "computes in f16, w8a8"), ("w8a8", "no Q/DQ around it"), ("w4a8", "not in w4a8")])
def test_precisions(half: Graph, precision: str, said: str) -> None:
    assert said in (load_delegate("qnn").supports(half.ops[0], half, precision) or "")
    assert load_delegate("qnn").supports(half.ops[0], half, "f16") is None


@pytest.fixture
def without_qnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    real = builtins.__import__

    def gone(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "onnxruntime_qnn":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", gone)
    yield


def test_an_absent_library(half: Graph, plan_by_hand: HandPlan, phone: SoC, without_qnn: None) -> None:
    probe = load_delegate("qnn").probe()
    assert not probe.available and not probe.version and "install hetsched[qnn]" in probe.reason
    with pytest.raises(PlanError, match=r"'qnn' cannot run here: .*install hetsched\[qnn\]"):
        compile_plan(half, on_npu(half, plan_by_hand), soc=phone, delegate={"npu": "qnn"})


@here
def test_a_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise DelegateError("the library of onnxruntime-qnn cannot be loaded: wrong ELF class")

    monkeypatch.setattr(qnn_target, "devices", broken)
    probe = load_delegate("qnn").probe()
    assert not probe.available and probe.version and "wrong ELF class" in probe.reason


@here
def test_a_device_that_is_lost_is_named(half: Graph, plan_by_hand: HandPlan, phone: SoC) -> None:
    class Lost:
        def run_with_iobinding(self, *_: Any) -> None:
            raise RuntimeError("Device lost")

    with compile_plan(half, on_npu(half, plan_by_hand), soc=phone, delegate={"npu": "qnn"}) as executable:
        compiled = executable.workers[0].jobs[0].compiled
        session, compiled.session = compiled.session, Lost()
        with pytest.raises(ExecutionError, match=r"QNN failed in segment 0 \(nodes .*\): Device lost"):
            executable.run({"x": np.zeros((2, 8), np.float32)})
        compiled.session = session
        assert np.isfinite(executable.run({"x": np.zeros((2, 8), np.float32)}).outputs["y"]).all()


@here
def test_a_device_that_does_not_answer_at_its_third_run(half: Graph, plan_by_hand: HandPlan, phone: SoC) -> None:
    class Stuck:
        runs = 0

        def __init__(self, session: Any) -> None:
            self.session = session

        def run_with_iobinding(self, binding: Any, options: Any) -> None:
            self.runs += 1
            while self.runs == 3 and not options.terminate:
                time.sleep(0.01)
            self.session.run_with_iobinding(binding, options)

    x = {"x": np.ones((2, 8), np.float32)}
    with compile_plan(half, on_npu(half, plan_by_hand), soc=phone, delegate={"npu": "qnn"}) as executable:
        compiled = executable.workers[0].jobs[0].compiled
        compiled.session = Stuck(compiled.session)
        with pytest.raises(ExecutionError, match="longer than its time limit"):
            executable.run(x, repeat=4, timeout_s=3.0)
        assert compiled.session.runs == 3
        assert np.isfinite(executable.run(x).outputs["y"]).all()


@here
def test_the_emulator_leaves_the_standard_output_alone(half: Graph, tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import numpy as np, onnx, sys; from onnx import helper as h;"
        "from hetsched.runtime.delegates import qnn, qnn_target; from hetsched.soc_files import load_soc;"
        "i = [h.make_tensor_value_info(n, 1, [2, 2]) for n in 'xy'];"
        "m = h.make_model(h.make_graph([h.make_node('Relu', ['x'], ['y'])], 'g', i[:1], i[1:]), ir_version=10);"
        "t = qnn_target.Target.of(load_soc('snapdragon-8-gen-3'));"
        "s = qnn.open_session(m.SerializeToString(), qnn.options_for(t, half=True));"
        "print(s.run(None, {'x': np.ones((2, 2), np.float32)})[0].sum(), qnn.elsewhere(s))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert out.stdout.count("\n") == 1 and out.stdout.endswith(" []\n")


def product_of(bits: int) -> Any:
    """A Q/DQ product of 16-bit activations with weights of 8 or 4 bits, one scale per channel."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    most = (1 << bits - 1) - 1
    weights = rng.integers(-most, most + 1, (64, 32))
    kind = TensorProto.INT8 if bits == 8 else TensorProto.INT4
    scales = rng.uniform(0.5, 1.5, 32).astype(np.float32) / most
    constants = [
        helper.make_tensor("w", kind, weights.shape, weights.ravel().tolist()), helper.make_tensor("wz", kind, [32], [0] * 32),
        numpy_helper.from_array(scales, "ws"), numpy_helper.from_array(np.array(4 / 32768, np.float32), "s"),
        numpy_helper.from_array(np.array(40 / 32768, np.float32), "t"), numpy_helper.from_array(np.array(32768, np.uint16), "z"),
    ]  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"], "dq"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["k"], "dw", axis=1),
        helper.make_node("MatMul", ["f", "k"], ["m"], "product"), helper.make_node("QuantizeLinear", ["m", "t", "z"], ["y"], "q"),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(n, TensorProto.UINT16, [8, width]) for n, width in (("x", 64), ("y", 32))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), weights * scales


@here
@pytest.mark.parametrize(("precision", "bits", "steps"), [("w8a16", 8, 1), ("w4a16", 4, 8)])
def test_sixteen_bit_activations(save: Save, plan_by_hand: HandPlan, phone: SoC, precision: str, bits: int, steps: int) -> None:
    model, weights = product_of(bits)
    graph = standard(load(save(model)))
    x = np.random.default_rng(1).integers(0, 1 << 16, (8, 64)).astype(np.uint16)
    with compile_plan(graph, on_npu(graph, plan_by_hand, precision), soc=phone, delegate={"npu": "qnn"}) as executable:
        got = executable.run({"x": x}).outputs["y"]
    want = np.clip(np.rint((x.astype(float) - 32768) * (4 / 32768) @ weights / (40 / 32768)) + 32768, 0, 65535)
    assert got.dtype == np.uint16 and np.abs(got.astype(float) - want).max() <= steps
