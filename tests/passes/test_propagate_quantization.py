"""Q and DQ around data movement: exact on random inputs, moved to where they cost less, left where that would change a value."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.passes import standard
from hetsched.passes.propagate_quantization import PropagateQuantization
from hetsched.passes.protocol import run_passes
from hetsched.passes.standard import SIMPLIFYING
from hetsched.reference import run

SHAPE = (1, 4, 6, 6)
CONSTANTS: dict[str, Any] = {
    "s": np.float32(0.05), "s2": np.float32(0.05), "t": np.float32(0.07), "z": np.uint8(7), "z2": np.uint8(7),
    "shape": np.array([1, 4, 36, 1]), "back": np.array(SHAPE), "pads": np.array([0, 0, 1, 0, 0, 0, 0, 2]),
    "fill": np.float32(0.0), "odd": np.float32(0.02),
    "from": np.array([1]), "to": np.array([5]), "axis": np.array([2]), "scales": np.array([1, 1, 2, 2], np.float32),
}  # fmt: skip


def constant(name: str) -> Tensor:
    array = np.asarray(CONSTANTS[name])
    dtype = {"f": DType.F32, "u": DType.U8, "i": DType.I64}[array.dtype.kind]
    return Tensor(name, array.shape, dtype, Role.WEIGHT, None, WeightRef(array=array))


class Net:
    """A graph that grows by one operator at a time; shapes come from running it."""

    def __init__(self) -> None:
        self.tensors = {"x": Tensor("x", SHAPE, DType.F32, Role.INPUT)} | {n: constant(n) for n in CONSTANTS}
        self.ops: list[Op] = []
        self.last = "x"

    def add(self, kind: str, *extra: str, data: tuple[str, ...] = (), **attrs: Any) -> Net:
        out = f"v{len(self.ops)}"
        op = Op(f"n{len(self.ops)}", kind, (*(data or (self.last,)), *extra), (out,), attrs, "", (f"n{len(self.ops)}",))
        self.ops.append(op)
        x = np.zeros(SHAPE, np.float32)
        self.tensors[out] = Tensor(out, (), DType.F32)
        graph = Graph("net", self.tensors, tuple(self.ops), ("x",), (out,))
        value = run(graph, {"x": x})[out]
        self.tensors[out] = Tensor(out, value.shape, DType.U8 if value.dtype == np.uint8 else DType.F32)
        self.last = out
        return self

    def graph(self, *outputs: str) -> Graph:
        return Graph("net", self.tensors, tuple(self.ops), ("x",), outputs or (self.last,))


def q(net: Net, scale: str = "s", zero: str = "z") -> Net:
    return net.add("QuantizeLinear", scale, zero)


def dq(net: Net, scale: str = "s", zero: str = "z") -> Net:
    return net.add("DequantizeLinear", scale, zero)


def propagated(graph: Graph) -> Graph:
    """After the pass, which must not change a bit; nor must the whole sequence."""
    after = PropagateQuantization()(graph)
    feeds = {"x": (2 * np.random.default_rng(1).standard_normal(SHAPE) + 3).astype(np.float32)}
    want = run(graph, feeds)
    for made in (after, standard(graph)):
        got = run(made, feeds)
        for name in graph.outputs:
            np.testing.assert_array_equal(got[name], want[name])
    assert after.inputs == graph.inputs and after.outputs == graph.outputs
    return after


def kinds(graph: Graph) -> list[str]:
    return [op.type for op in graph.ops]


@pytest.mark.parametrize("names", [("s", "z"), ("s2", "z2")])
def test_a_dequantization_and_the_same_quantization_cancel(names: tuple[str, str]) -> None:
    graph = propagated(dq(q(dq(q(Net().add("Exp"))), *names)).add("Neg").graph())
    assert kinds(graph) == ["Exp", "QuantizeLinear", "DequantizeLinear", "Neg"]


def test_another_scale_stays() -> None:
    graph = propagated(dq(q(dq(q(Net().add("Exp"))), "t")).add("Neg").graph())
    assert kinds(graph).count("QuantizeLinear") == 2


def test_an_output_of_the_graph_keeps_its_name() -> None:
    graph = propagated(q(dq(q(Net().add("Exp")))).graph())
    assert graph.outputs == ("v3",) and kinds(graph).count("QuantizeLinear") == 2


MOVES = {
    "Reshape": ("shape",), "Transpose": (), "Slice": ("from", "to", "axis"), "MaxPool": (), "Pad": ("pads", "fill"),
    "Resize": ("", "scales"), "DepthToSpace": (),
}  # fmt: skip
ATTRS: dict[str, dict[str, Any]] = {
    "MaxPool": {"kernel_shape": (2, 2), "pads": (1, 0, 0, 1)}, "Transpose": {"perm": (0, 2, 3, 1)}, "DepthToSpace": {"blocksize": 2},
    "Resize": {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
}  # fmt: skip


@pytest.mark.parametrize("kind", MOVES)
def test_movement_after_a_dequantization_moves_integers(kind: str) -> None:
    graph = propagated(dq(q(Net().add("Exp"))).add(kind, *MOVES[kind], **ATTRS.get(kind, {})).add("Neg").graph())
    assert kinds(graph) == ["Exp", "QuantizeLinear", kind, "DequantizeLinear", "Neg"]
    moved = graph.ops[2].outputs[0]
    assert graph.tensors[moved].dtype is DType.U8 and graph.tensors[moved].quantization is not None
    assert [op.type for op in standard(graph).ops] == ["Exp", kind, "Neg"]


@pytest.mark.parametrize("kind", MOVES)
def test_quantization_rises_to_what_computes_the_data(kind: str) -> None:
    graph = propagated(dq(q(Net().add("Exp").add(kind, *MOVES[kind], **ATTRS.get(kind, {})))).add("Neg").graph())
    assert kinds(graph) == ["Exp", "QuantizeLinear", kind, "DequantizeLinear", "Neg"]
    assert [op.type for op in standard(graph).ops] == ["Exp", kind, "Neg"]


def test_a_pad_with_a_value_between_two_integers_stays() -> None:
    graph = propagated(dq(q(Net().add("Exp"))).add("Pad", "pads", "odd").add("Neg").graph())
    assert kinds(graph) == ["Exp", "QuantizeLinear", "DequantizeLinear", "Pad", "Neg"]


def test_what_interpolates_stays() -> None:
    linear = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    graph = propagated(dq(q(Net().add("Exp"))).add("Resize", "", "scales", **linear).add("Neg").graph())
    assert kinds(graph) == ["Exp", "QuantizeLinear", "DequantizeLinear", "Resize", "Neg"]


def test_concat_needs_equal_parameters() -> None:
    for second, expected in (("s2", ["Concat", "DequantizeLinear", "Abs"]), ("t", ["DequantizeLinear", "Concat", "Abs"])):
        net = dq(q(Net().add("Exp")))
        a = net.last
        b = dq(q(net.add("Neg"), second), second).last
        graph = propagated(net.add("Concat", data=(a, b), axis=1).add("Abs").graph())
        assert kinds(graph)[-3:] == expected


@given(st.lists(st.sampled_from(["q", "dq", "Exp", "Relu", *MOVES]), min_size=2, max_size=12))
def test_any_chain_keeps_its_values(steps: list[str]) -> None:
    net, integer = Net(), False
    for step in steps:
        if net.tensors[net.last].shape != SHAPE and net.tensors[net.last].elements == 144:
            net.add("Reshape", "back")
        if net.tensors[net.last].shape != SHAPE:
            break
        if step == "q" and not integer:
            q(net)
            integer = True
        elif step == "dq" and integer:
            dq(net)
            integer = False
        elif step in MOVES and not integer:
            net.add(step, *MOVES[step], **ATTRS.get(step, {}))
        elif step in {"Exp", "Relu"} and not integer:
            net.add(step)
    if net.ops:
        graph = net.graph()
        after = propagated(graph)
        moved = Counter(op.type for op in after.ops)
        assert moved["QuantizeLinear"] <= Counter(op.type for op in graph.ops)["QuantizeLinear"]
        assert run_passes(after, SIMPLIFYING).outputs == graph.outputs
