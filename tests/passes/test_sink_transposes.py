"""Transposes: those of NHWC/NCHW chains cancel, no graph gets more of them, and values never change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.passes import standard
from hetsched.passes.permuted_ops import compose, inverse, is_trivial, perm_of
from hetsched.passes.sink_transposes import SinkTransposes
from hetsched.reference import run

NCHW, NHWC = (0, 2, 3, 1), (0, 3, 1, 2)  # from NCHW to NHWC, and back
SHAPE = (1, 4, 3, 5)
RNG = np.random.default_rng(5)
CONSTANTS: dict[str, Any] = {
    "scalar": np.float32(0.5), "channel": RNG.standard_normal((4, 1, 1)).astype(np.float32),
    "full": RNG.standard_normal(SHAPE).astype(np.float32), "last": RNG.standard_normal(5).astype(np.float32),
    "w": RNG.standard_normal((4, 4, 1, 1)).astype(np.float32), "axis1": np.array([1]), "axes23": np.array([2, 3]),
    "pads": np.array([0, 1, 0, 0, 0, 0, 2, 0]), "from": np.array([1]), "to": np.array([9]), "flat": np.array([4, -1]),
    "zero": np.float32(0), "six": np.float32(6),
}  # fmt: skip


class Net:
    """A graph that grows by one operator at a time; shapes come from running it."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.inputs = dict(inputs or {"x": SHAPE})
        self.tensors = {n: Tensor(n, s, DType.F32, Role.INPUT) for n, s in self.inputs.items()}
        for name, value in CONSTANTS.items():
            array = np.asarray(value)
            dtype = DType.F32 if array.dtype == np.float32 else DType.I64
            self.tensors[name] = Tensor(name, array.shape, dtype, Role.WEIGHT, None, WeightRef(array=array))
        self.ops: list[Op] = []
        self.last = next(iter(self.inputs))

    def add(self, kind: str, *inputs: str, **attrs: Any) -> str:
        out, name = f"v{len(self.ops)}", f"n{len(self.ops)}"
        op = Op(name, kind, inputs or (self.last,), (out,), attrs, "", (name,))
        self.tensors[out] = Tensor(out, (), DType.F32)
        graph = Graph("net", self.tensors, (*self.ops, op), tuple(self.inputs), (out,))
        value = run(graph, {n: np.zeros(s, np.float32) for n, s in self.inputs.items()})[out]
        self.ops.append(op)
        self.tensors[out] = Tensor(out, value.shape, DType.F32)
        self.last = out
        return out

    def graph(self, *outputs: str) -> Graph:
        return Graph("net", self.tensors, tuple(self.ops), tuple(self.inputs), outputs or (self.last,))


def moved(graph: Graph) -> int:
    """Elements that Transposes move."""
    pairs = [(graph.tensors[op.inputs[0]].shape, op) for op in graph.ops if op.type == "Transpose"]
    return sum(int(np.prod(s)) for s, op in pairs if not is_trivial(s, perm_of(op, len(s))))


def sunk(graph: Graph) -> Graph:
    """After the pass: the same values under the same names, and nothing more to transpose."""
    after = SinkTransposes()(graph)
    rng = np.random.default_rng(2)
    feeds = {n: rng.standard_normal(graph.tensors[n].shape).astype(np.float32) for n in graph.inputs}
    want = run(graph, feeds)
    for made in (after, standard(graph)):
        got = run(made, feeds)
        for name in graph.outputs:
            np.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-5)
    assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
    assert {o for op in after.ops for o in op.origin} <= {o for op in graph.ops for o in op.origin}
    assert moved(after) <= moved(graph)
    assert SinkTransposes()(after).ops == after.ops
    return after


def kinds(graph: Graph) -> list[str]:
    return [op.type for op in graph.ops]


def test_a_pair_cancels() -> None:
    net = Net()
    net.add("Exp")
    net.add("Transpose", perm=NCHW)
    net.add("Transpose", perm=NHWC)
    net.add("Neg")
    assert kinds(sunk(net.graph())) == ["Exp", "Neg"]


