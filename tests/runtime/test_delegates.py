"""The numba and ORT delegates on one graph, and the registry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import PlanError, UnsupportedModelError
from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime import make_inputs, supported
from hetsched.runtime.delegates import delegate_targets, load_delegate

HandPlan = Callable[..., Plan]


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def diamond() -> Graph:
    """x -> Relu -> (MatMul | Sigmoid -> MatMul) -> Add, with a fused product that keeps its body."""

    def tensor(name: str, role: Role = Role.ACTIVATION, shape: tuple[int, ...] = (4, 6)) -> Tensor:
        return Tensor(name, shape, DType.F32, role)

    w, b = noise(6, 6, seed=1), noise(6, seed=2)
    tensors = {
        "x": tensor("x", Role.INPUT), "r": tensor("r"), "m": tensor("m"), "mb": tensor("mb"), "s": tensor("s"), "n": tensor("n"),
        "y": tensor("y", Role.OUTPUT), "w": Tensor("w", (6, 6), DType.F32, Role.WEIGHT, data=WeightRef(array=w)),
        "b": Tensor("b", (6,), DType.F32, Role.WEIGHT, data=WeightRef(array=b)),
    }  # fmt: skip
    body = (Op("mm", "MatMul", ("r", "w"), ("m",)), Op("bias", "Add", ("m", "b"), ("mb",)))
    ops = (
        Op("relu", "Relu", ("x",), ("r",)),
        Op("bias", "FusedMatMul", ("r", "w", "b"), ("mb",), body=body),
        Op("sigmoid", "Sigmoid", ("r",), ("s",)),
        Op("product", "MatMul", ("s", "w"), ("n",)),
        Op("join", "Add", ("mb", "n"), ("y",)),
    )
    return Graph("diamond", tensors, ops, ("x",), ("y",))


def expected(x: Any) -> Any:
    r = np.maximum(x, 0)
    w, b = noise(6, 6, seed=1), noise(6, seed=2)
    return r @ w + b + (1 / (1 + np.exp(-r))) @ w


@pytest.mark.parametrize("delegate", ["numba", "ort"])
def test_delegates_agree(diamond: Graph, plan_by_hand: HandPlan, alternate: Any, delegate: str) -> None:
    plan = plan_by_hand(diamond, alternate, delegate=delegate)
    with compile_plan(diamond, plan) as executable:
        result = executable.run({"x": noise(4, 6)}, observe=True)
    np.testing.assert_allclose(result.outputs["y"], expected(noise(4, 6)), atol=1e-5)
    assert sorted(result.observed) == ["mb", "n", "r", "s", "y"]


def test_one_plan_may_mix_delegates(diamond: Graph, plan_by_hand: HandPlan, alternate: Any) -> None:
    plan = plan_by_hand(diamond, alternate)
    mixed = tuple(p.model_copy(update={"delegate": "ort" if i % 2 else "numba"}) for i, p in enumerate(plan.placements))
    with compile_plan(diamond, plan.model_copy(update={"placements": mixed})) as executable:
        result = executable.run({"x": noise(4, 6)}, repeat=3)
    np.testing.assert_allclose(result.outputs["y"], expected(noise(4, 6)), atol=1e-5)


def test_an_op_without_a_kernel_is_refused_by_name(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Einsum")
    assert supported(graph.ops[1], graph, "f32") == "there is no CPU kernel for Einsum"
    with pytest.raises(UnsupportedModelError, match=r"'/user/node_1'.*no CPU kernel for Einsum"):
        compile_plan(graph, plan_by_hand(graph))


@pytest.mark.parametrize(("precision", "reason"), [("w4a16", "do not compute in w4a16"), ("f16", "plan it as f32"), ("w8a8", "is f32")])
def test_other_precisions_are_refused(chain: Any, plan_by_hand: HandPlan, precision: str, reason: str) -> None:
    graph = chain("Relu")
    with pytest.raises(UnsupportedModelError, match=reason):
        compile_plan(graph, plan_by_hand(graph, precision=lambda i: precision))


def test_ort_refuses_integers_that_the_model_does_not_have(diamond: Graph, plan_by_hand: HandPlan) -> None:
    plan = plan_by_hand(diamond, precision=lambda i: "w8a8", delegate="ort")
    with pytest.raises(UnsupportedModelError, match="no Q/DQ"):
        compile_plan(diamond, plan)


def test_the_registry_is_sorted_and_names_what_it_knows() -> None:
    assert list(delegate_targets()) == sorted(delegate_targets())
    for name in ("null", "numba", "ort"):
        delegate = load_delegate(name)
        assert delegate.name == name and delegate.probe().available and delegate.probe().version
    with pytest.raises(PlanError, match=r"'tpu'.*null, numba, openvino, ort, qnn"):
        load_delegate("tpu")


def test_importing_the_runtime_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import sys, hetsched.runtime; print([m for m in ('numba', 'onnxruntime', 'onnx', 'hetsched_kernels') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert out.stdout.strip() == "[]"


def test_inputs_are_seeded_and_sensible() -> None:
    def tensor(name: str, dtype: DType) -> Tensor:
        return Tensor(name, (2, 5), dtype, Role.INPUT)

    kinds = {
        "image": DType.F32,
        "input_ids": DType.I64,
        "attention_mask": DType.I64,
        "token_type_ids": DType.I64,
        "bytes": DType.I32,
        "u": DType.U8,
    }
    graph = Graph("g", {k: tensor(k, v) for k, v in kinds.items()}, (), tuple(kinds), ("image",))
    a, b, c = make_inputs(graph, 0), make_inputs(graph, 0), make_inputs(graph, 1)
    assert all((a[k] == b[k]).all() and a[k].dtype == v.numpy for k, v in kinds.items())
    assert (a["image"] != c["image"]).any()
    assert (a["attention_mask"][..., :4] == 1).all() and (a["attention_mask"][..., 4] == 0).all()  # padding at the end
    assert (a["token_type_ids"] == 0).all()
    for name, high in (("input_ids", 1000), ("bytes", 256), ("u", 256)):
        assert a[name].min() >= 0 and a[name].max() < high and len(np.unique(a[name])) > 3
