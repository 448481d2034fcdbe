"""Core ML models: the numbers of the nets that they were made from, exact stored bytes, flexible shapes, and refusals."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.frontends.coreml_decode import palette as decoded_palette
from hetsched.frontends.coreml_decode import unpacked
from hetsched.frontends.coreml_frontend import CoremlFrontend
from hetsched.frontends.onnx_frontend import OnnxFrontend
from hetsched.graph import DType, Graph, Role
from hetsched.passes import standard
from hetsched.reference import run

DATA = Path(__file__).parent / "data"
BUILT, NETS = np.load(DATA / "coreml" / "built.npz"), np.load(DATA / "torch" / "expected.npz")
MODEL = Path("Data") / "com.apple.CoreML" / "model.mlmodel"


def expected(name: str) -> Any:
    return BUILT[name] if name in BUILT else NETS[name]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("file", "tolerance"),
    [
        ("cnn.mlpackage", 1e-5), ("mobile.mlpackage", 1e-5), ("mobile.mlmodel", 1e-5), ("attention.mlpackage", 2e-2),
        ("compressed.mlpackage", 1e-4), ("state.mlpackage", 1e-3), ("palette.mlpackage", 1e-4),
    ],
)  # fmt: skip
def test_same_numbers_as_the_source(file: str, tolerance: float, fused: bool) -> None:
    graph, name = load(DATA / "coreml" / file), file.partition(".")[0]
    graph = standard(graph) if fused else graph
    results = run(graph, {i: expected(f"{name}.in.{i}") for i in graph.inputs})
    np.testing.assert_allclose(results[graph.outputs[0]], expected(f"{name}.out"), rtol=tolerance, atol=tolerance)


def test_images_are_preprocessed() -> None:
    graph = load(DATA / "coreml" / "cnn.mlmodel")
    pixels = (NETS["cnn.in.x"] - np.array([0.1, 0.2, 0.3], np.float32).reshape(1, 3, 1, 1)) / 0.5
    np.testing.assert_allclose(run(graph, {"x": pixels})[graph.outputs[0]], NETS["cnn.out"], rtol=1e-4, atol=1e-5)
    assert graph.tensors["x"].shape == (1, 3, 32, 32)


@pytest.mark.parametrize("net", ["cnn", "mobile"])
def test_same_fused_operators_as_the_onnx_exports(net: str) -> None:
    dims = {"batch": 2} if net == "mobile" else {}
    package = standard(load(DATA / "coreml" / f"{net}.mlpackage"))
    exported = standard(load(DATA / "torch" / f"{net}.torchscript.onnx", dims))
    assert len(package.ops) == len(exported.ops)


def test_weights_are_ranges_of_the_files() -> None:
    folder = DATA / "coreml" / "cnn.mlpackage"
    graph = load(folder)
    ref = next(t.data for t in graph.tensors.values() if t.is_constant and t.shape == (16, 8, 3, 3))
    assert ref is not None and ref.array is None and ref.length == 16 * 8 * 9 * 4
    assert ref.path == (folder / MODEL).parent / "weights" / "weight.bin"
    ref = next(t.data for t in load(DATA / "coreml" / "cnn.mlmodel").tensors.values() if t.shape == (16, 8, 3, 3) and t.data is not None)
    assert ref is not None and ref.path == DATA / "coreml" / "cnn.mlmodel" and ref.length == 16 * 8 * 9 * 4


def test_a_state_is_an_input_and_an_output() -> None:
    graph = load(DATA / "coreml" / "state.mlpackage")
    assert graph.inputs == ("x", "cache") and graph.outputs == ("y", "cache/next")
    assert graph.tensors["cache"].role is graph.tensors["cache/next"].role is Role.STATE
    assert graph.states == {"cache/next": "cache"} == standard(graph).states
    after = run(graph, {"x": BUILT["state.in.x"], "cache": BUILT["state.in.cache"]})["cache/next"]
    assert (after == BUILT["state.cache"]).all()


def test_integer_weights_keep_their_bytes() -> None:
    graph = load(DATA / "coreml" / "compressed.mlpackage")
    stored = {t.dtype: t for t in graph.tensors.values() if t.is_constant and t.dtype in {DType.I8, DType.I4}}
    assert stored[DType.I8].nbytes == 8 * 16 and stored[DType.I4].nbytes == 16 * 8 // 2
    assert [op.type for op in graph.ops].count("DequantizeLinear") == 2
    assert next(op for op in graph.ops if "block_size" in op.attrs).attr_int("block_size", 0) == 4


def test_palettes_and_sparse_weights_count_what_is_stored() -> None:
    graph = load(DATA / "coreml" / "palette.mlpackage")
    palette = next(t for t in graph.tensors.values() if t.is_constant and t.shape == (8, 3, 3, 3))
    sparse = next(t for t in graph.tensors.values() if t.is_constant and t.shape == (8, 8, 1, 1))
    assert palette.dtype is DType.F32 and palette.nbytes == 8 * 27 // 2 + 2 * 16 * 4, "4 bits an index, and two tables of 16 floats"
    assert sparse.nbytes == 64 // 8 + 4 * np.count_nonzero(sparse.numpy()), "a bit an element, and the floats that are not 0"


def test_quantized_layers_count_what_is_stored() -> None:
    plain, small = (load(DATA / "coreml" / f"mobile{n}.mlmodel") for n in ("", "8"))
    assert [op.type for op in plain.ops] == [op.type for op in small.ops]
    weight, exact = (next(t for t in g.tensors.values() if t.is_constant and t.shape == (16, 1, 5, 5)) for g in (small, plain))
    assert weight.nbytes == 16 * 25 + 2 * 16 * 4, "a byte a weight, a scale and a bias a channel"
    steps = np.ptp(exact.numpy(), axis=(1, 2, 3)) / 255
    assert (np.abs(weight.numpy() - exact.numpy()).max((1, 2, 3)) <= steps).all(), "within one step of a channel"
    assert not np.array_equal(weight.numpy(), exact.numpy())


@pytest.mark.parametrize("lowest_first", [True, False])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
def test_numbers_of_few_bits(bits: int, lowest_first: bool) -> None:
    numbers = np.random.default_rng(bits).integers(0, 1 << bits, 37)
    digits = [[int(n) >> k & 1 for k in (range(bits) if lowest_first else reversed(range(bits)))] for n in numbers]
    raw = np.packbits(np.array(digits, np.uint8).reshape(-1), bitorder="little" if lowest_first else "big")
    assert (unpacked(raw, 37, bits, lowest_first=lowest_first) == numbers).all()


def test_vectors_of_a_palette_widen_their_axis() -> None:
    table = np.arange(8, dtype=np.float32).reshape(1, 1, 4, 2)
    indices = np.array([[3, 0], [1, 2]], np.uint8)
    assert decoded_palette(indices, table, 0).tolist() == [[6, 0], [7, 1], [2, 4], [3, 5]]
    assert decoded_palette(indices, table, 1).tolist() == [[6, 7, 0, 1], [2, 3, 4, 5]]
    with pytest.raises(ModelError, match="has no entry 4"):
        decoded_palette(indices + 1, table, 0)


@pytest.mark.parametrize(("dims", "batch"), [({}, 2), ({"x.0": 1}, 1), ({"x.0": 8}, 8)])
def test_flexible_shapes_are_bound(dims: dict[str, int], batch: int) -> None:
    graph = load(DATA / "coreml" / "mobile.mlpackage", dims)
    assert graph.dims == {"x.0": batch} and graph.tensors[graph.outputs[0]].shape == (batch, 2, 16, 16)


def test_dims_outside_the_range_are_refused() -> None:
    with pytest.raises(OptionError, match=r"'x.0' .* cannot be 9: it may be 1 to 8"):
        load(DATA / "coreml" / "mobile.mlpackage", {"x.0": 9})
    with pytest.raises(OptionError, match="has no dim 'y'"):
        load(DATA / "coreml" / "mobile.mlpackage", {"y": 9})


def test_the_model_in_a_package_can_be_named_itself() -> None:
    folder = DATA / "coreml" / "cnn.mlpackage"
    whole, inner = load(folder), load(folder / MODEL)
    assert whole.ops == inner.ops and whole.sha256 == inner.sha256
    assert whole.name == "cnn" and whole.source == folder / "Manifest.json"
    assert whole.source is not None and load(whole.source).ops == whole.ops


def copied(tmp_path: Path, name: str) -> Path:
    target = tmp_path / name
    shutil.copytree(DATA / "coreml" / name, target)
    return target


def test_a_package_without_weights_is_planned_and_not_run(tmp_path: Path) -> None:
    folder = copied(tmp_path, "cnn.mlpackage")
    (folder / MODEL).parent.joinpath("weights", "weight.bin").unlink()
    graph = load(folder)
    assert [op.type for op in graph.ops] == [op.type for op in load(DATA / "coreml" / "cnn.mlpackage").ops]
    with pytest.raises(ModelError, match="are absent"):
        run(graph, {"x": NETS["cnn.in.x"]})


@pytest.mark.parametrize("path", ["../../../secret", "/etc/passwd", "a\\..\\..\\b", "C:\\b"])
def test_manifests_stay_in_the_package(tmp_path: Path, path: str) -> None:
    folder = copied(tmp_path, "state.mlpackage")
    manifest = json.loads((folder / "Manifest.json").read_text())
    manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"] = path
    (folder / "Manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="outside the package"):
        load(folder)


def test_links_out_of_the_package_are_refused(tmp_path: Path) -> None:
    folder = copied(tmp_path, "cnn.mlpackage")
    weights = (folder / MODEL).parent / "weights" / "weight.bin"
    shutil.move(weights, tmp_path / "weight.bin")
    weights.symlink_to(tmp_path / "weight.bin")
    with pytest.raises(ModelError, match="leads outside the model's folder"):
        load(folder)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [("{}", "not of any known"), ('{"itemInfoEntries": 3}', "names no model"), ('{"rootModelIdentifier": ', "not valid JSON")],
)
def test_bad_manifests(tmp_path: Path, manifest: str, message: str) -> None:
    (tmp_path / "Manifest.json").write_text(manifest)
    with pytest.raises(ModelError, match=message):
        load(tmp_path)


def test_blobs_are_checked(tmp_path: Path) -> None:
    folder = copied(tmp_path, "cnn.mlpackage")
    weights = (folder / MODEL).parent / "weights" / "weight.bin"
    raw = bytearray(weights.read_bytes())
    assert struct.unpack_from("<I", raw, 64) == (0xDEADBEEF,)
    weights.write_bytes(raw[:100])
    with pytest.raises(ModelError, match=r"are at .* in a file of 100 bytes|is truncated"):
        load(folder)
    raw[64] ^= 255
    weights.write_bytes(raw)
    with pytest.raises(ModelError, match="has no weights of"):
        load(folder)


def field(number: int, payload: bytes) -> bytes:
    """A field of a protobuf message that holds bytes."""
    tag = number << 3 | 2
    head = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    return head + (bytes([len(payload)]) if len(payload) < 128 else bytes([len(payload) & 127 | 128, len(payload) >> 7])) + payload


def network(layer: bytes, shape: tuple[int, ...] = (3, 4, 4)) -> bytes:
    """A neural network of one layer from ``x`` to ``y``."""
    array = b"".join(b"\x08" + bytes([n]) for n in shape) + b"\x10\xa0\x80\x04"
    description = field(1, field(1, b"x") + field(3, field(5, array))) + field(10, field(1, b"y"))
    return b"\x08\x04" + field(2, description) + field(500, field(1, field(1, b"layer") + field(2, b"x") + field(3, b"y") + layer))


def saved(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "model.mlmodel"
    path.write_bytes(content)
    return path


def computed(graph: Graph, x: np.ndarray[Any, Any]) -> Any:
    return run(graph, {"x": x.astype(np.float32)})[graph.outputs[0]]


def test_layers_of_hand_made_networks(tmp_path: Path) -> None:
    x = np.linspace(-2, 2, 48).reshape(1, 3, 4, 4)
    leaky = load(saved(tmp_path, network(field(130, field(15, b"\x0d" + struct.pack("<f", 0.25))))))
    np.testing.assert_allclose(computed(leaky, x), np.where(x < 0, x / 4, x), rtol=1e-6)
    flat = load(saved(tmp_path, network(field(301, b"\x08\x01"))))
    assert (computed(flat, x).reshape(-1) == x.transpose(0, 2, 3, 1).reshape(-1).astype(np.float32)).all(), "the channels last"
    pool = load(saved(tmp_path, network(field(120, b"\x08\x01\x50\x02\x50\x02\xa0\x01\x02\xa0\x01\x02" + field(30, b"")))))
    np.testing.assert_allclose(computed(pool, x), x.reshape(1, 3, 2, 2, 2, 2).mean((3, 5)), rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (field(500, b""), "the layer 'layer' is a custom of Core ML"),
        (field(420, b""), "is a uniDirectionalLSTM of Core ML"),
        (b"", "layer of an unknown kind"),
        (field(100, b"\x08\x08\x10\x03"), "its weights are missing"),
        (field(120, b"\x08\x02"), "L2 pooling is not supported"),
        (field(140, b"\x08\x30\x10\x02" + field(20, field(1, bytes(8)))), "need 384 bytes and have 8"),
    ],
)
def test_layers_that_are_refused(tmp_path: Path, layer: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(saved(tmp_path, network(layer)))


def test_other_kinds_of_models_are_named(tmp_path: Path) -> None:
    content = b"\x08\x04" + field(2, field(1, field(1, b"x"))) + field(302, b"")
    with pytest.raises(UnsupportedModelError, match="is a treeEnsembleRegressor, which is not supported"):
        load(saved(tmp_path, content))


def test_operations_that_are_not_handled_are_named(tmp_path: Path) -> None:
    folder = copied(tmp_path, "state.mlpackage")
    raw = (folder / MODEL).read_bytes()
    assert raw.count(b"\x06matmul") == 1
    (folder / MODEL).write_bytes(raw.replace(b"\x06matmul", b"\x06whatis"))
    with pytest.raises(UnsupportedModelError, match=r"node 'y.*' uses the Core ML operation whatis"):
        load(folder)


MODELS = [*sorted(DATA.rglob("*.mlmodel")), *sorted(DATA.rglob("*.onnx"))]


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.parts[-4] + "/" + p.name if p.name == "model.mlmodel" else p.name)
def test_core_ml_and_onnx_are_told_apart_by_content(path: Path) -> None:
    raw, is_coreml = path.read_bytes(), path.suffix == ".mlmodel"
    assert CoremlFrontend().recognises(raw[:4096]) is is_coreml
    for cut in (5, 40, 100, 500, 2000):  # a truncated file is never taken for one of the other format
        head = raw[:cut]
        assert not (OnnxFrontend() if is_coreml else CoremlFrontend()).recognises(head) or CoremlFrontend().recognises(head) is is_coreml


def test_onnx_files_from_odd_producers_stay_onnx() -> None:
    for producer in (b"R", b"RKNN-Toolkit", b"pytorch", b"\x52\x00", b"jax2onnx"):
        assert not CoremlFrontend().recognises(b"\x08\x08\x12" + bytes([len(producer)]) + producer + field(7, b"\x12\x01g")), producer
