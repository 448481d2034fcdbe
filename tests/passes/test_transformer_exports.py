"""Small transformers, exported by torch in two ways: the same few operators from both, and the same results as before.

``exports/make_exports.py`` makes the files.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard, undo, unfuse
from hetsched.reference import run, run_op
from hetsched_cost_models.work import work_of

FOLDER = Path(__file__).parent / "exports"
WAYS = ("torchscript", "dynamo")
ENCODER = {"Attention": 1, "MergedMatMul": 1, "FusedMatMul": 3, "SkipLayerNorm": 2}
DECODER = {"Attention": 1, "RotaryEmbedding": 2, "MergedMatMul": 2, "SkipRMSNorm": 2, "RMSNorm": 1, "MatMul": 2}
TABLES = {"Cast", "Mul", "Cos", "Sin", "Concat", "Unsqueeze", "Slice"}
EXPECTED = {
    "written": ENCODER,
    "sdpa": ENCODER,
    "bmm": ENCODER,
    "half": ENCODER,
    "boolean": {**ENCODER, "Greater": 1, "Where": 1},
    "causal": {**ENCODER, "ReduceSum": 1, "Add": 1},
    "filled": {**ENCODER, "Less": 1},
    "joined": {"LayerNormalization": 1, "Attention": 1, "MergedMatMul": 1, "FusedMatMul": 1, "SkipLayerNorm": 1},
    "split": {"Attention": 1, "MergedMatMul": 2, "FusedMatMul": 1, "MatMul": 1, "SkipLayerNorm": 2, "SwiGLU": 1},
    "module": {"LayerNormalization": 1, "Attention": 1, "MergedMatMul": 1, "Gemm": 1, "SkipLayerNorm": 1, "Reshape": 2},
    "cross": {"LayerNormalization": 1, "Attention": 1, "MergedMatMul": 1, "FusedMatMul": 2, "Add": 1},
    "decoder": {**DECODER, "SwiGLU": 1},
    "repeated": {**DECODER, "SwiGLU": 1},
    "decoder_half": {**DECODER, "SwiGLU": 1},
    "interleaved": {**DECODER, "GeGLU": 1},
}
COMPOSITES = ("Attention", "RotaryEmbedding", "MergedMatMul", "SkipLayerNorm", "SkipRMSNorm", "RMSNorm", "SwiGLU", "GeGLU")
BOTH = [(name, way) for name in EXPECTED for way in WAYS]


def loaded(name: str, way: str) -> Graph:
    return load(FOLDER / f"{name}_{way}.onnx")


def feeds_of(graph: Graph) -> dict[str, Any]:
    """Noise; masks that hide some keys of every row."""
    rng = np.random.default_rng(3)
    out: dict[str, Any] = {}
    for name in graph.inputs:
        t = graph.tensors[name]
        if name == "mask":
            hidden = (np.arange(t.elements) % 3 == 1).reshape(t.shape)
            out[name] = np.where(hidden, -30.0, 0.0).astype(t.dtype.numpy)
        elif t.dtype.is_float:
            out[name] = rng.standard_normal(t.shape).astype(t.dtype.numpy)
        else:
            out[name] = rng.integers(0, 9, t.shape).astype(t.dtype.numpy)
    return out


@pytest.mark.parametrize("name", EXPECTED)
def test_both_exports_become_the_same_operators(name: str) -> None:
    counts = [Counter(op.type for op in standard(loaded(name, way)).ops) for way in WAYS]
    assert counts[0] == counts[1]
    tables = {"Mul", *TABLES} if "RotaryEmbedding" in EXPECTED[name] else set()
    assert {k: v for k, v in counts[0].items() if k not in tables} == EXPECTED[name]
    macs = [work_of(standard(loaded(name, way))).macs.sum() for way in WAYS]
    assert macs[0] == macs[1] > 0


@pytest.mark.parametrize(("name", "way"), BOTH)
def test_nothing_that_is_computed_changes(name: str, way: str) -> None:
    graph = loaded(name, way)
    fused, feeds = standard(graph), feeds_of(graph)
    before, after, undone = (run(g, feeds) for g in (graph, fused, undo(fused, COMPOSITES)))
    for out in graph.outputs:
        np.testing.assert_array_equal(before[out], after[out])
        np.testing.assert_array_equal(before[out], undone[out])
    assert standard(fused).ops == fused.ops
    assert work_of(fused).macs.sum() == work_of(graph).macs.sum() == work_of(unfuse(fused)).macs.sum()


@pytest.mark.parametrize(("name", "way"), BOTH)
def test_composites_mean_what_their_bodies_do(name: str, way: str) -> None:
    graph = loaded(name, way)
    fused = standard(graph)
    values = {**{n: t.numpy() for n, t in fused.tensors.items() if t.is_constant}, **run(fused, feeds_of(graph))}
    seen: Counter[str] = Counter()
    for op in fused.ops:
        if op.type not in COMPOSITES or op.attr_int("joined", 0):
            continue
        seen[op.type] += 1
        inputs = [values[n] if n else None for n in op.inputs]
        for out, own in zip(op.outputs, run_op(replace(op, body=()), inputs), strict=True):
            loose = 4e-3 if own.dtype == np.float16 else 2e-6
            assert own.dtype == values[out].dtype
            np.testing.assert_allclose(own, values[out], rtol=loose, atol=loose)
    assert seen == {k: v for k, v in EXPECTED[name].items() if k in COMPOSITES and (k != "MergedMatMul" or seen[k])}


@pytest.mark.parametrize(("name", "way"), [pair for pair in BOTH if "half" not in pair[0]])
def test_results_are_those_of_onnx_runtime(name: str, way: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    graph = loaded(name, way)
    feeds = feeds_of(graph)
    session = ort.InferenceSession(FOLDER / f"{name}_{way}.onnx", providers=["CPUExecutionProvider"])
    theirs = session.run(list(graph.outputs), feeds)
    ours = run(standard(graph), feeds)
    for out, value in zip(graph.outputs, theirs, strict=True):
        np.testing.assert_allclose(ours[out], value, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("way", WAYS)
def test_caches_are_inputs_and_outputs_of_the_attention(way: str) -> None:
    graph = standard(loaded("decoder", way))
    (op,) = (op for op in graph.ops if op.type == "Attention")
    assert op.inputs[4:] == ("past_key", "past_value") and op.outputs[1:] == ("present_key", "present_value")
    assert (op.attrs["q_num_heads"], op.attrs["kv_num_heads"], op.attrs["scale"]) == (4, 2, pytest.approx(0.5))
    assert op.inputs[3] == "mask" and graph.tensors[op.inputs[2]].shape == (2, 6, 8) and graph.tensors[op.outputs[0]].shape == (2, 6, 16)
    tables = [op for op in graph.ops if op.type == "RotaryEmbedding"]
    assert all(graph.tensors[t.inputs[0]].shape[1] == 6 and len(graph.tensors[t.inputs[0]].shape) == 3 for t in tables)


def test_softcap_and_masks_are_attributes() -> None:
    (capped,) = (op for op in standard(loaded("interleaved", "dynamo")).ops if op.type == "Attention")
    assert capped.attrs["softcap"] == pytest.approx(5.0) and capped.attrs["scale"] == pytest.approx(0.5)
    (filled,) = (op for op in standard(loaded("filled", "torchscript")).ops if op.type == "Attention")
    assert filled.attrs["mask_inverted"] == 1 and filled.attr_float("mask_fill", 0) < -1e30 and filled.attrs["scale"] == pytest.approx(0.5)
    turned = [op.attrs["interleaved"] for op in standard(loaded("interleaved", "dynamo")).ops if op.type == "RotaryEmbedding"]
    assert turned == [1, 1]


@pytest.mark.parametrize("way", WAYS)
def test_one_level_of_undoing(way: str) -> None:
    graph = undo(standard(loaded("decoder", way)), ("Attention", "SkipRMSNorm", "MergedMatMul"))
    counts = Counter(op.type for op in graph.ops)
    assert counts["Attention"] == counts["SkipRMSNorm"] == counts["MergedMatMul"] == 0
    assert counts["RMSNorm"] == 3 and counts["SwiGLU"] == 1 and counts["RotaryEmbedding"] == 2
    assert counts["FusedSoftmax"] + counts["Softmax"] == 1 and counts["MatMul"] == 9 and counts["Add"] >= 2
