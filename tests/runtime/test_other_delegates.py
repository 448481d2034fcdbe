"""One plan, several delegates: what has no kernel runs in ONNX Runtime, the plan says so, and without it there is a reason."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import hetsched
from hetsched.errors import CheckError, PlanError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates import load_delegate
from hetsched.runtime.delegates.base import Probe
from hetsched.runtime.delegates.mixed import MixedDelegate
from hetsched.runtime.ort_support import ort_supported

Save = Callable[..., Path]
TEXT = """
g (float[1,3,8,8] x) => (float[a,b,c,d] y, float[e,f,g,i] z) {
    r = Relu(x)
    q = Trilu(r)
    y = Neg(q)
    z = Sinh(y)
}"""


@pytest.fixture
def without_ort(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that lacks ONNX Runtime."""
    real = builtins.__import__

    def gone(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "onnxruntime":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", gone)


def feeds(rng: np.random.Generator) -> dict[str, Any]:
    return {"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)}


def test_a_plan_of_two_delegates(save: Save, tmp_path: Path) -> None:
    path = save(TEXT)
    planned = hetsched.plan(path, "host", simulated=False)
    delegates = {p.type: p.delegate for p in planned.plan.placements}
    assert delegates == {"Relu": "numba", "Trilu": "ort", "Neg": "numba", "Sinh": "ort"}
    assert any("run by the delegate ort" in note and "Trilu" in note for note in planned.plan.notes)
    given = feeds(np.random.default_rng(3))
    ran = hetsched.run(planned, inputs=given, check=True, repeat=3)
    assert ran.check is not None and ran.check.passed
    expected = ort.InferenceSession(path).run(["y", "z"], given)
    for name, want in zip(("y", "z"), expected, strict=True):
        np.testing.assert_allclose(ran.outputs[name].astype(np.float32), want.astype(np.float32), rtol=1e-3, atol=1e-4)
    again = hetsched.run(planned.save(tmp_path / "plan.json"), inputs=given, repeat=1)
    assert (again.outputs["z"] == ran.outputs["z"]).all()


def test_without_onnx_runtime_the_reason_says_what_to_install(save: Save, without_ort: None) -> None:
    with pytest.raises(UnsupportedModelError, match=r"Trilu.*no CPU kernel for Trilu; .*not installed: install hetsched\[ort\]"):
        hetsched.plan(save(TEXT), "host", simulated=False)


def test_a_plan_that_needs_onnx_runtime_is_refused_without_it(save: Save, plan_by_hand: Callable[..., Plan], without_ort: None) -> None:
    graph = load(save("g (float[2] x) => (float[2] y) { y = Sinh(x) }"))
    with pytest.raises(PlanError, match=r"'ort' cannot run here: ONNX Runtime is not installed"):
        compile_plan(graph, plan_by_hand(graph, delegate="ort"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (int8[2] x) => (int8[2] y) { y = Sinh(x) }", None),
        ("g (bool[2] x) => (bool[2] y) { y = Identity(x) }", ""),
        ("g (uint16[2] x) => (uint16[2] y) { y = Neg(x) }", None),
        ("g (float[2] x) => (float[2] y) { y = Mish(x) }", ""),
        ("g (float16[2] x) => (float16[2] y) { y = Erf(x) }", ""),
        ("g (int16[2] x) => (int16[2] y) { y = Relu(x) }", "no CPU kernel for Relu on i16, which 'x' holds"),
    ],
)
def test_element_types_decide(save: Save, text: str, message: str | None) -> None:
    try:
        graph = load(save(text))
    except hetsched.errors.ModelError:
        assert message is None  # ONNX itself does not allow the type
        return
    why = ort_supported(graph.ops[0], graph, "f32")
    assert why is None if message == "" else message is not None and why is not None and message in why


def test_other_precisions_are_not_for_onnx_runtime(save: Save) -> None:
    graph = load(save("g (float[2] x) => (float[2] y) { y = Sinh(x) }"))
    assert "in f32 only" in (ort_supported(graph.ops[0], graph, "w8a8") or "")


def test_a_mixed_delegate_is_what_its_parts_are() -> None:
    class Broken:
        name = "broken"

        def probe(self) -> Probe:
            return Probe(False, reason="out of order")

    numba: Any = load_delegate("numba")
    broken: Any = Broken()
    assert MixedDelegate({"a": numba, "b": numba}).probe().available
    assert MixedDelegate({"a": numba, "b": broken}).probe().reason == "out of order"


def test_the_check_says_what_it_needs(save: Save, without_ort: None) -> None:
    planned = hetsched.plan(save("g (float[2] x) => (float[2] y) { y = Relu(x) }"), "host", simulated=False)
    with pytest.raises(CheckError, match=r"install hetsched\[ort\]"):
        hetsched.run(planned, check=True, repeat=1)
