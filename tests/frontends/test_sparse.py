"""Sparse constants: ONNX's coordinates and TFLite's trees of dimensions, against what they were made from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.reference import run
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table

_SPEC = spec_from_file_location("tflite_writer", Path(__file__).with_name("tflite_writer.py"))
assert _SPEC is not None and _SPEC.loader is not None
writer = sys.modules.setdefault("tflite_writer", module_from_spec(_SPEC))
if not hasattr(writer, "Table"):
    _SPEC.loader.exec_module(writer)
Table: Any = writer.Table
i32, tensor, operator, subgraph = writer.i32, writer.tensor, writer.operator, writer.subgraph
model: Callable[..., bytes] = writer.model
ADD, CONV, DENSIFY, FLOAT, FULLY = writer.ADD, writer.CONV, writer.DENSIFY, writer.FLOAT, writer.FULLY

Save = Callable[..., Path]
Array = np.ndarray[Any, Any]
DENSE, CSR = 0, 1


def loaded(folder: Path, content: bytes) -> Graph:
    (folder / "model.tflite").write_bytes(content)
    return load(folder / "model.tflite")


def thin(shape: tuple[int, ...], seed: int, share: float = 0.3) -> Array:
    """Floats, most of them 0."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < share, rng.standard_normal(shape), 0).astype(np.float32)


# -- ONNX -----------------------------------------------------------------------------------------------------------------


def sparse_proto(dense: Array, *, flat: bool, name: str = "w") -> onnx.SparseTensorProto:
    places = np.flatnonzero(dense)
    indices = places if flat else np.argwhere(dense)
    return helper.make_sparse_tensor(
        numpy_helper.from_array(dense.ravel()[places], name), numpy_helper.from_array(indices.astype(np.int64), f"{name}_i"), dense.shape
    )


def product(sparse: onnx.SparseTensorProto, rows: int, columns: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "up")], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, columns])], sparse_initializer=[sparse],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (300, 200)])
def test_onnx_coordinates(save: Save, shape: tuple[int, int], flat: bool) -> None:
    dense = thin(shape, 1)
    path = save(product(sparse_proto(dense, flat=flat), *shape))
    graph = load(path)
    w = graph.tensors["w"]
    assert w.shape == shape and w.is_sparse and w.is_constant
    assert w.nbytes == np.count_nonzero(dense) * (4 + 8 * (1 if flat else 2))
    np.testing.assert_array_equal(w.numpy(), dense)
    x = np.random.default_rng(0).standard_normal((2, shape[0])).astype(np.float32)
    got = run(standard(graph), {"x": x})["y"]
    np.testing.assert_allclose(got, x @ dense, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got, ort.InferenceSession(path).run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_sparse_weights_count_as_they_are_stored(save: Save) -> None:
    dense = thin((512, 512), 2, 0.05)
    sparse = load(save(product(sparse_proto(dense, flat=True), 512, 512)))
    table = build_table(sparse, load_soc("snapdragon-8-gen-3"))
    bytes_of = {table.queues[int(q)].kind: b for q, b in zip(table.alt_queue, table.weight_bytes, strict=True)}
    whole = 4.0 * 512 * 512
    assert 0 < bytes_of["cpu"] <= sparse.tensors["w"].nbytes < 0.2 * whole < bytes_of["npu"]


@pytest.mark.parametrize(
    ("indices", "shape", "message"),
    [
        ([0, 99], [3, 3], "has values outside its shape"),
        ([-1, 2], [3, 3], "has values outside its shape"),
        ([[0, 3], [1, 1]], [3, 3], "has values outside its shape"),
        ([0], [3, 3], "which do not fit"),
        ([[0], [1]], [3, 3], "which do not fit"),
        ([0, 1], [1, 1], "which do not fit"),
        ([0, 1], [3, -3], "negative shape"),
        ([0, 1], [1 << 30, 1 << 30], r"2\^40 elements"),
        ([0, 1], [1 << 15, 1 << 15], "when dense, and at most"),
    ],
)
def test_bad_onnx_coordinates(save: Save, indices: list[Any], shape: list[int], message: str) -> None:
    sparse = onnx.SparseTensorProto(
        values=numpy_helper.from_array(np.ones(2, np.float32), "w"),
        indices=numpy_helper.from_array(np.array(indices, np.int64)),
        dims=shape,
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "up")], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])], sparse_initializer=[sparse],
    )  # fmt: skip
    path = save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    with pytest.raises(ModelError, match=message):
        load(path).tensors["w"].numpy()


