"""Loading: dims, shapes, folding, names, clean-up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.errors import ModelError, OptionError
from hetsched.frontends import load
from hetsched.graph import Graph, Role
from hetsched.reference import run

Save = Callable[..., Path]
RESHAPED = """
g (float[batch,length,8] x) => (float[a,b] y) <int64[1] zero = {0}, int64[1] minus = {-1}, int64 i1 = {1}> {
    s = Shape(x)
    n = Gather(s, i1)
    axes = Identity(zero)
    n1 = Unsqueeze(n, axes)
    target = Concat <axis = 0> (n1, minus)
    r = Reshape(x, target)
    y = Relu(r)
}"""


def types(graph: Graph) -> list[str]:
    return [op.type for op in graph.ops]


def test_shape_chain_is_folded_after_binding(save: Save) -> None:
    graph = load(save(RESHAPED), {"length": 5})
    assert types(graph) == ["Reshape", "Relu"]
    assert graph.tensors["y"].shape == (5, 8)
    assert graph.tensors["target"].numpy().tolist() == [5, -1]
    assert dict(graph.dims) == {"batch": 1, "length": 5}
    assert graph.tensors["y"].role is Role.OUTPUT and graph.tensors["x"].role is Role.INPUT
    assert set(graph.tensors) == {"x", "target", "r", "y"}


def test_missing_dim_says_what_to_pass(save: Save) -> None:
    with pytest.raises(ModelError, match=r"--dim length=N \(axis 1 of input 'x'\)"):
        load(save(RESHAPED))


@pytest.mark.parametrize("dims", [{"length": 4, "x.0": 3}, {"x.1": 4, "batch": 3}])
def test_dims_by_name_or_by_axis(save: Save, dims: dict[str, int]) -> None:
    graph = load(save(RESHAPED), dims)
    assert graph.tensors["x"].shape == (3, 4, 8)
    assert graph.tensors["y"].shape == (4, 24)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"lenght": 4}, "did you mean 'length'"),
        ({"length": 0}, "cannot be 0"),
        ({"length": -3}, "cannot be -3"),
        ({"length": 4, "x.1": 5}, "both as 4 and as 5"),
        ({"length": 4, "x.2": 9}, "is 8 in the file and cannot be 9"),
        ({"length": 4, "z.0": 9}, "its free dims are batch, length"),
    ],
)
def test_bad_dims(save: Save, dims: dict[str, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        load(save(RESHAPED), dims)


def test_unnamed_dims_and_shared_batch(save: Save) -> None:
    path = save("g (float[?,4] x, float[N,?,4] z) => (float[a,b,c] y) { y = Add(x, z) }")
    graph = load(path, {"z.1": 6})
    assert graph.tensors["x"].shape == (1, 4) and graph.tensors["z"].shape == (1, 6, 4)
    assert dict(graph.dims) == {"x.0": 1, "N": 1, "z.1": 6}


def test_a_dim_of_axis_0_binds_every_use_of_its_name(save: Save) -> None:
    graph = load(save("g (float[s,4] x, float[2,s] z) => (float[a,b] y, float[c,d] w) { y = Relu(x)  w = Relu(z) }"))
    assert graph.tensors["z"].shape == (2, 1)


def test_names_are_unique_and_stable(save: Save) -> None:
    import onnx

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { a = Relu(x)  b = Relu(a)  c = Exp(b)  y = Exp(c) }'
    )
    for node in model.graph.node:
        node.name = {"a": "same", "b": "same", "c": ""}.get(node.output[0], "same_2")
    graph = load(save(model))
    assert [op.name for op in graph.ops] == ["same", "same_3", "Exp_2", "same_2"]
    assert [op.origin for op in graph.ops] == [("same",), ("same_3",), ("Exp_2",), ("same_2",)]


def test_nodes_out_of_order_are_sorted(save: Save) -> None:
    import onnx

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { a = Relu(x)  b = Exp(a)  y = Neg(b) }'
    )
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    assert types(load(save(model))) == ["Relu", "Exp", "Neg"]


def test_no_ops_vanish_and_output_names_stay(save: Save) -> None:
    graph = load(
        save("""
        g (float[2,3] x) => (float[2,3] y, float[2,3] z) <int64[2] same = {2,3}> {
            a = Identity(x)
            b = Cast <to = 1> (a)
            c = Relu(b)
            d = Reshape(c, same)
            e = Transpose <perm = [0, 1]> (d)
            f = Dropout(e)
            y = Identity(f)
            z = Identity(x)
            dead = Exp(c)
        }""")
    )
    assert [(op.type, op.inputs, op.outputs) for op in graph.ops] == [("Relu", ("x",), ("y",)), ("Identity", ("x",), ("z",))]


def test_reversing_slice_is_no_no_op(save: Save) -> None:
    graph = load(
        save("""
        g (float[3] x) => (float[3] y) <int64[1] a = {-1}, int64[1] b = {-9}, int64[1] axes = {0}, int64[1] step = {-1}> {
            y = Slice(x, a, b, axes, step)
        }""")
    )
    assert types(graph) == ["Slice"]
    assert run(graph, {"x": np.arange(3, dtype=np.float32)})["y"].tolist() == [2, 1, 0]


def test_if_with_a_known_condition_is_inlined(save: Save) -> None:
    text = """
    g (float[batch,n] x) => (float[a,b] y) <int64 two = {2}, int64 at = {1}> {
        s = Shape(x)
        n = Gather(s, at)
        cond = Equal(n, two)
        y = If(cond) <
            then_branch = yes () => (float[a,b] p) { q = Relu(x)  p = Exp(q) },
            else_branch = no () => (float[a,b] p) { p = Neg(x) }
        >
    }"""
    yes, no = load(save(text), {"n": 2}), load(save(text), {"n": 3})
    assert types(yes) == ["Relu", "Exp"] and types(no) == ["Neg"]
    assert yes.outputs == no.outputs == ("y",)


def test_an_if_on_data_is_one_operator(save: Save) -> None:
    text = """
    g (float[batch,n] x, bool flag) => (float[a,b] y) {
        cond = Not(flag)
        y = If(cond) < then_branch = yes () => (float[a,b] p) { p = Relu(x) }, else_branch = no () => (float[a,b] q) { q = Neg(x) } >
    }"""
    graph = load(save(text), {"n": 3})
    assert types(graph) == ["Not", "If"] and graph.ops[1].inputs == ("cond", "x") and graph.tensors["y"].shape == (1, 3)


def test_a_whole_number_input_may_be_bound_to_a_value(save: Save) -> None:
    text = """
    g (float[batch,n] x, int64 rate) => (float[a,b] y) <int64 fast = {16000}> {
        cond = Equal(rate, fast)
        y = If(cond) < then_branch = yes () => (float[a,b] p) { p = Relu(x) }, else_branch = no () => (float[a,b] q) { q = Neg(x) } >
    }"""
    fast, slow = load(save(text), {"n": 3, "rate": 16000}), load(save(text), {"n": 3, "rate": 8000})
    assert types(fast) == ["Relu"] and types(slow) == ["Neg"] and fast.inputs == ("x",)
    assert dict(fast.dims) == {"batch": 1, "n": 3, "rate": 16000}
    with pytest.raises(OptionError, match="'x'"):
        load(save(text), {"n": 3, "x": 1})


def test_local_functions_are_inlined(save: Save) -> None:
    import onnx

    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float[2,3] x) => (float[2,3] y) { y = local.twice(x) }
        <domain: "local", opset_import: ["" : 18]>
        twice (a) => (b) { b = Add(a, a) }""")
    graph = load(save(model))
    assert types(graph) == ["Add"] and graph.tensors["y"].shape == (2, 3)


