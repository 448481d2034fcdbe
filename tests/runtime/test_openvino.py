"""OpenVINO on the CPU: numerics, what it refuses, and requests that fail or do not end."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ExecutionError, PlanError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates import load_delegate, openvino

HandPlan = Callable[..., Plan]
Save = Callable[..., Path]
X = np.linspace(-2, 2, 8, dtype=np.float32)
here = pytest.mark.skipif(not load_delegate("openvino").probe().available, reason="OpenVINO is not installed")


@here
def test_it_reads_and_writes_the_arena(chain: Any, plan_by_hand: HandPlan, alternate: Any) -> None:
    graph = chain("Relu", "Exp", "Neg", "Sinh")
    with compile_plan(graph, plan_by_hand(graph, alternate, delegate="openvino")) as executable:
        result = executable.run({"x": X}, repeat=3)
        observed = executable.run({"x": X}, observe=True).observed
    np.testing.assert_allclose(result.outputs["t3"], np.sinh(-np.exp(np.maximum(X, 0))), rtol=1e-5)
    assert result.copied_bytes == 0 and list(observed) == ["t0", "t1", "t2", "t3"]


@here
def test_integers_come_in_qdq_form(save: Save, plan_by_hand: HandPlan) -> None:
    text = """
    g (uint8[2,4] x) => (uint8[2,4] y) <float s = {0.1}, uint8 z = {128}, float t = {0.2}, uint8 v = {3}> {
        f = DequantizeLinear(x, s, z)  r = Relu(f)  y = QuantizeLinear(r, t, v) }"""
    graph = standard(load(save(text)))
    x = np.array([[0, 100, 128, 255], [129, 130, 200, 4]], np.uint8)
    with compile_plan(graph, plan_by_hand(graph, precision=lambda i: "w8a8", delegate="openvino")) as executable:
        got = executable.run({"x": x}).outputs["y"]
    want = np.clip(np.rint(np.maximum((x.astype(np.float32) - 128) * 0.1, 0) / 0.2) + 3, 0, 255)
    assert np.abs(got.astype(float) - want).max() <= 1


@here
def test_what_it_does_not_take_is_refused_by_name(save: Save, plan_by_hand: HandPlan) -> None:
    graph = load(save("g (float[4] x) => (float[4] y) { y = Relu(x) }"))
    delegate = load_delegate("openvino")
    assert delegate.supports(graph.ops[0], graph, "f32") is None
    assert "in f32 only, not in f16" in (delegate.supports(graph.ops[0], graph, "f16") or "")
    with pytest.raises(UnsupportedModelError, match=r"Relu_0.*cannot run with OpenVINO: OpenVINO runs this op in f32 only"):
        compile_plan(graph, plan_by_hand(graph, precision=lambda i: "f16", delegate="openvino"))


@here
def test_an_op_that_the_plug_in_leaves_out_is_named(chain: Any, plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain("Relu", "Exp")
    monkeypatch.setattr(openvino, "_left_out", lambda model: ["t1"])
    with pytest.raises(UnsupportedModelError, match=r"'/user/node_1' \(Exp\) cannot run with OpenVINO: its CPU plug-in does not take it"):
        compile_plan(graph, plan_by_hand(graph, delegate="openvino"))
    assert "has no Exp" in (load_delegate("openvino").supports(graph.ops[1], graph, "f32") or "")


class Request:
    """A request that fails or never ends at its ``n``-th start."""

    def __init__(self, request: Any, n: int, error: Exception | None) -> None:
        self.request, self.n, self.error, self.runs, self.cancelled = request, n, error, 0, threading.Event()
        self.callback: Any = None

    def set_callback(self, callback: Any, data: Any) -> None:
        self.callback = callback
        self.request.set_callback(callback, data)

    def start_async(self) -> None:
        self.runs += 1
        if self.runs != self.n:
            self.request.start_async()
        elif self.error is not None:
            raise self.error

    def wait(self) -> None:
        self.request.wait()

    def cancel(self) -> None:
        self.cancelled.set()
        self.callback(None)  # a cancelled request calls back as well


@here
def test_the_nth_run_fails_and_the_next_one_is_right(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Exp")
    with compile_plan(graph, plan_by_hand(graph, delegate="openvino")) as executable:
        compiled = executable.workers[0].jobs[0].compiled
        compiled.request = Request(compiled.request, 2, RuntimeError("Exception from src/x.cpp:1:\nthe device is gone\n"))
        with pytest.raises(ExecutionError, match=r"OpenVINO failed in segment 0 \(nodes '/user/node_0'.*\): the device is gone$"):
            executable.run({"x": X}, repeat=3)
        np.testing.assert_allclose(executable.run({"x": X}).outputs["t1"], np.exp(np.maximum(X, 0)), rtol=1e-5)


@here
def test_a_request_that_does_not_end_is_cancelled(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Exp")
    with compile_plan(graph, plan_by_hand(graph, delegate="openvino")) as executable:
        compiled = executable.workers[0].jobs[0].compiled
        request = compiled.request = Request(compiled.request, 1, None)
        with pytest.raises(ExecutionError, match="time limit"):
            executable.run({"x": X}, timeout_s=0.2)
        assert request.cancelled.wait(5)
        np.testing.assert_allclose(executable.run({"x": X}).outputs["t1"], np.exp(np.maximum(X, 0)), rtol=1e-5)


def test_an_absent_library(chain: Any, plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def gone(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "openvino":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", gone)
    graph = chain("Relu")
    with pytest.raises(PlanError, match=r"'openvino' cannot run here: OpenVINO is not installed: install hetsched\[openvino\]"):
        compile_plan(graph, plan_by_hand(graph, delegate="openvino"))