# -- TFLite ---------------------------------------------------------------------------------------------------------------


def encoded(
    dense: Array, order: Sequence[int], formats: Sequence[int], block_map: Sequence[int], blocks: Sequence[int]
) -> tuple[Table, bytes]:
    """``SparsityParameters`` and the stored values of an array: an obviously correct encoder, one node at a time.

    ``order`` and ``formats`` are of all levels (dimensions, then blocks); a node with no value below it is left out of CSR levels.
    """
    sizes = [n // (blocks[list(block_map).index(d)] if d in block_map else 1) for d, n in enumerate(dense.shape)] + list(blocks)
    segments: list[list[int]] = [[0] for _ in order]
    indices: list[list[int]] = [[] for _ in order]
    values: list[Any] = []

    def part(chosen: dict[int, int]) -> Array:
        """What lies below a node: elements whose indices agree with ``chosen``."""
        grid = np.indices(dense.shape)
        keep = np.ones(dense.shape, bool)
        for d in range(dense.ndim):
            inner = blocks[list(block_map).index(d)] if d in block_map else 1
            if d in chosen:
                keep &= grid[d] // inner == chosen[d]
            for b, of in enumerate(block_map):
                if of == d and dense.ndim + b in chosen:
                    keep &= grid[d] % inner == chosen[dense.ndim + b]
        return dense[keep]

    def walk(level: int, chosen: dict[int, int]) -> None:
        if level == len(order):
            values.append(part(chosen)[0])
            return
        for k in range(sizes[order[level]]):
            below = {**chosen, order[level]: k}
            if formats[level] == CSR and not part(below).any():
                continue
            indices[level].append(k)
            walk(level + 1, below)
        segments[level].append(len(indices[level]))

    walk(0, {})
    rows = []
    for level, d in enumerate(order):
        if formats[level] == DENSE:
            rows.append(Table({0: ("b", DENSE), 1: ("i", sizes[d])}))
            continue
        kind, dtype = ((1, np.int32), (2, np.uint16), (3, np.uint8))[level % 3]
        rows.append(Table({
            0: ("b", CSR), 2: ("B", kind), 3: Table({0: np.array(segments[level], dtype)}),
            4: ("B", kind), 5: Table({0: np.array(indices[level], dtype)}),
        }))  # fmt: skip
    fields: dict[int, Any] = {0: i32(*order), 2: rows}
    if block_map:
        fields[1] = i32(*block_map)
    return Table(fields), np.array(values, dense.dtype).tobytes()


def sum_model(dense: Array, sparsity: Table, values: bytes) -> bytes:
    """y = x + w, with a sparse w."""
    w = tensor("w", dense.shape, buffer=1)
    w.fields[6] = sparsity
    tensors = [tensor("x", dense.shape), w, tensor("y", dense.shape)]
    return model([ADD], [subgraph(tensors, [operator(0, (0, 1), (2,), {})], (0,), (2,))], [values])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_tree_of_dimensions(tmp_path: Path, data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    blocked = data.draw(st.lists(st.integers(0, rank - 1), max_size=2, unique=True))
    blocks = [data.draw(st.sampled_from([1, 2, 4])) for _ in blocked]
    shape = tuple(data.draw(st.integers(1, 3)) * (blocks[blocked.index(d)] if d in blocked else 1) for d in range(rank))
    dense = thin(shape, data.draw(st.integers(0, 99)))
    order = [*data.draw(st.permutations(range(rank))), *range(rank, rank + len(blocked))]
    formats = [data.draw(st.sampled_from([DENSE, CSR])) for _ in range(rank)] + [DENSE] * len(blocked)
    sparsity, values = encoded(dense, order, formats, blocked, blocks)
    graph = loaded(tmp_path, sum_model(dense, sparsity, values))
    np.testing.assert_array_equal(graph.tensors["w"].numpy(), dense)
    np.testing.assert_array_equal(run(standard(graph), {"x": np.ones(shape, np.float32)})["y"], dense + 1)


def test_a_sparse_layer_of_a_tflite_file(tmp_path: Path) -> None:
    dense = thin((8, 16), 5)
    sparsity, values = encoded(dense, (0, 1, 2), (DENSE, CSR, DENSE), (1,), (4,))
    w = tensor("w", dense.shape, buffer=1)
    w.fields[6] = sparsity
    main = subgraph([tensor("x", (2, 16)), w, tensor("y", (2, 8))], [operator(0, (0, 1), (2,), {})], (0,), (2,))
    content = model([FULLY], [main], [values])
    graph = standard(loaded(tmp_path, content))
    x = np.random.default_rng(2).standard_normal((2, 16)).astype(np.float32)
    np.testing.assert_allclose(run(graph, {"x": x})["y"], x @ dense.T, rtol=1e-5, atol=1e-6)
    assert len(values) < graph.tensors["w"].nbytes < len(values) + 128


def test_densify_and_a_weight_that_changes_its_layout(tmp_path: Path) -> None:
    dense = thin((4, 1, 1, 6), 6, 0.5)
    sparsity, values = encoded(dense, (0, 1, 2, 3), (DENSE, DENSE, DENSE, CSR), (), ())
    w = tensor("w", dense.shape, FLOAT, 1)
    w.fields[6] = sparsity
    tensors = [tensor("x", (1, 5, 5, 6)), w, tensor("wd", dense.shape), tensor("b", (4,), buffer=2), tensor("y", (1, 5, 5, 4))]
    ops = [operator(1, (1,), (2,)), operator(0, (0, 2, 3), (4,), {0: ("b", 0), 1: ("i", 1), 2: ("i", 1)})]
    graph = standard(loaded(tmp_path, model([CONV, DENSIFY], [subgraph(tensors, ops, (0,), (4,))], [values, bytes(16)])))
    x = np.random.default_rng(2).standard_normal((1, 5, 5, 6)).astype(np.float32)
    np.testing.assert_allclose(run(graph, {"x": x})["y"], x @ dense[:, 0, 0].T, rtol=1e-5, atol=1e-6)


def csr(segments: list[int], indices: list[int], kind: int = 1) -> Table:
    return Table({0: ("b", CSR), 2: ("B", kind), 3: Table({0: i32(*segments)}), 4: ("B", kind), 5: Table({0: i32(*indices)})})


def rows(size: int) -> Table:
    return Table({0: ("b", DENSE), 1: ("i", size)})


@pytest.mark.parametrize(
    ("fields", "count", "message"),
    [
        ({0: i32(0, 0), 2: [rows(2), rows(3)]}, 6, r"walked in the order \[0, 0\]"),
        ({0: i32(0, 1), 2: [rows(2)]}, 6, "with 1 dimensions described"),
        ({0: i32(0, 1, 2), 1: i32(5), 2: [rows(2), rows(3), rows(1)]}, 6, r"along the dimensions \[5\]"),
        ({0: i32(2, 0, 1), 1: i32(1), 2: [rows(1), rows(2), rows(3)]}, 6, r"along the dimensions \[1\]"),
        ({0: i32(0, 1), 2: [rows(-2), rows(3)]}, 6, "has the size -2"),
        ({0: i32(0, 1), 2: [rows(2), csr([0, 1, 2], [0, 9])]}, 2, "a value outside the shape"),
        ({0: i32(0, 1), 2: [rows(2), csr([0, 2, 1], [0, 1])]}, 1, "does not fit 2 nodes"),
        ({0: i32(0, 1), 2: [rows(2), csr([0, 1], [0])]}, 1, "does not fit 2 nodes"),
        ({0: i32(0, 1), 2: [rows(2), csr([0, 1, 2], [0, 1], 9)]}, 2, "a list of indices is missing"),
        ({0: i32(0, 1), 2: [rows(2), csr([0, 1, 2], [0, 1])]}, 5, "stores 5 values and describes 2"),
        ({0: i32(0, 1), 2: [rows(1 << 30), rows(1 << 30)]}, 6, "it describes 1073741824 nodes and stores 6 values"),
    ],
)
def test_damaged_trees(tmp_path: Path, fields: dict[int, Any], count: int, message: str) -> None:
    dense = np.zeros((2, 3), np.float32)
    with pytest.raises(ModelError, match=message):
        loaded(tmp_path, sum_model(dense, Table(fields), bytes(4 * count))).tensors["w"].numpy()


def test_sparse_four_bit_weights_are_refused(tmp_path: Path) -> None:
    w = tensor("w", (2, 3), 17, 1)
    w.fields[6] = Table({0: i32(0, 1), 2: [rows(2), rows(3)]})
    content = model(
        [ADD], [subgraph([tensor("x", (2, 3)), w, tensor("y", (2, 3))], [operator(0, (0, 1), (2,), {})], (0,), (2,))], [bytes(3)]
    )
    with pytest.raises(UnsupportedModelError, match="'w' is a sparse one of i4"):
        loaded(tmp_path, content)
