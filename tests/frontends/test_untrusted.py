"""What files from strangers may not do, and what must keep working all the same: links, functions, views of constants, messages."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from hetsched.errors import MAX_MESSAGE, MAX_QUOTED, ModelError
from hetsched.frontends import load
from hetsched.frontends.cleanup import without_no_ops
from hetsched.graph import DType, Op, Role, Tensor, WeightRef
from hetsched.reference import run

Save = Callable[..., Path]
CONFIG = {
    "model_type": "llama", "vocab_size": 60, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip
FUNCTION = '<opset_import: ["" : 18, "own" : 1], domain: "own">'


def test_the_links_of_the_hub_cache_are_followed(tmp_path: Path) -> None:
    """Hugging Face's cache keeps the files in ``blobs`` and links to them from ``snapshots/REVISION``."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "1").write_text(json.dumps(CONFIG))
    (blobs / "2").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    (snapshot / "config.json").symlink_to("../../blobs/1")
    assert load(snapshot, {"tokens": 1}).ops
    (snapshot / "model.safetensors").symlink_to("../../blobs/2")
    with pytest.raises(ModelError, match="has no weight"):
        load(snapshot, {"tokens": 1})
    (snapshot / "model.safetensors").unlink()
    (tmp_path / "other").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    (snapshot / "model.safetensors").symlink_to("../../other")
    with pytest.raises(ModelError, match="a link that leads outside the model's folder"):
        load(snapshot, {"tokens": 1})


def functions(*definitions: str, call: str = "f") -> onnx.ModelProto:
    text = f'<ir_version: 9, opset_import: ["" : 18, "own" : 1]> g (float[2] x) => (float[2] y) {{ y = own.{call}(x) }}\n'
    return onnx.parser.parse_model(text + "\n".join(f"{FUNCTION} {d}" for d in definitions))


def test_functions_are_inlined(save: Save) -> None:
    graph = load(save(functions("f (a) => (b) { c = own.h(a)  b = own.h(c) }", "h (a) => (b) { d = Neg(a)  b = Relu(d) }")))
    assert [op.type for op in graph.ops] == ["Neg", "Relu"] * 2


@pytest.mark.parametrize(
    ("definitions", "message"),
    [
        (["f (a) => (b) { b = own.f(a) }"], "calls itself"),
        (["f (a) => (b) { b = own.h(a) }", "h (a) => (b) { b = own.f(a) }"], "calls itself"),
        (
            [f"f{k} (a) => (b) {{ c = own.f{k + 1}(a)  b = own.f{k + 1}(c) }}" for k in range(30)] + ["f30 (a) => (b) { b = Relu(a) }"],
            "nodes",
        ),
        ([f"f{k} (a) => (b) {{ b = own.f{k + 1}(a) }}" for k in range(99)] + ["f99 (a) => (b) { b = Relu(a) }"], "64 functions deep"),
    ],
)
def test_functions_without_end_are_refused(save: Save, definitions: list[str], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(save(functions(*definitions, call="f" if definitions[0].startswith("f ") else "f0")))


def test_functions_that_nobody_calls_may_not_call_themselves_either(save: Save) -> None:
    model = functions("f (a) => (b) { b = own.f(a) }")
    model.graph.node[0].domain, model.graph.node[0].op_type = "", "Relu"
    with pytest.raises(ModelError, match="functions of the graph 'g' are not valid"):
        load(save(model))


def test_a_message_has_no_control_characters(save: Save) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> g (float[2,n] x) => (float[2,n] y) { y = Relu(x) }')
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "a\n\x1b[31mb"
    with pytest.raises(ModelError) as caught:
        load(save(model))
    assert str(caught.value).isprintable() and r"a\n\x1b[31mb" in str(caught.value)


@pytest.mark.parametrize("perms", [[(1, 0)], [(1, 0), (1, 0)], [(2, 0, 1)], [(2, 0, 1), (0, 2, 1)]])
def test_transposed_constants_stay_in_the_file(save: Save, perms: list[tuple[int, ...]]) -> None:
    shape = (40, 50) if len(perms[0]) == 2 else (10, 20, 30)
    nodes, value, last = "", np.random.default_rng(0).standard_normal(shape).astype(np.float32), "w"
    expected = value
    for k, perm in enumerate(perms):
        nodes += f" t{k} = Transpose<perm = [{', '.join(map(str, perm))}]>({last}) "
        last, expected = f"t{k}", expected.transpose(perm)
    axes = ", ".join("abc"[: len(shape)])
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> g (float[1] x) => (float[{axes}] y) {{ {nodes} y = Mul({last}, x) }}'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(value, "w"))
    graph = load(save(model))
    assert [op.type for op in graph.ops] == ["Mul"]
    data = graph.tensors[graph.ops[0].inputs[0]].data
    assert data is not None and data.path is not None and data.array is None
    np.testing.assert_array_equal(run(graph, {"x": np.ones(1, np.float32)})["y"], expected)


def test_a_reshaped_transposed_constant_is_no_view(save: Save) -> None:
    value = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[1] x) => (float[a] y) <int64[1] s = {-1}>'
        "{ t = Transpose<perm = [1, 0]>(w)  r = Reshape(t, s)  y = Mul(r, x) }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(value, "w"))
    graph = load(save(model))
    np.testing.assert_array_equal(run(graph, {"x": np.ones(1, np.float32)})["y"], value.T.reshape(-1))


