"""Exported programs of PyTorch: the same numbers as PyTorch, the same operators as the ONNX exports of the same nets, and refusals."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.frontends.torch_dims import FUNCTIONS, evaluate
from hetsched.frontends.torch_frontend import TorchExportFrontend
from hetsched.graph import DType, Graph, Role
from hetsched.passes import standard
from hetsched.reference import run

DATA = Path(__file__).parent / "data" / "torch"
EXPECTED = np.load(DATA / "expected.npz")
NETS = ("cnn", "encoder", "mobile", "decoder", "mixed")
SPELLINGS = ("pt2", "dynamo.onnx", "torchscript.onnx")


def feeds(net: str, graph: Graph) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs that PyTorch was given; states are zero."""
    names = {i: f"{net}.in.{i}" for i in graph.inputs}
    return {i: EXPECTED[n] if n in EXPECTED else np.zeros(graph.tensors[i].shape, np.float32) for i, n in names.items()}


def opened(net: str, spelling: str = "pt2") -> Graph:
    return load(DATA / f"{net}.{spelling}", {"x.0": 2} if net == "mobile" else {})


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("net", NETS)
def test_same_numbers_as_pytorch(net: str, fused: bool) -> None:
    graph = standard(opened(net)) if fused else opened(net)
    result = run(graph, feeds(net, graph))[graph.outputs[0]]
    assert result.shape == EXPECTED[f"{net}.out"].shape
    np.testing.assert_allclose(result, EXPECTED[f"{net}.out"], rtol=1e-4, atol=1e-5)