def test_two_merge_into_one() -> None:
    net = Net()
    net.add("Transpose", perm=(0, 2, 1, 3))
    net.add("Transpose", perm=(0, 1, 3, 2))
    net.add("Exp")
    graph = sunk(net.graph())
    assert [op.attrs["perm"] for op in graph.ops if op.type == "Transpose"] == [(0, 2, 3, 1)]


@pytest.mark.parametrize(
    ("kind", "extra", "attrs"),
    [
        ("Relu", (), {}),
        ("Add", ("scalar",), {}),
        ("Clip", ("zero", "six"), {}),
        ("ReduceMean", ("axes23",), {"keepdims": 1}),
        ("Softmax", (), {"axis": -1}),
        ("Pad", ("pads",), {}),
        ("Slice", ("from", "to", "axis1"), {}),
    ],
)
def test_what_lies_between_two_convolutions_takes_their_layout(kind: str, extra: tuple[str, ...], attrs: dict[str, Any]) -> None:
    net = Net()
    net.add("Conv", net.last, "w")
    net.add("Transpose", perm=NCHW)
    net.add(kind, net.last, *extra, **attrs)
    net.add("Transpose", perm=NHWC)
    net.add("MaxPool", kernel_shape=(1, 1))
    graph = sunk(net.graph())
    assert kinds(graph) == ["Conv", kind, "MaxPool"]


def test_a_constant_per_channel_is_seen_in_the_new_order_and_joins_the_convolution() -> None:
    net = Net()
    net.add("Conv", net.last, "w")
    net.add("Transpose", perm=NCHW)  # [1, 3, 5, 4]
    net.tensors["bias"] = Tensor("bias", (4,), DType.F32, Role.WEIGHT, None, WeightRef(array=np.arange(4, dtype=np.float32)))
    net.add("Add", net.last, "bias")
    net.add("Relu")
    net.add("Transpose", perm=NHWC)
    assert kinds(sunk(net.graph())) == ["Conv", "Add", "Relu"]
    assert kinds(standard(net.graph())) == ["FusedConv"]


def test_residuals_and_concatenations_cancel_together() -> None:
    net = Net()
    a = net.add("Transpose", net.add("Conv", "x", "w"), perm=NCHW)
    b = net.add("Transpose", net.add("Conv", "x", "w"), perm=NCHW)
    total = net.add("Relu", net.add("Add", a, b))
    wide = net.add("Concat", total, a, axis=3)
    net.add("GlobalAveragePool", net.add("Transpose", wide, perm=NHWC))
    assert kinds(sunk(net.graph())) == ["Conv", "Conv", "Add", "Relu", "Concat", "GlobalAveragePool"]


def test_equal_transposes_are_one() -> None:
    net = Net()
    c = net.add("Conv", "x", "w")
    a = net.add("MatMul", net.add("Transpose", c, perm=(0, 1, 3, 2)), "full")
    b = net.add("MatMul", net.add("Transpose", c, perm=(0, 1, 3, 2)), "full")
    assert kinds(sunk(net.graph(a, b))).count("Transpose") == 1


def test_outputs_keep_names_and_order() -> None:
    net = Net()
    t = net.add("Transpose", perm=NCHW)
    y = net.add("Transpose", net.add("Relu", t), perm=NHWC)
    graph = sunk(net.graph(y, t))
    assert graph.outputs == (y, t) and graph.tensors[t].shape == (1, 3, 5, 4) and kinds(graph).count("Transpose") == 1


def test_a_transpose_that_moves_nothing_is_a_reshape() -> None:
    net = Net(x=(1, 4, 1, 5))
    net.add("Transpose", perm=(0, 2, 1, 3))
    net.add("Exp")
    assert kinds(sunk(net.graph())) == ["Reshape", "Exp"]


def test_a_graph_without_transposes_is_itself() -> None:
    net = Net()
    net.add("Exp")
    graph = net.graph()
    assert SinkTransposes()(graph) is graph


