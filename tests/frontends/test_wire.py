"""The walk over the protobuf bytes: weights stay in the file, everything else is as it was."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hetsched.frontends import load
from hetsched.frontends.onnx_wire import INLINE_BYTES, DamagedError, fields, light_bytes, looks_like_model


def model(*initializers: onnx.TensorProto, in_node: onnx.TensorProto | None = None) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    if in_node is not None:
        nodes.append(helper.make_node("Constant", [], ["c"], value=in_node))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_big_tensors_are_left_in_the_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    big, node, small = rng.standard_normal((64, 64)), rng.standard_normal((50, 50)), rng.standard_normal(8)
    path = tmp_path / "m.onnx"
    proto = model(
        numpy_helper.from_array(big, "big"), numpy_helper.from_array(small, "small"),
        helper.make_tensor("floats", TensorProto.FLOAT, [2000], np.arange(2000, dtype=np.float32)),
        in_node=numpy_helper.from_array(node, "n"),
    )  # fmt: skip
    path.write_bytes(proto.SerializeToString())
    light, digest = light_bytes(path)
    assert len(light) < 2000 < path.stat().st_size and digest == hashlib.sha256(path.read_bytes()).hexdigest()
    parsed = onnx.ModelProto.FromString(light)
    content = path.read_bytes()
    tensors = {t.name: t for t in parsed.graph.initializer} | {"n": parsed.graph.node[1].attribute[0].t}
    for name, value in {"big": big, "n": node, "floats": np.arange(2000, dtype=np.float32)}.items():
        where = {e.key: e.value for e in tensors[name].external_data}
        offset, length = int(where["offset"]), int(where["length"])
        assert content[offset : offset + length] == value.tobytes()
    assert (numpy_helper.to_array(tensors["small"]) == small).all()


def test_weights_in_the_file_are_mapped(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 64]) for n in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString())
    tensor = load(path).tensors["w"]
    assert tensor.data is not None and tensor.data.path == path and tensor.data.array is None
    assert (tensor.numpy() == w).all()


@given(st.lists(st.integers(0, 3000), max_size=5))
def test_lightening_keeps_the_model(sizes: list[int]) -> None:
    tensors = [numpy_helper.from_array(np.full(n, 1.5, np.float32), f"t{i}") for i, n in enumerate(sizes)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(model(*tensors).SerializeToString())
        parsed = onnx.ModelProto.FromString(light_bytes(path)[0])
    for before, after in zip(tensors, parsed.graph.initializer, strict=True):
        assert (after.name, list(after.dims), after.data_type) == (before.name, list(before.dims), before.data_type)
        assert after.raw_data == (before.raw_data if len(before.raw_data) <= INLINE_BYTES else b"")
    assert parsed.graph.node == model().graph.node


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_damaged(content: bytes) -> None:
    data = memoryview(content)
    try:
        spans = [(tag, stop) for _, _, tag, _, stop in fields(data, 0, len(content))]
    except DamagedError:
        return
    ends = [0, *(stop for _, stop in spans)]
    assert [tag for tag, _ in spans] == ends[:-1] and ends[-1] == len(content)


def test_recognition_reads_no_further_than_the_head() -> None:
    content = model().SerializeToString()
    assert looks_like_model(content) and looks_like_model(content[:10])
    assert not looks_like_model(b"not a model") and not looks_like_model(b"")
