"""Control flow, executed: loaded, unrolled or kept whole, run by kernels and ONNX Runtime in one plan, against ONNX Runtime alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hetsched.errors import ExecutionError
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime import supported
from hetsched.runtime.ort_support import ort_supported

Save = Callable[..., Path]
HandPlan = Callable[..., Plan]
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3)).astype(np.float32)


@pytest.fixture
def same(plan_by_hand: HandPlan) -> Callable[..., Graph]:
    """Load a file, run it here, compare every output with ONNX Runtime; returns the graph."""

    def check(path: Path, feeds: dict[str, Array], dims: dict[str, int] | None = None) -> Graph:
        graph = standard(load(path, dims))
        plan = plan_by_hand(graph)
        delegates = {op.name: "numba" if supported(op, graph, "f32") is None else "ort" for op in graph.ops}
        assert all(ort_supported(op, graph, "f32") is None for op in graph.ops if delegates[op.name] == "ort")
        plan = plan.model_copy(update={"placements": tuple(p.model_copy(update={"delegate": delegates[p.op]}) for p in plan.placements)})
        with compile_plan(graph, plan) as executable:
            got = executable.run({n: feeds[n] for n in graph.inputs}, repeat=2, observe=True)
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        for name, expected in zip(graph.outputs, session.run(list(graph.outputs), feeds), strict=True):
            np.testing.assert_allclose(got.outputs[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)
        names = {s.name for s in got.trace.spans if s.kind == "op"}
        assert names == ({op.name for op in graph.ops} if len(graph.ops) == 1 or "numba" in delegates.values() else {"segment 0"})
        return graph

    return check


def types(graph: Graph) -> list[str]:
    return [op.type for op in graph.ops]


BRANCHES = """
g (float[2,n] x, bool flag) => (float[a,b] z) <float[3,3] w = {1,2,3,4,5,6,7,8,9}> {
    h = Relu(x)
    y = If(flag) <
        then_branch = yes () => (float[a,b] p) { q = MatMul(h, w)  p = Exp(q) },
        else_branch = no () => (float[a,b] p) { p = Neg(x) }
    >
    z = Abs(y)
}"""


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_that_the_data_choose(save: Save, same: Callable[..., Graph], flag: bool) -> None:
    graph = same(save(BRANCHES), {"x": X, "flag": np.array(flag)}, {"n": 3})
    choice = graph.ops[1]
    assert types(graph) == ["Relu", "If", "Abs"] and [op.type for op in choice.body] == ["MatMul", "Exp"]
    assert choice.inputs == ("flag", "h", "x") and graph.tensors["y"].shape == (2, 3)  # w is small, so it is in the branch
    assert all(n in graph.tensors for op in choice.body for n in (*op.inputs, *op.outputs))


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
def test_branches_within_branches(save: Save, same: Callable[..., Graph], flags: tuple[bool, bool]) -> None:
    text = """
    g (float[2,3] x, bool a, bool b) => (float[2,3] y) <bool yes = {1}> {
        y = If(a) <
            then_branch = t () => (float[2,3] p) {
                known = If(yes) < then_branch = k () => (float[2,3] v) { v = Exp(x) }, else_branch = l () => (float[2,3] v) { v = Log(x) } >
                p = If(b) <
                    then_branch = m () => (float[2,3] s) { s = Neg(known) },
                    else_branch = n () => (float[2,3] s) { s = Identity(known) }
                >
            },
            else_branch = u () => (float[2,3] q) { q = Relu(x) }
        >
    }"""
    graph = same(save(text), {"x": X, "a": np.array(flags[0]), "b": np.array(flags[1])})
    assert types(graph) == ["If"] and [op.type for op in graph.ops[0].body] == ["Exp", "If"]
    assert graph.ops[0].inputs == ("a", "x", "b")


def test_big_weights_of_a_branch_stay_in_the_file(save: Save, same: Callable[..., Graph]) -> None:
    weight = numpy_helper.from_array(RNG.standard_normal((64, 64)).astype(np.float32), "big")
    value = [helper.make_tensor_value_info("p", TensorProto.FLOAT, [2, 64])]
    yes = helper.make_graph([helper.make_node("MatMul", ["x", "big"], ["p"])], "yes", [], value, [weight])
    no = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=weight), helper.make_node("Gemm", ["x", "c"], ["p"], transB=1)], "no", [], value
    )
    graph_proto = helper.make_graph(
        [helper.make_node("If", ["flag"], ["y"], "choice", then_branch=yes, else_branch=no)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64]), helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 64])],
    )  # fmt: skip
    path = save(helper.make_model(graph_proto, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    for flag in (True, False):
        graph = same(path, {"x": RNG.standard_normal((2, 64)).astype(np.float32), "flag": np.array(flag)})
    (choice,) = graph.ops
    weights = [graph.tensors[n] for n in choice.inputs if graph.tensors[n].is_constant]
    assert len(weights) == 2 and all(t.data is not None and t.data.path == path and t.data.array is None for t in weights)
    assert all(len(bytes(choice.attrs[k])) < 1024 for k in ("then_branch", "else_branch"))  # type: ignore[arg-type]


SMALL_BRANCH = """
g (float[1,n] x, bool flag) => (float[1,2] y) <float[5,2] five = {1,2,3,4,5,6,7,8,9,10}, float[3,2] three = {1,2,3,4,5,6}> {
    y = If(flag) <
        then_branch = yes () => (float[1,2] p) { p = MatMul(x, five) },
        else_branch = no () => (float[1,2] p) { p = MatMul(x, three) }
    >
}"""


def test_a_branch_for_other_dims_fails_only_if_it_runs(save: Save, same: Callable[..., Graph], plan_by_hand: HandPlan) -> None:
    path = save(SMALL_BRANCH)
    graph = standard(load(path, {"n": 3}))
    assert str(graph.ops[0].attrs["impossible"]).startswith("then_branch: node ")
    x = RNG.standard_normal((1, 3)).astype(np.float32)
    with compile_plan(graph, plan_by_hand(graph, delegate="ort")) as executable:
        good = executable.run({"x": x, "flag": np.array(False)})
        np.testing.assert_allclose(good.outputs["y"], x @ np.arange(1, 7, dtype=np.float32).reshape(3, 2), rtol=1e-6)
        with pytest.raises(ExecutionError, match=r"the then_branch of .* does not accept the dims that were bound"):
            executable.run({"x": x, "flag": np.array(True)})


COUNTED = """
g (float[2,3] x) => (float[a,b] y, float[t,c,d] all) <int64 trips = {%d}, bool yes = {1}> {
    y, all = Loop(trips, yes, x) <
        body = b (int64 i, bool k, float[2,3] v) => (bool k2, float[2,3] w, float[2,3] s) {
            k2 = Identity(k)  f = Cast<to = 1>(i)  s = Add(v, f)  w = Tanh(s)
        }
    >
}"""


@pytest.mark.parametrize("trips", [1, 3, 16, 17, 100])
def test_counted_loops(save: Save, same: Callable[..., Graph], trips: int) -> None:
    graph = same(save(COUNTED % trips), {"x": X})
    assert graph.tensors["all"].shape == (trips, 2, 3)
    assert ("Loop" in types(graph)) is (trips > 16)
    if trips > 16:
        (loop,) = graph.ops
        assert (loop.attrs["trips"], loop.attrs["trips_are"]) == (trips, "exact")
        assert [op.type for op in loop.body] == ["Cast", "Add", "Tanh"]


def test_an_unrolled_loop_ends_when_its_condition_does(save: Save, same: Callable[..., Graph]) -> None:
    text = """
    g (float[2] x) => (float[a] y) <int64 trips = {10}, bool yes = {1}, int64 two = {2}> {
        y = Loop(trips, yes, x) < body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) { k2 = Less(i, two)  w = Exp(v) } >
    }"""
    assert types(same(save(text), {"x": np.zeros(2, np.float32)})) == ["FusedElementwise"]
    assert len(load(save(text)).ops) == 3


WHILE = """
g (float[2] x, float limit, int64 n) => (float[a] y) <int64 most = {9223372036854775807}, int64 few = {5}> {
    m = ReduceMax<keepdims = 0>(x)
    go = Less(m, limit)
    y = Loop(%s, go, x) <
        body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) {
            w = Add(v, v)  top = ReduceMax<keepdims = 0>(w)  k2 = Less(top, limit)
        }
    >
}"""


@pytest.mark.parametrize(("count", "trips", "known"), [("most", 16, "assumed"), ("few", 5, "bound"), ("n", 16, "assumed")])
def test_loops_that_the_data_end(save: Save, same: Callable[..., Graph], count: str, trips: int, known: str) -> None:
    feeds = {"x": np.array([0.1, 0.3], np.float32), "limit": np.array(7, np.float32), "n": np.array(3, np.int64)}
    graph = same(save(WHILE % count), feeds)
    loop = next(op for op in graph.ops if op.type == "Loop")
    assert (loop.attrs["trips"], loop.attrs["trips_are"]) == (trips, known)
    assert loop.inputs[-1] == "limit" and loop.attrs["captures"] == ("limit",)


def scan(steps: int, *, reverse: bool = False, axis: int = 0) -> onnx.ModelProto:
    """A running sum of ``x`` along ``axis``, and what it was at every step."""
    value, shape = helper.make_tensor_value_info, [3]
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["s2"]), helper.make_node("Tanh", ["s2"], ["out"])], "body",
        [value("s", TensorProto.FLOAT, shape), value("e", TensorProto.FLOAT, shape)],
        [value("s2", TensorProto.FLOAT, shape), value("out", TensorProto.FLOAT, shape)],
    )  # fmt: skip
    full = [steps, 3] if axis == 0 else [3, steps]
    node = helper.make_node(
        "Scan", ["start", "x"], ["end", "rows"], "walk", body=body, num_scan_inputs=1, scan_input_axes=[axis], scan_output_axes=[axis],
        scan_input_directions=[int(reverse)], scan_output_directions=[int(reverse)],
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g", [value("start", TensorProto.FLOAT, shape), value("x", TensorProto.FLOAT, full)],
        [value("end", TensorProto.FLOAT, shape), value("rows", TensorProto.FLOAT, full)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("steps", [4, 40])
def test_scans(save: Save, same: Callable[..., Graph], steps: int, axis: int, reverse: bool) -> None:
    shape = (steps, 3) if axis == 0 else (3, steps)
    feeds = {"start": np.ones(3, np.float32), "x": RNG.standard_normal(shape).astype(np.float32)}
    graph = same(save(scan(steps, reverse=reverse, axis=axis)), feeds)
    assert ("Scan" in types(graph)) is (steps > 16)
    assert graph.tensors["rows"].shape == shape and graph.tensors["end"].shape == (3,)


def test_a_declared_length_that_is_wrong_is_an_error(save: Save, plan_by_hand: HandPlan) -> None:
    text = """
    g (float[2] x, int64 n) => (float[a] y, float[4,2] all) <bool yes = {1}> {
        y, all = Loop(n, yes, x) < body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w, float[2] s) {
            k2 = Identity(k)  w = Exp(v)  s = Neg(v) } >
    }"""
    graph = load(save(text))
    assert graph.tensors["all"].shape == (4, 2) and graph.ops[0].attrs["trips_are"] == "declared"
    feeds = {"x": np.zeros(2, np.float32)}
    with compile_plan(graph, plan_by_hand(graph, delegate="ort")) as executable:
        assert executable.run({**feeds, "n": np.array(4, np.int64)}).outputs["all"].shape == (4, 2)
        with pytest.raises(ExecutionError, match=r"returned 'all' as \[3, 2\] .* the plan is for \[4, 2\]"):
            executable.run({**feeds, "n": np.array(3, np.int64)})


STEPS = {"Tanh": "{o} = Tanh({i})", "Neg": "{o} = Neg({i})", "Add": "{o} = Add({i}, c)", "Mul": "{o} = Mul({i}, c)", "If": """
    {o} = If(flag) < then_branch = t{o} () => (float[2,3] p{o}) {{ p{o} = Neg({i}) }},
                     else_branch = e{o} () => (float[2,3] q{o}) {{ q{o} = Add({i}, c) }} >"""}  # fmt: skip


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4), trips=st.integers(1, 24), flag=st.booleans())
def test_any_counted_loop_is_what_onnx_runtime_says(
    save: Save, same: Callable[..., Graph], steps: list[str], trips: int, flag: bool
) -> None:
    lines = [STEPS[s].format(i=f"v{k}", o=f"v{k + 1}") for k, s in enumerate(steps)]
    body = "\n".join([*lines, f"w = Identity(v{len(steps)})", "k2 = Identity(k)"])
    text = f"""
    g (float[2,3] x, bool flag) => (float[a,b] y) <int64 trips = {{{trips}}}, bool yes = {{1}}, float c = {{0.75}}> {{
        y = Loop(trips, yes, x) < body = b (int64 i, bool k, float[2,3] v0) => (bool k2, float[2,3] w) {{ {body} }} >
    }}"""
    same(save(text), {"x": X, "flag": np.array(flag)})
