"""Damaged, hostile and unsupported files: one sentence, the right error, nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hetsched.errors import HetschedError, ModelError, UnsupportedModelError
from hetsched.frontends import load

Save = Callable[..., Path]


def external(path: Path, location: str, *, shape: tuple[int, ...] = (4, 4), offset: int = 0, length: int | None = None) -> Path:
    """A model whose weight ``w`` lies at ``location``."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    entries = {"location": location, "offset": str(offset), "length": str(int(np.prod(shape)) * 4 if length is None else length)}
    for key, value in entries.items():
        w.external_data.add(key=key, value=value)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "mm")], "g", [x], [y], [w])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString())
    return path


@pytest.mark.parametrize("location", ["../../etc/passwd", "/etc/passwd", "a/../../b", "..\\b", "C:\\b", "", "a\0b"])
def test_external_data_outside_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    with pytest.raises(ModelError, match="outside the model's folder"):
        load(external(tmp_path / "m.onnx", location))


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(bytes(64))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").symlink_to(tmp_path / "out")
    with pytest.raises(ModelError, match="leads outside the model's folder"):
        load(external(folder / "m.onnx", "w.bin"))


def test_external_data_are_mapped_where_they_are(tmp_path: Path) -> None:
    values = np.arange(16, dtype=np.float32).reshape(4, 4)
    (tmp_path / "w.bin").write_bytes(bytes(8) + values.tobytes())
    w = load(external(tmp_path / "m.onnx", "w.bin", offset=8)).tensors["w"]
    assert w.data is not None and w.data.array is None and w.data.offset == 8
    assert isinstance(w.numpy(), np.memmap) and (w.numpy() == values).all()


def test_weightless_models_load_and_say_what_is_absent(tmp_path: Path) -> None:
    graph = load(external(tmp_path / "m.onnx", "gone.bin"))
    w = graph.tensors["w"]
    assert w.is_constant and w.data is not None and not w.data.is_present
    with pytest.raises(ModelError, match="weights of 'w' are absent"):
        w.numpy()


@pytest.mark.parametrize(("offset", "length", "message"), [(60, 64, "too short"), (0, 12, "needs 64 bytes"), (-4, 64, "needs 64 bytes")])
def test_external_ranges_are_checked(tmp_path: Path, offset: int, length: int, message: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    with pytest.raises(ModelError, match=message):
        load(external(tmp_path / "m.onnx", "w.bin", offset=offset, length=length))


def test_absurd_sizes_are_refused_before_allocation(tmp_path: Path, save: Save) -> None:
    with pytest.raises(ModelError, match=r"'w' .*more than 2\^40 elements"):
        load(external(tmp_path / "m.onnx", "w.bin", shape=(1 << 30, 1 << 30), length=64))
    text = "g (float[1] x) => (float[n] y) <int64[2] s = {1073741824,1073741824}> { c = ConstantOfShape(s)  y = Add(x, c) }"
    with pytest.raises(ModelError, match="more than 2"):
        load(save(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (float[2] x) => (float[2] y) { a = Add(x, b)  b = Relu(a)  y = Relu(b) }", "the graph has a cycle"),
        ("g (float[2] x) => (float[2] y) { y = Add(x, nothing) }", "reads 'nothing', which nothing in the model writes"),
        ("g (float[2] x) => (float[2] y) { y = Relu(x)  y = Exp(x) }", "both write 'y'"),
        ("g (float[2] x) => (float[2] y) { x = Relu(y)  y = Exp(x) }", "writes 'x', which is an input or a constant"),
        ("g (float[2] x) => (float[2] y) { z = Relu(x) }", "output 'y' .* is written by no node"),
        ("g (float[2,3] x, float[4,5] w) => (float[2,5] y) { y = MatMul(x, w) }", r"'MatMul_0' .*does not accept .*\[2, 3\], \[4, 5\]"),
        ("g (float[2,3] x, float[4] w) => (float[2,3] y) { y = Add(x, w) }", "do not broadcast"),
        ("g (float[2] x) => (float[2] y) { y = Conv(x) }", "has 1 inputs"),
        ("g (float[2] x) => (float[2] y) { y = Frobnicate(x) }", "operator 'Frobnicate' of opset 18"),
        ("g (float[2] x) => (int64[1,n] y) { y = NonZero(x) }", "'NonZero_0' .*depends on the data"),
        ("g (float[2] x, int64 i) => (float[2] y) { s = SequenceConstruct(x)  y = SequenceAt(s, i) }", "writes a sequence"),
        ("g (seq(float[2]) x) => (float[2] y) { i = Constant<value = int64 {0}>()  y = SequenceAt(x, i) }", "input 'x' is a sequence"),
        ("g (complex64[2] x) => (complex64[2] y) { y = Identity(x) }", "element type complex64"),
        ("g (float[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] x) => (float[1] y) { y = Flatten(x) }", "at most 16"),
    ],
)  # fmt: skip
def test_bad_graphs(save: Save, text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(save(text))


@pytest.mark.parametrize("opset", [6, 26])
def test_opsets_out_of_range(save: Save, opset: int) -> None:
    with pytest.raises(UnsupportedModelError, match=f"uses opset {opset}; opsets 7 to 25"):
        load(save("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset))


def test_operators_of_other_domains_are_named(save: Save) -> None:
    text = "g (float[2] x) => (float[2] y) { y = com.microsoft.Inverse(x) }"
    with pytest.raises(UnsupportedModelError, match=r"'Inverse' of domain 'com\.microsoft'"):
        load(save(text, domains=', "com.microsoft" : 1'))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"PK\x03\x04" + bytes(64), "zip archive"),
        (b"hello, I am not a model at all", "not of any known model format"),
        (bytes(range(256)), "not of any known model format"),
    ],
)
def test_other_formats_by_content(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=f"is not a model of a known format.*{message}"):
        load(path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model file"):
        load(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match=r"a folder without config\.json or Manifest\.json: name a model file"):
        load(tmp_path)


def conv_model() -> bytes:
    w = numpy_helper.from_array(np.ones((32, 32, 3, 3), np.float32), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 32, 8, 8]) for n in "xy")
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "g", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content, path = conv_model(), tmp_path / "m.onnx"
    for cut in [*range(64), *range(64, len(content), 1499), *range(len(content) - 60, len(content))]:
        path.write_bytes(content[:cut])
        with pytest.raises(ModelError):
            load(path)


