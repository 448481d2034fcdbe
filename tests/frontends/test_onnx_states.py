"""Caches of ONNX decoders: pairs of past and present, and the dims of a phase."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetsched
from hetsched.app.language import PlannedLanguage
from hetsched.errors import ModelError, OptionError
from hetsched.frontends import load, phase_dims
from hetsched.graph import Role
from hetsched.passes import standard
from hetsched.reference import run
from hetsched.states import cache_bytes, in_place, kv_bytes_per_token, resident

VOCAB, HIDDEN, HEADS, DIM = 32, 16, 2, 8
GRAPHS = Path(__file__).parents[3] / "shared" / "models" / "graphs"
Dim = int | str


def decoder(
    path: Path, tokens: Dim = "sequence_length", past: Dim = "past_sequence_length", names: tuple[str, str] = ("past_key_values", "present")
) -> Path:
    """A decoder with one attention layer, as exporters write it, with symbolic dims or fixed ones."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((0.3 * rng.standard_normal(shape)).astype(np.float32), name)

    def sizes(name: str, *values: int) -> onnx.TensorProto:
        return numpy_helper.from_array(np.array(values, np.int64), name)

    before, after = names
    weights = [weight("emb", VOCAB, HIDDEN), *(weight(f"w{p}", HIDDEN, HIDDEN) for p in "qkv"), weight("head", HIDDEN, VOCAB)]
    weights += [sizes("heads", 0, 0, HEADS, DIM), sizes("rows", 0, 0, HIDDEN), numpy_helper.from_array(np.float32(DIM**-0.5), "scale")]
    node = helper.make_node
    nodes = [node("Gather", ["emb", "input_ids"], ["x"], "embed")]
    for p in "qkv":
        nodes += [node("MatMul", ["x", f"w{p}"], [f"{p}0"]), node("Reshape", [f"{p}0", "heads"], [f"{p}1"])]
        nodes += [node("Transpose", [f"{p}1"], [p], perm=[0, 2, 1, 3])]
    keys, values = f"{after}.0.key", f"{after}.0.value"
    nodes += [
        node("Concat", [f"{before}.0.key", "k"], [keys], axis=2), node("Concat", [f"{before}.0.value", "v"], [values], axis=2),
        node("Transpose", [keys], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["s0"]), node("Mul", ["s0", "scale"], ["s1"]),
        node("Add", ["s1", "attention_mask"], ["s2"]), node("Softmax", ["s2"], ["p"], axis=-1), node("MatMul", ["p", values], ["y0"]),
        node("Transpose", ["y0"], ["y1"], perm=[0, 2, 1, 3]), node("Reshape", ["y1", "rows"], ["y"]),
        node("MatMul", ["y", "head"], ["logits"]),
    ]  # fmt: skip
    value = helper.make_tensor_value_info
    total = past + tokens if isinstance(past, int) and isinstance(tokens, int) else f"{past} + {tokens}"
    inputs = [value("input_ids", TensorProto.INT64, ["batch_size", tokens])]
    inputs += [value("attention_mask", TensorProto.FLOAT, ["batch_size", 1, tokens, total])]
    inputs += [value(f"{before}.0.{k}", TensorProto.FLOAT, ["batch_size", HEADS, past, DIM]) for k in ("key", "value")]
    outputs = [value("logits", TensorProto.FLOAT, ["batch_size", tokens, VOCAB])]
    outputs += [value(n, TensorProto.FLOAT, ["batch_size", HEADS, None, DIM]) for n in (keys, values)]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString())
    return path


@pytest.mark.parametrize("names", [("past_key_values", "present"), ("past", "present"), ("past", "cat"), ("cache.in", "cache.out")])
def test_pairs_are_found_by_name_or_by_the_concat(tmp_path: Path, names: tuple[str, str]) -> None:
    graph = load(
        decoder(tmp_path / "d.onnx", names=names),
        {"sequence_length": 1, "past_sequence_length": 9, "past_sequence_length + sequence_length": 10},
    )
    before, after = names
    assert graph.states == {f"{after}.0.{k}": f"{before}.0.{k}" for k in ("key", "value")}
    assert {n for n, t in graph.tensors.items() if t.role is Role.STATE} == {*graph.states, *graph.states.values()}
    assert cache_bytes(graph) == 2 * HEADS * 10 * DIM * 4 and kv_bytes_per_token(graph) == 2 * HEADS * DIM * 4
    assert set(graph.states.values()) <= resident(graph), "what reads a past writes its next value"
    assert in_place(graph) == {}, "a Concat copies"


