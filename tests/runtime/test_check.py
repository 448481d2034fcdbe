"""The check: what it lets pass, what it must not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import CheckError
from hetsched.graph import DType, Graph, Op, Quantization, Role, Tensor, WeightRef
from hetsched.plans import Plan
from hetsched.runtime.checking import check, compare_run
from hetsched.runtime.comparison import EXACT_DB, compare
from hetsched.runtime.executable import RunResult
from hetsched.trace import Trace

HandPlan = Callable[..., Plan]
NOISE = np.random.default_rng(0).standard_normal(8).astype(np.float32)


def report_of(graph: Graph, plan: Plan, observed: dict[str, Any], reference: dict[str, Any]) -> Any:
    return compare_run(graph, plan, observed, reference)


def test_equal_tensors_pass(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Neg")
    values = {"t0": NOISE, "t1": -NOISE}
    report = report_of(graph, plan_by_hand(graph), values, values)
    assert report.passed
    assert report.summary()["outputs"]["t1"] == {"cosine": pytest.approx(1.0), "snr_db": EXACT_DB, "max_abs": 0.0}
    assert "2 tensors" in report.sentence()
    report.raise_if_failed()


def test_a_wrong_intermediate_fails_with_the_users_node(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Neg")
    wrong = NOISE.copy()
    wrong[3] += 0.5
    report = report_of(graph, plan_by_hand(graph), {"t0": wrong, "t1": NOISE}, {"t0": NOISE, "t1": NOISE})
    assert [c.op for c in report.failures] == ["op0"]
    with pytest.raises(CheckError, match="/user/node_0"):
        report.raise_if_failed()


def test_a_constant_output_fails_even_when_equal(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Neg")
    values = {"t0": NOISE, "t1": np.full(8, 0.25, np.float32)}
    report = report_of(graph, plan_by_hand(graph), values, values)
    assert not report.passed
    assert "every output is constant" in report.sentence()
    with pytest.raises(CheckError):
        report.raise_if_failed()


def test_a_constant_intermediate_proves_nothing(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Neg")
    values = {"t0": np.zeros(8, np.float32), "t1": NOISE}
    report = report_of(graph, plan_by_hand(graph), values, values)
    assert report.passed and [c.op for c in report.constants] == ["op0"]
    other = {**values, "t0": np.full(8, 1.0, np.float32)}
    assert not report_of(graph, plan_by_hand(graph), other, values).passed


def test_a_dead_net_fails_although_its_single_output_value_agrees(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Neg", "Abs")
    dead = np.full(8, 0.5, np.float32)
    values = {"t0": dead, "t1": dead, "t2": np.full(1, 0.5, np.float32)}
    report = report_of(graph, plan_by_hand(graph), values, values)
    assert not report.passed and "2 of 2 reference tensors are constant" in report.sentence()


def test_constants_are_counted_in_the_sentence(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Neg")
    values = {"t0": np.zeros(8, np.float32), "t1": NOISE}
    assert "constant and so proving nothing: 1" in report_of(graph, plan_by_hand(graph), values, values).sentence()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_fail_by_node(chain: Any, plan_by_hand: HandPlan, bad: float) -> None:
    graph = chain("Relu", "Neg")
    broken = NOISE.copy()
    broken[0] = bad
    report = report_of(graph, plan_by_hand(graph), {"t0": broken, "t1": NOISE}, {"t0": NOISE, "t1": NOISE})
    assert [c.op for c in report.failures] == ["op0"] and "NaN or infinite" in report.failures[0].reason


def test_infinities_in_both_agree() -> None:
    masked = np.array([-np.inf, 1, 2], np.float32)
    assert compare(masked, masked).bad_values == 0
    assert compare(-masked, masked).bad_values == 1
    assert compare(np.array([np.nan]), np.array([np.nan])).bad_values == 1


def test_nothing_compared_does_not_pass(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu")
    report = report_of(graph, plan_by_hand(graph), {"t0": NOISE}, {})
    assert not report.passed and report.unmatched == ("t0",)
    assert "compared nothing" in report.sentence()


def test_integer_runs_are_judged_at_the_outputs(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("MatMul", "Relu", "Neg")
    plan = plan_by_hand(graph, precision=lambda i: "w8a8" if i == 0 else "f32")
    reference = {f"t{i}": NOISE for i in range(3)}
    noisy = NOISE + 0.05 * np.sign(np.random.default_rng(1).standard_normal(8)).astype(np.float32)
    report = report_of(graph, plan, dict.fromkeys(reference, noisy), reference)
    assert [c.verdict for c in report.checks] == ["reported", "reported", "ok"]
    far = NOISE + 0.5 * np.sign(noisy)
    assert [c.op for c in report_of(graph, plan, dict.fromkeys(reference, far), reference).failures] == ["op2"]


def test_quantized_tensors_are_compared_as_reals(plan_by_hand: HandPlan) -> None:
    def constant(name: str, array: Any) -> Tensor:
        array = np.asarray(array)
        return Tensor(name, array.shape, DType.F32 if array.dtype.kind == "f" else DType.U8, Role.WEIGHT, data=WeightRef(array=array))

    tensors = {
        "s": constant("s", np.float32(0.5)),
        "z": constant("z", np.uint8(10)),
        "x": Tensor("x", (4,), DType.F32, Role.INPUT),
        "q": Tensor("q", (4,), DType.U8, Role.OUTPUT, Quantization("s", "z")),
    }
    graph = Graph("q", tensors, (Op("quantize", "QuantizeLinear", ("x", "s", "z"), ("q",)),), ("x",), ("q",))
    got, want = np.array([10, 12, 200, 90], np.uint8), np.array([10, 12, 200, 91], np.uint8)
    row = report_of(graph, plan_by_hand(graph), {"q": got}, {"q": want}).checks[0]
    assert row.difference.max_abs == 0.5 and row.verdict == "ok"


@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=30), st.floats(0.1, 10))
def test_comparison_of_scaled_vectors(values: list[float], factor: float) -> None:
    v = np.array(values)
    d = compare(v * factor, v)
    assert -1 <= d.cosine <= 1
    if np.abs(v).max() > 1e-3:
        assert d.cosine == pytest.approx(1)
        if abs(factor - 1) > 1e-3:
            assert d.snr_db == pytest.approx(-20 * np.log10(abs(factor - 1)), abs=1e-3)


def _onnx_chain(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Relu", ["x"], ["t0"], name="/user/node_0"), helper.make_node("Neg", ["t0"], ["t1"], name="/user/node_1")]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in ("x", "t1"))
    proto = helper.make_model(helper.make_graph(nodes, "chain", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(proto, path)


def test_against_onnx_runtime(chain: Any, plan_by_hand: HandPlan, tmp_path: Path) -> None:
    path = tmp_path / "chain.onnx"
    _onnx_chain(path)
    graph = chain("Relu", "Neg").replace(source=path)
    relu = np.maximum(NOISE, 0)
    plan, trace = plan_by_hand(graph), Trace("measured")
    right = RunResult({}, (0.0,), trace, {"t0": relu, "t1": -relu})
    assert check(graph, plan, {"x": NOISE}, right).passed
    wrong = RunResult({}, (0.0,), trace, {"t0": relu, "t1": relu})
    assert [c.op for c in check(graph, plan, {"x": NOISE}, wrong).failures] == ["op1"]
    with pytest.raises(CheckError, match="observe=True"):
        check(graph, plan, {"x": NOISE}, RunResult({}, (0.0,), trace))
    with pytest.raises(CheckError, match="ONNX Runtime cannot run"):
        check(graph, plan, {"x": NOISE[None]}, right)


def test_a_graph_without_a_file_is_compared_with_its_own_operators(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Neg")
    plan, relu = plan_by_hand(graph), np.maximum(NOISE, 0)
    right, wrong = (RunResult({}, (0.0,), Trace("measured"), {"t0": relu, "t1": v}) for v in (-relu, relu))
    report = check(graph, plan, {"x": NOISE}, right)
    assert report.passed and report.oracle == "the reference executor"
    assert not check(graph, plan, {"x": NOISE}, wrong).passed


def test_an_operator_without_a_reference_is_named(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Telepathy")
    observed = RunResult({}, (0.0,), Trace("measured"), {"t0": NOISE})
    with pytest.raises(CheckError, match=r"reference executor cannot run 'chain'.*Telepathy"):
        check(graph, plan_by_hand(graph), {"x": NOISE}, observed)
