"""Where ops go when a segment fails; whole runs are in ``tests/app/test_fallbacks.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hetsched.errors import ExecutionError, UnsupportedModelError
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.failures import NotFiniteError, blamed
from hetsched.runtime.fallback import CpuFallback

pytest.importorskip("onnxruntime")
HandPlan = Callable[..., Plan]


def failed(kind: type[ExecutionError], delegate: str, *segments: int) -> ExecutionError:
    error = kind("it failed")
    blamed(error, delegate, *segments)
    return error


def test_only_the_ops_of_the_delegate_that_failed_move(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Sinh", "Exp")
    fallback = CpuFallback(graph, plan_by_hand(graph), {"cpu": "numba,ort"})
    (what,) = fallback.move(failed(ExecutionError, "numba", 0))
    assert {op: m.delegate for op, m in fallback.moved.items()} == {"op0": "ort", "op2": "ort"}
    assert (what.segment, what.origin, what.to) == (0, "numba", "ort")
    with compile_plan(graph, fallback.plan, delegate={"cpu": "numba,ort"}, moved=fallback.moved) as executable:
        assert executable.assigned is not None and set(executable.assigned.of_op.values()) == {"ort"}


def test_after_an_overflow_only_the_precision_is_barred(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Exp")
    fallback = CpuFallback(graph, plan_by_hand(graph, precision=lambda i: "f16"), "numba")
    (what,) = fallback.move(failed(NotFiniteError, "numba", 0))
    assert what.to == "numba in f32" and {tuple(m) for m in fallback.moved.values()} == {("numba", "f32")}
    (what,) = fallback.move(failed(NotFiniteError, "numba", 0))
    assert what.to == "ort", "f32 on numba was tried"


def test_nothing_is_tried_twice(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Sinh")
    fallback = CpuFallback(graph, plan_by_hand(graph), "null")
    to = []
    with pytest.raises(ExecutionError, match=r"it failed; --fallback cpu found no CPU delegate for node .*Sinh\): numba says"):
        for delegate in ("null", "ort", "openvino"):
            to.append(fallback.move(failed(ExecutionError, delegate, 0))[0].to)
    assert to[0] == "ort" and len(to) == len(set(to))
    with pytest.raises(UnsupportedModelError, match="Sinh"):
        compile_plan(graph, plan_by_hand(graph), delegate="numba")