def test_big_constants_from_nothing_take_no_memory(save: Save) -> None:
    graph = load(
        save("""
        g (float[1,4096] x) => (float[1,4096] y) <int64[2] shape = {4096,4096}> {
            w = ConstantOfShape(shape)
            y = MatMul(x, w)
        }""")
    )
    w = graph.tensors["w"].numpy()
    assert types(graph) == ["MatMul"] and w.shape == (4096, 4096) and w.strides == (0, 0)


def test_initializers_that_are_inputs_are_constants(save: Save) -> None:
    import onnx

    model = onnx.parser.parse_model(
        '<ir_version: 3, opset_import: ["" : 9]> g (float[1,2] x, float[2] w) => (float[1,2] y) <float[2] w = {1,2}> { y = Add(x, w) }'
    )
    if not any(i.name == "w" for i in model.graph.input):
        model.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [2]))
    graph = load(save(model))
    assert graph.inputs == ("x",) and graph.tensors["w"].is_constant


def test_quantized_operators_become_qdq(save: Save) -> None:
    graph = load(
        save(
            """
            g (uint8[1,2,4,4] x) => (uint8[1,3,4,4] y)
            <float s = {0.5}, uint8 z = {3}, int8[3,2,1,1] w = {1,2,3,4,5,6}, float[3] ws = {0.1,0.2,0.3}, int8[3] wz = {0,0,0},
             float t = {0.25}, uint8 u = {7}, int32[3] b = {10,20,30}> {
                y = QLinearConv(x, s, z, w, ws, wz, t, u, b)
            }"""
        )
    )
    assert types(graph) == ["DequantizeLinear", "DequantizeLinear", "DequantizeLinear", "Conv", "QuantizeLinear"]
    x = np.random.default_rng(0).integers(0, 256, (1, 2, 4, 4)).astype(np.uint8)
    import onnxruntime as ort

    assert graph.source is not None
    expected = ort.InferenceSession(str(graph.source), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    assert np.abs(run(graph, {"x": x})["y"].astype(int) - expected.astype(int)).max() <= 1