def test_other_models_have_no_states(two_branch: Path) -> None:
    assert load(two_branch, {"width": 16}).states == {}


def test_dims_of_a_phase(tmp_path: Path) -> None:
    path = decoder(tmp_path / "d.onnx")
    assert phase_dims(path, 4, 7) == {"sequence_length": 4, "past_sequence_length": 7, "past_sequence_length + sequence_length": 11}
    assert phase_dims(decoder(path, past="P", tokens="S"), 1, 0) == {"S": 1, "P": 0, "P + S": 1}


def test_an_empty_cache_computes_what_none_does(tmp_path: Path) -> None:
    path = decoder(tmp_path / "d.onnx")
    ids = np.array([[3, 7, 11]])
    whole = standard(load(path, phase_dims(path, 3, 0)))
    assert whole.tensors["past_key_values.0.key"].shape == (1, HEADS, 0, DIM)
    empty = np.zeros((1, HEADS, 0, DIM), np.float32)
    mask = np.triu(np.full((3, 3), -1e9, np.float32), 1)[None, None]
    y = run(whole, {"input_ids": ids, "attention_mask": mask, "past_key_values.0.key": empty, "past_key_values.0.value": empty})
    step = standard(load(path, phase_dims(path, 1, 2)))
    caches = {f"past_key_values.0.{k}": y[f"present.0.{k}"][:, :, :2] for k in ("key", "value")}
    last = run(step, {"input_ids": ids[:, 2:], "attention_mask": np.zeros((1, 1, 1, 3), np.float32), **caches})
    np.testing.assert_allclose(last["logits"][:, 0], y["logits"][:, 2], rtol=1e-5, atol=1e-6)
    with pytest.raises(OptionError, match="at least 1"):
        load(path, {"sequence_length": 0, "past_sequence_length": 2})


def test_a_dynamic_decoder_is_planned_in_two_phases(tmp_path: Path) -> None:
    found = hetsched.plan(decoder(tmp_path / "d.onnx"), "snapdragon-8-gen-3", prompt=20, generate=4, solver="heft", simulated=False)
    assert isinstance(found, PlannedLanguage)
    assert found.phases["prefill"].graph.tensors["logits"].shape == (1, 20, VOCAB)
    assert found.graph.tensors["present.0.key"].shape == (1, HEADS, 24, DIM)
    assert found.prediction.kv_cache_bytes == 2 * HEADS * 24 * DIM * 4


@pytest.mark.parametrize(("tokens", "past"), [(1, "past_sequence_length"), ("sequence_length", 8), (1, 8)])
def test_fixed_shapes_have_one_phase(tmp_path: Path, tokens: Dim, past: Dim) -> None:
    with pytest.raises(OptionError, match="are fixed"):
        phase_dims(decoder(tmp_path / "d.onnx", tokens, past), 4, 0)


def test_models_without_a_prompt_say_so(two_branch: Path) -> None:
    with pytest.raises(OptionError, match="no input of tokens"):
        phase_dims(two_branch, 4, 0)
    with pytest.raises(ModelError, match="no model file"):
        phase_dims(two_branch.with_name("absent.onnx"), 4, 0)


@pytest.mark.corpus
@pytest.mark.skipif(not GRAPHS.is_dir(), reason=f"the shared corpus is absent ({GRAPHS})")
@pytest.mark.parametrize(
    ("name", "pairs", "each"), [("smollm2_135m_decode_p512", 60, 2 * 30 * 3 * 64 * 4), ("llama32_1b_1layer_decode_p512", 2, 2 * 8 * 64 * 4)]
)
def test_the_corpus_has_fixed_decoders(name: str, pairs: int, each: int) -> None:
    graph = load(GRAPHS / f"{name}.onnx")
    assert len(graph.states) == pairs and kv_bytes_per_token(graph) == each
    with pytest.raises(OptionError, match="are fixed"):
        phase_dims(GRAPHS / f"{name}.onnx", 512, 0)