def test_weights_in_files_are_not_read(tmp_path: Any) -> None:
    net = Net()
    net.tensors["table"] = Tensor("table", (1, 3, 5, 4), DType.F32, Role.WEIGHT, None, WeightRef(tmp_path / "absent", 64, 240))
    net.ops = [
        Op("c", "Conv", ("x", "w"), ("c",)),
        Op("t", "Transpose", ("c",), ("t",), {"perm": NCHW}),
        Op("a", "Add", ("t", "table"), ("a",)),
        Op("u", "Transpose", ("a",), ("u",), {"perm": NHWC}),
        Op("p", "MaxPool", ("u",), ("p",), {"kernel_shape": (1, 1)}),
    ]
    shapes = {"c": SHAPE, "t": (1, 3, 5, 4), "a": (1, 3, 5, 4), "u": SHAPE, "p": SHAPE}
    net.tensors |= {n: Tensor(n, s, DType.F32) for n, s in shapes.items()}
    graph = SinkTransposes()(net.graph("p"))
    assert kinds(graph) == ["Conv", "Add", "MaxPool"]
    moved_table = graph.tensors[graph.ops[1].inputs[1]]
    assert moved_table.shape == SHAPE and moved_table.data is not None and moved_table.data.order == NHWC


def test_permutations() -> None:
    a = np.arange(24).reshape(2, 3, 4)
    for p, q in (((1, 2, 0), (2, 0, 1)), ((0, 2, 1), (1, 0, 2)), ((2, 1, 0), (1, 2, 0))):
        np.testing.assert_array_equal(a.transpose(p).transpose(q), a.transpose(compose(p, q)))
        assert compose(p, inverse(p)) == (0, 1, 2)
    assert is_trivial((1, 4, 1, 5), (2, 1, 0, 3)) and not is_trivial((1, 4, 1, 5), (0, 3, 1, 2))


STEPS = ("Transpose", "Transpose", "Relu", "Exp", "Softmax", "Add", "Mul", "Concat", "Constant", "ReduceMax", "Reshape", "MatMul")


@st.composite
def nets(draw: st.DrawFn) -> Graph:
    """DAGs of rank-4 tensors of few shapes, with transposes everywhere, several readers and several outputs."""
    net = Net(x=(1, 2, 3, 2), z=(2, 1, 2, 3))
    pool = ["x", "z"]
    for _ in range(draw(st.integers(2, 14))):
        kind, a = draw(st.sampled_from(STEPS)), draw(st.sampled_from(pool[-5:]))
        shape = net.tensors[a].shape
        if kind == "Transpose":
            made = net.add(kind, a, perm=tuple(draw(st.permutations(range(4)))))
        elif kind in {"Add", "Mul", "Concat"}:
            same = [n for n in pool if net.tensors[n].shape == shape]
            b = draw(st.sampled_from(same))
            made = net.add(kind, a, b, axis=draw(st.integers(0, 3))) if kind == "Concat" else net.add(kind, a, b)
        elif kind == "Constant":
            name = f"k{len(net.ops)}"
            array = np.random.default_rng(len(net.ops)).standard_normal(shape[draw(st.integers(0, 3)) :]).astype(np.float32)
            net.tensors[name] = Tensor(name, array.shape, DType.F32, Role.WEIGHT, None, WeightRef(array=array))
            made = net.add("Sub", a, name)
        elif kind == "ReduceMax":
            made = net.add(kind, a, "axis1", keepdims=1)
        elif kind == "Reshape":
            target = f"r{len(net.ops)}"
            order = np.array(draw(st.permutations(shape)), np.int64)
            net.tensors[target] = Tensor(target, (4,), DType.I64, Role.WEIGHT, None, WeightRef(array=order))
            made = net.add(kind, a, target)
        elif kind == "MatMul":
            other = [n for n in pool if net.tensors[n].shape[:2] == shape[:2] and net.tensors[n].shape[2] == shape[3]]
            if not other:
                continue
            made = net.add("Tanh", net.add(kind, a, draw(st.sampled_from(other))))
        else:
            made = net.add("Tanh", a) if kind == "Exp" else net.add(kind, a)
        pool.append(made)
    if len(pool) == 2:
        pool.append(net.add("Relu", "x"))
    outputs = dict.fromkeys([pool[-1], *draw(st.lists(st.sampled_from(pool[2:]), max_size=2))])
    return net.graph(*outputs)


@given(nets())
def test_any_graph_keeps_its_values_and_moves_no_more(graph: Graph) -> None:
    sunk(graph)