def test_random_damage_never_escapes_as_another_error(tmp_path: Path) -> None:
    text = """
    g (float[batch,3,8,8] x) => (float[a,b] y) <float[4,3,3,3] w = {1.0}, int64[2] s = {1,-1}, float[3] k = {1,2,3}> {
        c = Conv<pads = [1,1,1,1]>(x, v)
        r = Clip(c, lo)
        y = Reshape(r, s)
    }"""
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>' + text.replace("{1.0}", "{" + ",".join(["1.0"] * 108) + "}"))
    model.graph.node[0].input[1] = "w"
    model.graph.node[1].input[1] = ""
    content, path, rng = model.SerializeToString(), tmp_path / "m.onnx", random.Random(5)
    refused = 0
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 2, 6])):
            at = rng.randrange(len(damaged))
            match rng.randrange(3):
                case 0:
                    damaged[at] = rng.randrange(256)
                case 1:
                    del damaged[at : at + rng.randrange(1, 6)]
                case _:
                    damaged[at:at] = rng.randbytes(rng.randrange(1, 6))
        path.write_bytes(damaged)
        try:
            load(path)
        except HetschedError as error:
            refused += 1
            assert error.exit_code == 2 and "\n" not in str(error)
    assert refused > 100


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Pad", {"pads": [0, 1], "value": np.ones(3, np.float32)}), ("Pad", {"pads": 7}), ("Pad", {"pads": "left"}),
        ("Pad", {"pads": [0.5, float("inf")]}), ("Pad", {"value": "x"}), ("Softmax", {"axis": "last"}), ("Softmax", {"axis": float("nan")}),
        ("Softmax", {"axis": [1]}), ("Squeeze", {"axes": 1.5}), ("Split", {"split": "half"}), ("TopK", {"k": [3]}),
    ],
)  # fmt: skip
def test_attributes_of_another_kind(tmp_path: Path, op_type: str, attributes: dict[str, object]) -> None:
    node = onnx.helper.make_node(op_type, ["x"], ["y"], "odd")
    for name, value in attributes.items():
        stored = onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        node.attribute.append(onnx.helper.make_attribute(name, stored))
    graph = onnx.helper.make_graph(
        [node], "g", [onnx.helper.make_tensor_value_info("x", 1, [4])], [onnx.helper.make_tensor_value_info("y", 1, None)]
    )
    path = tmp_path / "odd.onnx"
    path.write_bytes(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 9)], ir_version=4).SerializeToString())
    with pytest.raises(ModelError, match="odd"):
        load(path)
