"""TFLite models: written, run by LiteRT's interpreter, and refused by name where they cannot be written."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from segment_graphs import QDQ, STEPS, TRAPS, arithmetic, movement, windows

from hetsched.errors import DelegateError, ExecutionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.lowering.onnx_segment import ends_of
from hetsched.lowering.tflite import refusal, tflite_model
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.reference.executor import run
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates import load_delegate, neuropilot

HandPlan = Callable[..., Plan]
Save = Callable[..., Path]
pytestmark = pytest.mark.skipif(importlib.util.find_spec("ai_edge_litert") is None, reason="LiteRT is not installed")


def written(save: Save, text: str, passes: bool = False) -> tuple[dict[str, Any], dict[str, Any], Counter[str]]:
    """What the graph's outputs are by the reference, and by the model; and the model's operators."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    graph = standard(load(save(text))) if passes else load(save(text))
    rng = np.random.default_rng(5)
    feeds = {n: rng.standard_normal(graph.tensors[n].shape).astype(np.float32) for n in graph.inputs}
    ends = ends_of(graph, graph.ops)
    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=tflite_model(graph, graph.ops, ends), experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    for detail, name in zip(interpreter.get_input_details(), ends.inputs, strict=True):
        interpreter.set_tensor(detail["index"], feeds[name])
    interpreter.invoke()
    got = {n: interpreter.get_tensor(d["index"]) for d, n in zip(interpreter.get_output_details(), ends.outputs, strict=True)}
    wanted = run(graph, feeds)
    return {n: wanted[n] for n in ends.outputs}, got, Counter(o["op_name"] for o in interpreter._get_ops_details())


@pytest.mark.parametrize(("text", "count"), [(arithmetic(), 29), (movement(), 19), (windows(), 9)])
def test_every_node(text: str, count: int, save: Save) -> None:
    wanted, got, _ = written(save, text)
    assert len(wanted) == count
    for name in wanted:
        assert got[name].shape == wanted[name].shape
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-3, atol=1e-4, err_msg=name)


_REFUSED = {
    "remainders_with_a_sign", "factors_beside_the_sizes", "averages_while_shrinking", "nearest_below", "transposed_to_a_shape",
    "two_scales",
}  # fmt: skip


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("name", TRAPS)
def test_what_is_easily_written_wrong(name: str, passes: bool, save: Save) -> None:
    if name in _REFUSED:
        with pytest.raises(UnsupportedModelError, match="TFLite"):
            written(save, TRAPS[name], passes)
        return
    wanted, got, _ = written(save, TRAPS[name], passes)
    for n in wanted:
        np.testing.assert_allclose(got[n], wanted[n], rtol=1e-3, atol=STEPS.get(name, 1e-4))


def test_a_chain_of_images_is_turned_at_its_ends_only(save: Save) -> None:
    text = """
    g (float[1,3,8,8] x) => (float[1,3,4,4] y) <float[3,3,1,1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[3,1,1] s = {1, 2, 3}> {
        a = Conv(x, w)  b = Relu(a)  c = Mul(b, s)  d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)  e = Conv(d, w)
        f = Concat <axis = 1> (d, e)  p, q = Split <axis = 1, num_outputs = 2> (f)  y = Add(p, q) }"""
    wanted, got, operators = written(save, text)
    np.testing.assert_allclose(got["y"], wanted["y"], rtol=1e-5)
    assert operators["TRANSPOSE"] == 2 and operators["CONV_2D"] == 2


def test_quantized_operators_come_as_integers(save: Save) -> None:
    wanted, got, operators = written(save, QDQ, passes=True)
    assert operators["CONV_2D"] == 1 and operators["DEQUANTIZE"] == 1, "the weights and the image stay integers"
    np.testing.assert_allclose(got["y"], wanted["y"], atol=0.1001)  # one step of the result
    assert (np.abs(got["y"] - wanted["y"]) < 1e-5).mean() > 0.9


def test_a_plan_runs_through_the_arena(save: Save, plan_by_hand: HandPlan) -> None:
    graph = standard(load(save(QDQ)))
    x = {"x": np.random.default_rng(1).standard_normal((1, 2, 4, 4)).astype(np.float32)}
    plan = plan_by_hand(graph, precision=lambda i: "w8a8", delegate="neuropilot")
    with compile_plan(graph, plan) as executable:
        result = executable.run(x, repeat=2)
        observed = executable.run(x, observe=True).observed
    np.testing.assert_allclose(result.outputs["y"], run(graph, x)["y"], atol=0.1001)
    assert set(observed) == {o for op in graph.ops for o in op.outputs} and result.copied_bytes > 0


