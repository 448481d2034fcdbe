"""Control flow in ONNX files: what is refused and why, and that no damage or depth does harm (what runs: tests/runtime)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hetsched.errors import HetschedError, ModelError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import Op
from hetsched.passes import standard, unfuse

Save = Callable[..., Path]
FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def info(name: str, kind: int, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def nested(depth: int) -> onnx.ModelProto:
    """``depth`` If operators, each the only node of the branches of the one around it."""
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["r"])], "leaf", [], [info("r", FLOAT, 2)])
    for level in range(depth):
        node = helper.make_node("If", ["c"], [f"y{level}"], f"if{level}", then_branch=branch, else_branch=branch)
        if level + 1 < depth:
            small = helper.make_graph([helper.make_node("Relu", ["x"], ["r"])], "leaf", [], [info("r", FLOAT, 2)])
            node = helper.make_node("If", ["c"], [f"y{level}"], f"if{level}", then_branch=branch, else_branch=small)
            branch = helper.make_graph([node], f"level{level}", [], [info(f"y{level}", FLOAT, 2)])
    return model([node], [info("x", FLOAT, 2), info("c", BOOL)], [info(f"y{depth - 1}", FLOAT, 2)])


LOOP = "y = Loop(n, c, x) < body = b (int64 i, bool k, float[2] v) => (%s) { %s } >"
BAD: list[tuple[str, str, str]] = [
    ("capture", "y = If(c) < then_branch = t () => (float[2] p) { p = Relu(x) }, else_branch = e () => (float[2] q) { q = Relu(gone) } >",
     "node 'If_0' .*reads 'gone', which nothing in the model writes"),
    ("result", "y = If(c) < then_branch = t () => (float[2] p) { z = Relu(x) }, else_branch = e () => (float[2] q) { q = Relu(x) } >",
     "'p'"),
    ("two results", "y = If(c) < then_branch = t () => (float[2] p, float[2] r) { p = Relu(x)  r = Exp(x) }, "
     "else_branch = e () => (float[2] q) { q = Relu(x) } >", "'If_0' has no then_branch that fits"),
    ("one branch", "y = If(c) < then_branch = t () => (float[2] p) { p = Relu(x) } >", "'If_0' has no else_branch"),
    ("condition", "y = If(x) < then_branch = t () => (float[2] p) { p = Relu(x) }, else_branch = e () => (float[2] q) { q = Exp(x) } >",
     "'If_0' has the condition 'x', which is not one bool"),
    ("types", "y = If(c) < then_branch = t () => (float[2] p) { p = Relu(x) }, else_branch = e () => (int64[2] q) { q = Cast<to=7>(x) } >",
     "the branches of the If node 'If_0' return f32 and i64"),
    ("shapes", "y = If(c) < then_branch = t () => (float[2] p) { p = Relu(x) }, "
     "else_branch = e () => (float[4] q) { q = Concat<axis=0>(x, x) } >",
     r"the branches of node 'If_0' \(If\) return 'y' as \[2\] and as \[4\]"),
    ("data in a branch", "y = If(c) < then_branch = t () => (float[2] p) { p = Relu(x) }, "
     "else_branch = e () => (float[2] q) { i = NonZero(x)  q = Cast<to=1>(i) } >", r"NonZero.*depends on the data"),
    ("for ever", "y = Loop(, yes, x) < body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) { k2 = Identity(k)  w = Relu(v) } >",
     r"'Loop_0' \(Loop\) runs its body for ever"),
    ("huge", "y = Loop(many, yes, x) < body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) { k2 = Identity(k)  w = Relu(v) } >",
     r"'Loop_0' \(Loop\) runs its body 9000000000 times"),
    ("growing", LOOP % ("bool k2, float[4] w", "k2 = Identity(k)  w = Concat<axis=0>(v, v)"),
     r"'Loop_0' \(Loop\) is given .*f32\[2\] .*f32\[4\]"),
    ("collected", "y, all = Loop(n, c, x) < body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w, float[2] s) "
     "{ k2 = Identity(k)  w = Relu(v)  s = Exp(v) } >", r"the length of 'all', collected by node 'Loop_0' \(Loop\), depends on the data"),
    ("carried", LOOP % ("bool k2", "k2 = Identity(k)"), "'Loop_0' has no body that fits"),
    ("sequence", "s = SequenceMap(x) < body = b (float[2] v) => (float[2] w) { w = Relu(v) } >", "'SequenceMap_0' is a SequenceMap"),
    ("scan", "y = Scan(x) < num_scan_inputs = 3, body = b (float v) => (float w) { w = Relu(v) } >", "'Scan_0'"),
    ("scan axis", "y = Scan(x) < num_scan_inputs = 1, scan_input_axes = [4], body = b (float v) => (float w) { w = Relu(v) } >",
     "axis 4 of 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_control_flow(save: Save, line: str, message: str) -> None:
    text = f"g (float[2] x, int64 n, bool c) => (float[d] y) <bool yes = {{1}}, int64 many = {{9000000000}}> {{ {line} }}"
    with pytest.raises(ModelError, match=message):
        load(save(text))


def test_deep_nesting_is_refused(save: Save) -> None:
    with pytest.raises(ModelError, match=r"if0' \(If\) is nested 13 levels deep .*at most 12 are read"):
        load(save(nested(13)))


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    length, out = len(payload), bytearray([number << 3 | 2])
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*out, length]) + payload


@pytest.mark.parametrize(("depth", "padding"), [(30, 0), (30, 5000), (60, 0), (250, 4200), (2000, 0)])
def test_nesting_beyond_what_protobuf_reads(save: Save, depth: int, padding: int) -> None:
    """Subgraphs written byte by byte, large enough to be walked or not."""
    graph = field(1, field(1, b"x") + field(2, b"y") + field(4, b"Relu"))
    for _ in range(depth):
        attribute = field(5, field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05")
        graph = field(1, field(1, b"c") + field(2, b"y") + field(4, b"If") + attribute) + field(10, b"." * padding)
    path = save(nested(1))
    path.write_bytes(b"\x08\x08" + field(7, graph) + field(8, b"\x10\x12"))
    with pytest.raises(ModelError):
        load(path)


def test_twelve_levels_load(save: Save) -> None:
    graph = load(save(nested(12)))
    op: Op | None = graph.ops[0]
    for _ in range(12):
        assert op is not None and op.type == "If"
        op = next((inner for inner in op.body if inner.type == "If"), None)
    assert op is None


def test_loops_within_loops_do_not_unfold_without_end(save: Save) -> None:
    """Six loops of sixteen trips within each other: sixteen million trips, kept as loops."""
    line = "w5 = Relu(v5)"
    for k in range(5, -1, -1):
        body = f"b{k} (int64 i{k}, bool k{k}, float[2] v{k}) => (bool o{k}, float[2] w{k}) {{ o{k} = Identity(k{k})  {line} }}"
        line = f"{f'w{k - 1}' if k else 'y'} = Loop(trips, yes, {f'v{k - 1}' if k else 'x'}) < body = {body} >"
    graph = load(save(f"g (float[2] x) => (float[d] y) <int64 trips = {{16}}, bool yes = {{1}}> {{ {line} }}"))
    assert len(graph.ops) <= 512 and any(op.type == "Loop" for op in graph.ops)


def test_passes_leave_control_flow_whole(save: Save) -> None:
    text = """
    g (float[2,3] x, bool c) => (uint8[d,e] y) <float s = {0.1}, uint8 z = {128}> {
        q = QuantizeLinear(x, s, z)
        f = DequantizeLinear(q, s, z)
        h = If(c) < then_branch = t () => (float[2,3] p) { p = Relu(f) }, else_branch = e () => (float[2,3] r) { r = Neg(f) } >
        y = QuantizeLinear(h, s, z)
    }"""
    graph = load(save(text))
    fused = standard(graph)
    choice = next(op for op in fused.ops if op.type == "If")
    assert choice.inputs == ("c", "f") and [op.type for op in choice.body] == ["Relu"]
    assert {op.name for op in unfuse(fused).ops} == {op.name for op in graph.ops}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_subgraphs_are_our_own_error(save: Save, data: st.DataObject) -> None:
    """Bytes of a file with an If in a Loop, changed at random."""
    weight = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    yes = helper.make_graph([helper.make_node("MatMul", ["v", "w"], ["p"])], "t", [], [info("p", FLOAT, 1, 2)], [weight])
    no = helper.make_graph([helper.make_node("Neg", ["v"], ["p"])], "e", [], [info("p", FLOAT, 1, 2)])
    body = helper.make_graph(
        [helper.make_node("If", ["k"], ["w2"], "choice", then_branch=yes, else_branch=no), helper.make_node("Not", ["k"], ["k2"])], "b",
        [info("i", INT64), info("k", BOOL), info("v", FLOAT, 1, 2)], [info("k2", BOOL), info("w2", FLOAT, 1, 2)],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], "loop", body=body)
    content = bytearray(model([loop], [info("x", FLOAT, 1, 2), info("n", INT64)], [info("y", FLOAT, 1, 2)]).SerializeToString())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = save(model([loop], [], []), name="damaged")
    path.write_bytes(bytes(content))
    try:
        standard(load(path))
    except HetschedError as error:
        assert str(error)


def test_sequences_are_named_before_dims_are_asked_for(save: Save) -> None:
    text = (
        "g (float[a,n] x) => (float[b,c] y) { s = SequenceMap(x) < body = b (float[n] v) => (float[n] w) { w = Relu(v) } >  y = Relu(x) }"
    )
    with pytest.raises(UnsupportedModelError, match="SequenceMap"):
        load(save(text))