def test_outputs_that_are_copies_take_the_name_of_the_result() -> None:
    """Many at once: each output is written by the operator whose result it was a copy of, and its readers follow."""
    count = 300
    tensors = {f"{k}{i}": Tensor(f"{k}{i}", (2,), DType.F32, Role.ACTIVATION) for i in range(count) for k in "rys"}
    tensors["x"] = Tensor("x", (2,), DType.F32, Role.INPUT)
    ops = [Op(f"relu{i}", "Relu", ("x",), (f"r{i}",)) for i in range(count)]
    ops += [Op(f"copy{i}", "Identity", (f"r{i}",), (f"y{i}",)) for i in range(count)]
    ops += [Op(f"neg{i}", "Neg", (f"r{i}",), (f"s{i}",)) for i in range(count)]
    outputs = [f"{k}{i}" for i in range(count) for k in "ys"]
    kept = without_no_ops(ops, tensors, ["x"], outputs)
    assert [op.type for op in kept] == ["Relu"] * count + ["Neg"] * count
    assert all(kept[i].outputs == (f"y{i}",) and kept[count + i].inputs == (f"y{i}",) for i in range(count))


def test_where_bytes_are_is_compared_with_their_order() -> None:
    here = Path(os.devnull)
    assert WeightRef(here, 0, 8) != WeightRef(here, 0, 8, order=(1, 0))


@pytest.mark.parametrize(("own", "says"), [(MemoryError, "more memory than this machine"), (RecursionError, "nested too deeply")])
def test_what_is_too_much_for_the_machine_is_an_error_of_the_model(
    save: Save, monkeypatch: pytest.MonkeyPatch, own: type[Exception], says: str
) -> None:
    from hetsched.frontends import onnx_frontend, phase_dims

    path = save(onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'))

    def fails(_: Path) -> None:
        raise own

    monkeypatch.setattr(onnx_frontend, "parse", fails)
    with pytest.raises(ModelError, match=says):
        load(path)
    with pytest.raises(ModelError, match=says):
        phase_dims(path, 1, 0)


@pytest.mark.parametrize("length", [10, 160, 161, 200_000])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_long_names_are_shortened_in_messages(length: int, quote: str) -> None:
    name = "a" + "n" * (length - 2) + "z"
    text = f"the model's node {quote}{name}{quote} reads the model's other value"
    said = str(ModelError(text))
    if length <= MAX_QUOTED:
        assert said == text
    else:
        shown = said.split(quote if quote == '"' else " '")[1].split(quote)[0]
        assert "…" in shown and shown[0] == "a" and shown[-1] == "z" and len(shown) <= MAX_QUOTED
    assert said.startswith("the model's node ") and said.endswith(" reads the model's other value")


def test_long_messages_are_shortened() -> None:
    said = str(ModelError("begin " + ", ".join(map(str, range(100_000))) + " end"))
    assert len(said) == MAX_MESSAGE and said.startswith("begin 0, 1") and said.endswith(" end")


def test_prose_between_apostrophes_is_no_name() -> None:
    text = "the model's folder " + "is very long " * 20 + "and the user's own"
    assert str(ModelError(text)) == text


def test_names_inside_nested_branches_stay_short(save: Save) -> None:
    """Every level puts its name before those inside, unless that is long; what is read has the values of the file's names."""
    import onnxruntime

    from hetsched.frontends.onnx_bodies import node_of
    from hetsched.frontends.onnx_unfolding import Unfolding

    long = "n" * 1000
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[2] x, bool c) => (float[2] y) {{
        [{long}] y = If(c) < then_branch = t () => (float[2] p) {{ [{long}] p = If(c) <
            then_branch = t () => (float[2] q) {{ [{long}] q = Relu(x) }}, else_branch = e () => (float[2] r) {{ r = Neg(x) }} > }},
            else_branch = e () => (float[2] s) {{ s = Exp(x) }} > }}"""
    graph = load(save(onnx.parser.parse_model(text)))
    assert all(len(name) < 1100 for name in graph.tensors)
    ends = [onnx.helper.make_tensor_value_info("x", 1, [2]), onnx.helper.make_tensor_value_info("c", 9, [])]
    nodes = onnx.helper.make_graph([node_of(op) for op in graph.ops], "g", ends, [onnx.helper.make_tensor_value_info("y", 1, [2])])
    read = onnx.helper.make_model(nodes, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(read.SerializeToString(), providers=["CPUExecutionProvider"])
    for flag, expected in ((True, [0.0, 2.0]), (False, np.exp([-1.0, 2.0]))):
        (found,) = session.run(None, {"x": np.array([-1, 2], np.float32), "c": np.array(flag)})
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    labels = Unfolding()
    assert [labels.label("If", n) for n in ("short", long, long)] == ["short", "If~1", "If~2"]


def test_a_packed_constant_is_not_made_if_it_is_too_large() -> None:
    from hetsched.frontends.coreml_builder import compressed_constant

    stored = Tensor("s", (1,), DType.U8, Role.WEIGHT, None, WeightRef(array=np.zeros(1, np.uint8)))

    def never() -> np.ndarray:
        raise AssertionError("values were made")

    tensor = compressed_constant("w", (1 << 14, 1 << 14), DType.F32, 1, stored, never)
    with pytest.raises(ModelError, match=r"'w' of shape \[16384, 16384\] takes 1024 MiB when dense, and at most 512"):
        tensor.numpy()