def test_what_cannot_be_written_is_refused_by_name(save: Save, plan_by_hand: HandPlan) -> None:
    graph = load(save("g (float[4] x) => (float[4] y) { a = Relu(x) y = Sinh(a) }"))
    assert refusal(graph, graph.ops[0]) is None and refusal(graph, graph.ops[1]) == "there is no TFLite operator for Sinh"
    with pytest.raises(UnsupportedModelError, match=r"Sinh\) cannot run with LiteRT: there is no TFLite operator for Sinh"):
        compile_plan(graph, plan_by_hand(graph, delegate="neuropilot"))
    w, r = (", ".join(["0.1"] * n) for n in (32, 64))
    text = f"<float[1,16,2] w = {{{w}}}, float[1,16,4] r = {{{r}}}> {{ y = LSTM <hidden_size = 4> (x, w, r) }}"
    recurrent = load(save(f"g (float[3,1,2] x) => (float[3,1,1,4] y) {text}"))
    with pytest.raises(UnsupportedModelError, match=r"recurrent layers \(LSTM\) are not written for TFLite, .*: plan them on the CPU"):
        compile_plan(recurrent, plan_by_hand(recurrent, delegate="neuropilot"))


@pytest.mark.parametrize(
    ("out", "attributes"),
    [
        ("1,2,6,6", "pads = [1, 1, 1, 1], kernel_shape = [2, 2]"),
        ("1,2,3,2", "pads = [1, 1, 1, 0], kernel_shape = [3, 3], strides = [2, 2]"),
        ("1,2,3,3", "pads = [0, 0, 0, 0], kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1"),
        ("1,2,3,3", "pads = [0, 0, 1, 1], kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1, count_include_pad = 1"),
        ("1,2,3,3", 'auto_pad = "SAME_LOWER", kernel_shape = [2, 2], strides = [2, 2]'),
        ("1,2,3,3", "pads = [1, 1, 1, 1], kernel_shape = [3, 3], strides = [2, 2], count_include_pad = 1"),
    ],
)
def test_averages_count_padding_where_the_node_does(out: str, attributes: str, save: Save) -> None:
    wanted, got, _ = written(save, f"g (float[1,2,5,5] x) => (float[{out}] y) {{ y = AveragePool <{attributes}> (x) }}")
    np.testing.assert_allclose(got["y"], wanted["y"], rtol=1e-5, atol=1e-6)


def test_a_failing_invocation_names_the_node(chain: Any, plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    real, runs = neuropilot.opened, []

    def opened(job: Any, ends: Any) -> Any:
        def predict(feeds: Any) -> Any:
            runs.append(1)
            if len(runs) in {3, 5}:
                raise RuntimeError("out of memory\nmore")
            return inner(feeds)

        inner = real(job, ends)
        return predict

    monkeypatch.setattr(neuropilot, "opened", opened)
    graph, x = chain("Relu"), {"x": np.linspace(-1, 1, 8, dtype=np.float32)}
    with compile_plan(graph, plan_by_hand(graph, delegate="neuropilot")) as executable:
        executable.run(x, repeat=2)
        with pytest.raises(ExecutionError, match=r"LiteRT failed in op0 \(nodes '/user/node_0', …\): out of memory$"):
            executable.run(x)
        np.testing.assert_array_equal(executable.run(x).outputs["t0"], np.maximum(x["x"], 0))
        with pytest.raises(ExecutionError, match=r"LiteRT failed in op0 .*: out of memory$"):
            executable.run(x, observe=True)


def test_an_empty_sdk_is_told_from_a_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec: Any = None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(DelegateError, match="is not installed"):
        neuropilot.compiler_plugin()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    with pytest.raises(DelegateError, match="is installed but empty"):
        neuropilot.compiler_plugin()
    assert "not compiled for an APU" in load_delegate("neuropilot").probe().builds
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "libLiteRtCompilerPlugin_MediaTek.so").write_bytes(b"")
    assert neuropilot.compiler_plugin().name == "libLiteRtCompilerPlugin_MediaTek.so"
    assert "SDK is here" in load_delegate("neuropilot").probe().builds


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(neuropilot, "version", absent)
    probe = load_delegate("neuropilot").probe()
    assert not probe.available and "hetsched[litert]" in probe.reason


def test_a_segment_is_compiled_where_the_sdk_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the SDK and its compiler, which are not to be had here."""
    import sys
    from types import ModuleType

    with pytest.raises(DelegateError, match=r"SDK is (not installed|installed but empty)"):
        neuropilot.compiled_for(b"model", "MT6989")
    monkeypatch.setattr(neuropilot, "compiler_plugin", lambda: tmp_path)
    compiler: Any = ModuleType("aot_compile")

    def compile_model(path: str, folder: str, target: Any, keep_going: bool) -> Any:
        held = SimpleNamespace(model_bytes=Path(path).read_bytes() + str(target.soc_model).encode())
        return SimpleNamespace(load=lambda: None, models=[held])

    compiler.aot_compile = compile_model
    monkeypatch.setitem(sys.modules, "ai_edge_litert.aot.aot_compile", compiler)
    assert neuropilot.compiled_for(b"model", "MT6989") == b"modelMT6989"
    with pytest.raises(DelegateError, match="does not compile a segment for MT1: 'MT1' is not a valid SocModel"):
        neuropilot.compiled_for(b"model", "MT1")