def in_onnx_runtime(graph: Graph, given: dict[str, Any]) -> Any:
    """The first output of a graph whose operators are ONNX's own, by ONNX Runtime."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    from hetsched.frontends.onnx_nodes import to_node
    from hetsched.reference.element_types import NUMBER_OF

    constants = [onnx.numpy_helper.from_array(np.ascontiguousarray(t.numpy()), n) for n, t in graph.tensors.items() if t.is_constant]
    ends = [
        [onnx.helper.make_tensor_value_info(n, NUMBER_OF[graph.tensors[n].dtype], graph.tensors[n].shape) for n in names]
        for names in (graph.inputs, graph.outputs)
    ]
    model = onnx.helper.make_model(onnx.helper.make_graph([to_node(op) for op in graph.ops], "g", *ends, constants))
    model.opset_import[0].version, model.ir_version = 21, 10
    return runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)[0]


@pytest.mark.parametrize("net", ["recurrent", "cnn", "mixed"])
def test_onnx_runtime_accepts_what_was_lowered(net: str) -> None:
    graph = opened(net)
    result = in_onnx_runtime(graph, feeds(net, graph))
    np.testing.assert_allclose(result, EXPECTED[f"{net}.out"], rtol=1e-4, atol=1e-5)


def test_recurrent_layers_stay_whole() -> None:
    kinds = [op.type for op in opened("recurrent").ops]
    assert (kinds.count("LSTM"), kinds.count("GRU")) == (2, 1)


def work(graph: Graph) -> int:
    """Multiply-accumulates of convolutions and matrix products."""
    total = 0
    for op in graph.ops:
        if op.type in {"Conv", "Gemm", "MatMul"}:
            sides = [graph.tensors[i].shape for i in op.inputs[:2]]
            out = graph.tensors[op.outputs[0]].elements
            depth = int(np.prod(sides[1][1:])) if op.type == "Conv" else sides[0][-1]
            total += out * depth
    return total


@pytest.mark.parametrize("spelling", SPELLINGS[1:])
@pytest.mark.parametrize("net", ["cnn", "encoder", "mobile"])
def test_same_work_as_the_onnx_exports(net: str, spelling: str) -> None:
    assert work(opened(net)) == work(opened(net, spelling)) > 1000
    convolutions = [sum(op.type == "Conv" for op in opened(net, s).ops) for s in ("pt2", spelling)]
    assert convolutions[0] == convolutions[1]


@pytest.mark.parametrize("net", ["cnn", "mobile"])
def test_same_fused_operators_as_the_onnx_exports(net: str) -> None:
    counts = {s: len(standard(opened(net, s)).ops) for s in SPELLINGS}
    assert len(set(counts.values())) == 1, counts


def test_weights_stay_in_the_file() -> None:
    ref = opened("cnn").tensors["b.0.weight"].data
    assert ref is not None and ref.array is None and ref.path == DATA / "cnn.pt2" and ref.length == 16 * 8 * 9 * 4
    turned = opened("encoder").tensors["up.weight/transposed"]
    assert turned.role is Role.WEIGHT and not turned.numpy().flags.c_contiguous, "a weight is turned over as a view"
    assert (turned.numpy() == zip_weight("encoder", "up.weight", (64, 16)).T).all()


def zip_weight(net: str, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    with zipfile.ZipFile(DATA / f"{net}.pt2") as archive:
        config = json.loads(archive.read(next(n for n in archive.namelist() if n.endswith("weights_config.json"))))["config"]
        folder = next(n for n in archive.namelist() if n.endswith("weights_config.json")).rpartition("/")[0]
        return np.frombuffer(archive.read(f"{folder}/{config[name]['path_name']}"), np.float32).reshape(shape)


def test_a_buffer_that_is_written_is_a_state() -> None:
    graph = opened("decoder")
    states = [n for n in (*graph.inputs, *graph.outputs) if graph.tensors[n].role is Role.STATE]
    assert states == ["keys", "values", "keys/next", "values/next"]
    assert graph.states == {"keys/next": "keys", "values/next": "values"} == standard(graph).states
    given = feeds("decoder", graph)
    given["keys"] = np.full_like(given["keys"], 3.0)
    after = run(graph, given)["keys/next"]
    assert (after[:, :, [0, 1, 2, 4, 5, 6, 7]] == 3).all() and (after[:, :, 3] != 3).any(), "the row of position 3 is new, others stay"


@pytest.mark.parametrize(("dims", "batch"), [({}, 1), ({"x.0": 7}, 7), ({"s77": 3}, 3)])
def test_the_batch_is_bound(dims: dict[str, int], batch: int) -> None:
    assert set(dims) <= {"x.0", *load(DATA / "mobile.pt2").dims}
    graph = load(DATA / "mobile.pt2", dims)
    assert graph.tensors[graph.outputs[0]].shape == (batch, 2, 16, 16) and list(graph.dims.values()) == [batch]


def test_a_dim_out_of_range_is_refused() -> None:
    with pytest.raises(OptionError, match="cannot be 65: it was exported for 1 to 64"):
        load(DATA / "mobile.pt2", {"x.0": 65})
    with pytest.raises(OptionError, match="has no dim 'width'"):
        load(DATA / "mobile.pt2", {"width": 4})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("s0", 5), ("2*s0 + 1", 11), ("Symbol('s0', positive=True, integer=True)", 5), ("(s0//2)", 2), ("Max(1, s0 - 9)", 1),
        ("Add(Mul(Integer(2), Symbol('s0')), Integer(-3))", 7), ("FloorDiv(s0 + 1, 4)", 1), ("Mod(s0, 2)", 1), ("s0**2", 25),
        ("TruncToInt(IntTrueDiv(s0, 2))", 2), ("Pow(s0, 2)", 25),
    ],
)  # fmt: skip
def test_expressions(text: str, value: int) -> None:
    assert evaluate(text, {"s0": 5}, "a size") == value


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("u0 + 1", UnsupportedModelError, "depends on the data"),
        ("__import__('os')", UnsupportedModelError, "computed with '__import__'"),
        ("s0.__class__", ModelError, "has no value"),
        ("9**9**9", ModelError, "has no value"),
        ("s0//0", ModelError, "has no value"),
        ("(" * 3000, ModelError, "has no value"),
        ("lambda: 1", ModelError, "has no value"),
    ],
)
def test_expressions_that_are_refused(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate(text, {"s0": 5}, "a size")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("count", range(5))
def test_functions_take_the_arguments_that_they_need(name: str, count: int) -> None:
    """Any other number is refused in words."""
    needed, text = FUNCTIONS[name][0], f"{name}({', '.join(['2'] * count)})"
    if (count == needed) if needed else (count > 0):
        assert evaluate(text, {}, "a size") >= 0
    else:
        with pytest.raises(ModelError, match="has no value"):
            evaluate(text, {}, "a size")


Edit = Callable[[dict[str, Any]], None]


def rewritten(tmp_path: Path, net: str, edit: Edit | None = None, skip: str = "\0", rename: tuple[str, str] = ("", "")) -> Path:
    """A net with its program edited, without the members whose name holds ``skip``."""
    path = tmp_path / "edited.pt2"
    with zipfile.ZipFile(DATA / f"{net}.pt2") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if skip in name:
                continue
            if "/models/" in name and edit is not None:
                described = json.loads(data)
                edit(described)
                data = json.dumps(described).encode()
            new.writestr(name.replace(*rename), data)
    return path


def test_a_program_without_weights_is_planned_and_not_run(tmp_path: Path) -> None:
    graph = load(rewritten(tmp_path, "cnn", skip="/weights/"))
    weight = graph.tensors["fc.weight"]
    assert [op.type for op in graph.ops] == [op.type for op in opened("cnn").ops]
    assert weight.data is not None and not weight.data.is_present
    with pytest.raises(ModelError, match=r"weights of 'stem\.0\.weight' are absent"):
        run(graph, feeds("cnn", graph))


def test_the_older_layout_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(DATA / "cnn.pt2") as old, zipfile.ZipFile(path, "w") as new:
        new.writestr("version", "2.5")
        new.writestr("serialized_exported_program.json", old.read(next(n for n in old.namelist() if "/models/" in n)))
        new.writestr("serialized_state_dict.pt", b"a pickle, which is never opened")
    assert [op.type for op in load(path).ops] == [op.type for op in opened("cnn").ops]


def nodes(program: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = program["graph_module"]["graph"]["nodes"]
    return found


def _target(program: dict[str, Any], old: str, new: str) -> None:
    next(n for n in nodes(program) if n["target"] == f"torch.ops.{old}")["target"] = f"torch.ops.{new}"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda p: _target(p, "aten.linear.default", "my.own.default"), "node 'linear' uses the PyTorch operator my.own.default"),
        (lambda p: _target(p, "aten.linear.default", "aten.nonzero.default"), "aten.nonzero.default, which is not supported"),
        (lambda p: p["schema_version"].update(major=99), "schema version 99"),
        (lambda p: nodes(p)[0]["inputs"][0].update(arg={"as_tensor": {"name": "ghost"}}), "reads 'ghost', which is never computed"),
        (lambda p: nodes(p)[0]["inputs"][0].update(arg={"as_int": 3}), "argument 'input' is not a tensor"),
        (lambda p: p["graph_module"]["graph"]["tensor_values"]["linear"].update(sizes=[{"as_int": 1}, {"as_int": 6}]), "the file says"),
        (lambda p: p["graph_module"]["graph"]["tensor_values"]["x"].update(dtype=10), "element type number 10"),
        (lambda p: p["graph_module"]["graph"]["tensor_values"]["x"].update(sizes=[{"as_int": -3}]), "damaged|negative|bind its dims"),
        (lambda p: p.pop("graph_module"), "its graph module is not an object"),
        (lambda p: p["graph_module"]["graph"].update(nodes=7), "its nodes is not a list"),
    ],
)
def test_bad_programs(tmp_path: Path, edit: Edit, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(rewritten(tmp_path, "cnn", edit))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (("m/data.pkl", "m/version"), "a file of torch.save .* pickle is not read"),
        (("m/code/__torch__/net.py", "m/data.pkl"), "a TorchScript archive"),
        (("metadata.json", "config.json", "model.weights.h5"), "a zip archive of Keras"),
        (("n.mlpackage/Manifest.json",), "Core ML package: unpack it"),
        (("a.txt",), "zip archive without an exported program"),
        (("m/models/a.json", "m/models/b.json"), "holds 2 programs"),
    ],
)
def test_other_archives(tmp_path: Path, members: tuple[str, ...], message: str) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name in members:
            archive.writestr(name, b"{}")
    with pytest.raises(ModelError, match=message):
        load(path)


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/models/model.json", bytes(1 << 24))
    assert path.stat().st_size < 1 << 16
    with pytest.raises(ModelError, match="unpacks to 16777216 bytes"):
        load(path)


def test_a_weight_that_is_too_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.pt2"
    with zipfile.ZipFile(DATA / "cnn.pt2") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data[:16] if name.endswith("weight_0") else data)
    with pytest.raises(ModelError, match=r"needs .* bytes and has 16"):
        load(path)


def test_weights_with_strides_are_views(tmp_path: Path) -> None:
    def edit(config: dict[str, Any]) -> None:
        config["config"]["fc.weight"]["tensor_meta"]["strides"] = [{"as_int": 1}, {"as_int": 5}]

    path = tmp_path / "strided.pt2"
    with zipfile.ZipFile(DATA / "cnn.pt2") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("weights_config.json"):
                described = json.loads(data)
                edit(described)
                data = json.dumps(described).encode()
            new.writestr(name, data)
    stored = zip_weight("cnn", "fc.weight", (5, 16)).reshape(16, 5)
    assert (load(path).tensors["fc.weight"].numpy() == stored.T).all()


def test_other_zip_archives_are_left_to_others() -> None:
    assert not TorchExportFrontend().recognises(b"PK\x03\x04" + bytes(64))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("m/models/model.json", b"{}")
    assert TorchExportFrontend().recognises(buffer.getvalue())


def test_types_of_the_program() -> None:
    graph = opened("encoder")
    assert graph.tensors["ids"].dtype is DType.I64 and graph.tensors[graph.outputs[0]].dtype is DType.F32
