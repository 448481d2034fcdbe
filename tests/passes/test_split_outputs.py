"""Splitting operators by their outputs: real models compute the same, weights stay where they are, odd operators stay whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.passes import standard, unfuse
from hetsched.passes.split_outputs import SplitOutputs, splitting_of
from hetsched.reference import run

MODELS = {"magika": {}, "minilm-l3-onnx": {"sequence_length": 12}, "mobilenet_v2": {}, "pp-ocrv4-det": {"x.2": 32, "x.3": 64}}


def everything(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Every operator that can be split in three, at odd places."""
    found = {op.name: splitting_of(graph, op) for op in graph.ops}
    return {name: (how.channels * 2 // 5, how.channels * 4 // 5) for name, how in found.items() if how is not None and how.channels > 2}


def feeds_of(graph: Graph):
    rng = np.random.default_rng(3)
    shapes = {n: graph.tensors[n] for n in graph.inputs}
    return {
        n: (rng.standard_normal(t.shape) if t.dtype.is_float else rng.integers(0, 2, t.shape)).astype(t.dtype.numpy)
        for n, t in shapes.items()
    }


@pytest.mark.real_models
@pytest.mark.parametrize("name", MODELS)
def test_real_models_compute_the_same(real_model: Callable[[str], Path], name: str) -> None:
    graph = standard(load(real_model(name), MODELS[name]))
    first = everything(graph)
    made = SplitOutputs(first)(graph)
    assert len(made.ops) == len(graph.ops) + 3 * len(first) > len(graph.ops)
    assert (made.inputs, made.outputs) == (graph.inputs, graph.outputs)
    feeds = feeds_of(graph)
    want = run(graph, feeds)
    for got in (run(made, feeds), run(unfuse(made), feeds)):
        for output in graph.outputs:
            np.testing.assert_allclose(got[output], want[output], rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(want[output]).max())))
    parts = [op for op in made.ops if op.name.endswith(("/1of3", "/2of3", "/3of3"))]
    assert all(not t.data.compute for op in parts if op.type in ("Conv", "FusedConv") for t in (made.tensors[op.inputs[1]],) if t.data)


def product(weight: WeightRef, dtype: DType = DType.F32, kind: str = "MatMul", **attrs: int) -> Graph:
    tensors = {
        "x": Tensor("x", (3, 4), DType.F32, Role.INPUT),
        "w": Tensor("w", (6, 4) if attrs.get("transB") else (4, 6), dtype, Role.WEIGHT, None, weight),
        "y": Tensor("y", (3, 6), DType.F32, Role.OUTPUT),
    }
    return Graph("g", tensors, (Op("p", kind, ("x", "w"), ("y",), attrs),), ("x",), ("y",))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("where", ["array", "file", "file, transposed", "computed"])
def test_a_weight_is_cut_wherever_it_is(tmp_path: Path, where: str, transposed: bool) -> None:
    value = np.arange(24, dtype=np.float32).reshape((6, 4) if transposed else (4, 6)) / 7
    path = tmp_path / "w.bin"
    path.write_bytes(b"head" + (value.T if "transposed" in where else value).tobytes())
    refs = {
        "array": WeightRef(array=value),
        "file": WeightRef(path, 4, value.nbytes),
        "file, transposed": WeightRef(path, 4, value.nbytes, order=(1, 0)),
        "computed": WeightRef(compute=lambda: value),
    }
    graph = product(refs[where], kind="Gemm" if transposed else "MatMul", **({"transB": 1} if transposed else {}))
    made = SplitOutputs({"p": (2,)})(graph)
    assert [op.type for op in made.ops] == [graph.ops[0].type] * 2 + ["Concat"]
    feeds = feeds_of(graph)
    np.testing.assert_allclose(run(made, feeds)["y"], run(graph, feeds)["y"], rtol=1e-6)
    contiguous = where == ("file" if transposed else "file, transposed")
    cut = [made.tensors[f"w/{k}of2"].data for k in (1, 2)]
    assert all((d is not None and d.path is not None) == contiguous for d in cut)


def test_a_weightless_model_stays_weightless(tmp_path: Path) -> None:
    made = SplitOutputs({"p": (2,)})(product(WeightRef(tmp_path / "absent", 0, 96)))
    assert all(not made.tensors[f"w/{k}of2"].data.is_present for k in (1, 2))
    assert sum(made.tensors[f"w/{k}of2"].nbytes for k in (1, 2)) == 96


def test_what_cannot_be_cut_stays_whole(tmp_path: Path) -> None:
    packed = product(WeightRef(tmp_path / "w", 0, 48), DType.BF16)
    assert splitting_of(packed, packed.ops[0]) is None  # its columns are no range of the file
    rows = product(WeightRef(tmp_path / "w", 0, 48, order=(1, 0)), DType.BF16)
    assert splitting_of(rows, rows.ops[0]) is not None
    whole = product(WeightRef(array=np.zeros((4, 6), np.float32)))
    for cuts in ((), (0,), (6,), (7,), (-1,), (3, 3), (4, 2)):
        assert SplitOutputs({"p": cuts})(whole) is whole
    assert SplitOutputs({"other": (2,)})(whole) is whole
    softmax = whole.replace(ops=(Op("p", "Softmax", ("x",), ("y",)),))
    assert splitting_of(softmax, softmax.ops[0]) is None


@pytest.mark.real_models
def test_depthwise_and_integer_operators_stay_whole(real_model: Callable[[str], Path]) -> None:
    graph = standard(load(real_model("mobilenet_v2")))
    depthwise = [op for op in graph.ops if op.attr_int("group", 1) > 1]
    assert depthwise and all(splitting_of(graph, op) is None for op in depthwise)
    integers = standard(load(real_model("mobilenet_v2_qdq")))
    assert everything(integers) == {}
