"""Every op that the planner lets write over an input computes the same there as into bytes of its own, and so does every view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.lower import LOWERINGS
from hetsched.sharing import ELEMENTWISE, ROWWISE, VIEWS, overwritable, view_of

SHAPE = (3, 5, 7, 11)
BINARY = ("Add", "Div", "Max", "Min", "Mod", "Mul", "PRelu", "Pow", "Sub")
NORMS = {"BatchNormalization": 4, "InstanceNormalization": 2, "LayerNormalization": 2}
UNARY = sorted((ELEMENTWISE | ROWWISE) - {*BINARY, *NORMS, "Cast", "FusedElementwise"})


def constant(name: str, values: Any) -> Tensor:
    array = np.asarray(values, np.float32)
    return Tensor(name, array.shape, DType.F32, Role.WEIGHT, data=WeightRef(array=array))


def one_op(op: Op, constants: Sequence[Tensor] = (), out: DType = DType.F32) -> Graph:
    """A graph of ``op`` with inputs ``x`` and, where it reads one, ``z``, both of ``SHAPE``."""
    inputs = tuple(n for n in ("x", "z") if n in op.inputs)
    tensors = {n: Tensor(n, SHAPE, DType.F32, Role.INPUT) for n in inputs} | {t.name: t for t in constants}
    return Graph(op.type, tensors | {"y": Tensor("y", SHAPE, out, Role.OUTPUT)}, (op,), inputs, ("y",))


def outputs(graph: Graph, plan: Plan, onto: str | None) -> Any:
    buffers = {b.tensor: b for b in plan.buffers}
    if onto:
        buffers["y"] = buffers["y"].model_copy(update={"offset": buffers[onto].offset})
    r = np.random.default_rng(0)
    feeds = {n: r.uniform(0.5, 3.0, SHAPE).astype(np.float32) for n in graph.inputs}
    with compile_plan(graph, plan.model_copy(update={"buffers": tuple(buffers.values())})) as executable:
        return executable.run(feeds, repeat=2, trace=False).outputs["y"]


def same_in_place(graph: Graph, plan: Plan, onto: str) -> None:
    apart, over = outputs(graph, plan, None), outputs(graph, plan, onto)
    assert np.ptp(apart.astype(np.float64)) > 0 and np.isfinite(apart.astype(np.float64)).all()
    np.testing.assert_array_equal(apart, over)


@pytest.mark.parametrize("kind", UNARY)
def test_functions_and_softmax(plan_by_hand: Callable[..., Plan], kind: str) -> None:
    for axis in (1, -1) if kind.endswith("Softmax") else (None,):
        attrs = {"min": 1.0, "max": 2.0} if kind == "Clip" else {} if axis is None else {"axis": axis}
        graph = one_op(Op("op", kind, ("x",), ("y",), attrs))
        if kind in ("Sign",):
            continue  # one value for every positive input: it would prove nothing
        assert overwritable(graph, graph.ops[0], True) == ("x",)
        same_in_place(graph, plan_by_hand(graph), "x")


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("onto", ["x", "z"])
def test_two_operands_over_either(plan_by_hand: Callable[..., Plan], kind: str, onto: str) -> None:
    graph = one_op(Op("op", kind, ("x", "z"), ("y",), {"fmod": 1} if kind == "Mod" else {}))
    assert overwritable(graph, graph.ops[0], False) == ("x", "z")
    same_in_place(graph, plan_by_hand(graph), onto)


@pytest.mark.parametrize("kind", BINARY)
def test_an_operand_with_itself_and_with_a_repeated_one(plan_by_hand: Callable[..., Plan], kind: str) -> None:
    attrs = {"fmod": 1} if kind == "Mod" else {}
    row = constant("row", np.linspace(0.4, 2.0, SHAPE[-1]))
    column = constant("column", np.linspace(0.4, 2.0, SHAPE[1]).reshape(1, -1, 1, 1))
    for other in (row, column):
        same_in_place(graph := one_op(Op("op", kind, ("x", other.name), ("y",), attrs), (other,)), plan_by_hand(graph), "x")
    if kind in ("Add", "Mul", "Pow", "PRelu", "Max", "Min"):
        same_in_place(graph := one_op(Op("op", kind, ("x", "x"), ("y",), attrs)), plan_by_hand(graph), "x")


@pytest.mark.parametrize("kind", sorted(NORMS))
def test_normalisations(plan_by_hand: Callable[..., Plan], kind: str) -> None:
    size = SHAPE[-1] if kind == "LayerNormalization" else SHAPE[1]
    constants = [constant(f"c{k}", np.linspace(0.5, 1.5, size)) for k in range(NORMS[kind])]
    graph = one_op(Op("op", kind, ("x", *(c.name for c in constants)), ("y",)), constants)
    assert overwritable(graph, graph.ops[0], True) == ("x",) and not overwritable(graph, graph.ops[0], False)
    same_in_place(graph, plan_by_hand(graph), "x")


@pytest.mark.parametrize("onto", ["x", "z"])
def test_a_fused_chain(plan_by_hand: Callable[..., Plan], onto: str) -> None:
    body = (
        Op("a", "Sigmoid", ("x",), ("s",)),
        Op("b", "Mul", ("s", "z"), ("m",)),
        Op("c", "Add", ("m", "x"), ("n",)),
        Op("d", "Mul", ("n", "row"), ("y",)),
    )
    graph = one_op(Op("op", "FusedElementwise", ("x", "z", "row"), ("y",), body=body), [constant("row", np.linspace(0.4, 2.0, SHAPE[-1]))])
    assert overwritable(graph, graph.ops[0], True) == ("x", "z")
    same_in_place(graph, plan_by_hand(graph), onto)


def test_a_cast_between_types_of_one_width(plan_by_hand: Callable[..., Plan]) -> None:
    graph = one_op(Op("op", "Cast", ("x",), ("y",), {"to": 6}), out=DType.I32)
    assert overwritable(graph, graph.ops[0], True) == ("x",)
    same_in_place(graph, plan_by_hand(graph), "x")


def test_a_fused_softmax_with_a_mask(plan_by_hand: Callable[..., Plan]) -> None:
    for axis in (1, -1):
        graph = one_op(Op("op", "FusedSoftmax", ("x", "z"), ("y",), {"axis": axis, "scale": 0.5}))
        assert overwritable(graph, graph.ops[0], True) == ("x",)
        same_in_place(graph, plan_by_hand(graph), "x")


@pytest.mark.parametrize("kind", sorted(VIEWS))
def test_views(plan_by_hand: Callable[..., Plan], kind: str) -> None:
    graph = one_op(Op("op", kind, ("x",), ("y",)))
    assert view_of(graph, graph.ops[0]) == "x"
    same_in_place(graph, plan_by_hand(graph), "x")


def test_every_op_that_may_write_over_an_input_is_tried_here_or_has_no_kernel() -> None:
    assert not {*UNARY, *BINARY, *NORMS, *VIEWS} - {*LOWERINGS}


def test_what_may_not_be_written_over() -> None:
    three = Op("op", "Max", ("x", "z", "x"), ("y",))  # x would be read after the first step has written over it
    other_domain = Op("op", "Relu", ("x",), ("y",), domain="my.ops")
    mask = Op("op", "FusedSoftmax", ("x", "x"), ("y",))
    for op in (three, other_domain, mask, Op("op", "Transpose", ("x",), ("y",)), Op("op", "CumSum", ("x",), ("y",))):
        assert overwritable(one_op(op), op, True) == ()
    assert overwritable(one_op(Op("op", "Cast", ("x",), ("y",)), out=DType.F16), Op("op", "Cast", ("x",), ("y",)), True) == ()
    narrow = one_op(Op("op", "Reshape", ("x",), ("y",)), out=DType.F16)
    assert view_of(narrow, narrow.ops[0]) == ""


def test_what_is_observed_is_what_the_op_wrote_although_the_next_writes_over_it(plan_by_hand: Callable[..., Plan]) -> None:
    names = ("x", "a", "b", "y")
    roles = {"x": Role.INPUT, "y": Role.OUTPUT}
    tensors = {n: Tensor(n, SHAPE, DType.F32, roles.get(n, Role.ACTIVATION)) for n in names}
    ops = tuple(Op(k, k, (names[i],), (names[i + 1],)) for i, k in enumerate(("Neg", "Exp", "Sqrt")))
    graph = Graph("chain", tensors, ops, ("x",), ("y",))
    x = np.random.default_rng(0).uniform(0.5, 3.0, SHAPE).astype(np.float32)
    for delegate in ("numba", "ort"):
        plan = plan_by_hand(graph, delegate=delegate)
        plan = plan.model_copy(update={"buffers": tuple(b.model_copy(update={"offset": 0}) for b in plan.buffers)})
        with compile_plan(graph, plan) as executable:
            seen = executable.run({"x": x}, observe=True).observed
        for name, value in (("a", -x), ("b", np.exp(-x)), ("y", np.sqrt(np.exp(-x)))):
            np.testing.assert_allclose(seen[name], value, rtol=1e-5, err_msg=f"{delegate} {name}")
