"""Composites of transformers: exact work, and what a processor pays that does not have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.fusions import Fusions
from hetsched.graph import Graph, Op
from hetsched.passes import standard, undo
from hetsched.passes.unfuse import parts
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table
from hetsched_cost_models.composites import taken_apart
from hetsched_cost_models.work import work_of

EXPORTS = Path(__file__).parent.parent / "passes" / "exports"
NAMES = ("sdpa_dynamo", "joined_torchscript", "module_dynamo", "cross_dynamo", "decoder_torchscript", "interleaved_dynamo", "bmm_dynamo")
NONE = Fusions(value=(), estimated="a processor without fusions")
ALL = Fusions(
    value=("Attention", "RotaryEmbedding", "MergedMatMul", "SkipLayerNorm", "SkipRMSNorm", "RMSNorm", "SwiGLU", "GeGLU", "FusedMatMul",
           "FusedGemm", "FusedElementwise", "FusedSoftmax"), estimated="a processor with all",
)  # fmt: skip


def fused(name: str) -> Graph:
    return standard(load(EXPORTS / f"{name}.onnx"))


@pytest.mark.parametrize("name", NAMES)
def test_macs_of_a_composite_are_those_of_its_parts(name: str) -> None:
    graph = fused(name)
    own = work_of(graph).macs
    for op, macs in zip(graph.ops, own, strict=True):
        assert macs == work_of(graph, tuple(parts(op))).macs.sum(), op.type
    assert any(op.type == "Attention" and macs > 0 for op, macs in zip(graph.ops, own, strict=True))


def test_bytes_of_an_attention_are_its_inputs_and_outputs() -> None:
    graph = fused("decoder_dynamo")
    i = next(i for i, op in enumerate(graph.ops) if op.type == "Attention")
    op, work = graph.ops[i], work_of(graph)
    appended = 2 * sum(graph.tensors[n].elements for n in op.inputs[4:])  # a cache is read, and only new tokens are written to it
    read_and_written = sum(graph.tensors[n].elements for n in (*op.inputs, *op.outputs))
    assert work.float_elems[i] + work.state_bytes[i] / 4 == read_and_written - appended / 2
    scores = 2 * 4 * 6 * 9
    assert work.activation_elems[i] == scores and work.macs[i] == scores * (4 + 4)
    assert (work.m[i], work.n[i], work.k[i]) == (12, 9, 4)


def test_merged_products_read_their_input_once() -> None:
    graph = fused("sdpa_dynamo")
    i = next(i for i, op in enumerate(graph.ops) if op.type == "MergedMatMul")
    work = work_of(graph)
    assert work.macs[i] == 3 * 12 * 16 * 16 and (work.m[i], work.n[i], work.k[i]) == (12, 48, 16)
    assert work.float_elems[i] == (1 + 3) * 12 * 16 and work.weight_float_elems[i] == 3 * (16 * 16 + 16)


def test_a_processor_without_a_fusion_pays_for_the_parts() -> None:
    graph = fused("decoder_dynamo")
    whole = work_of(graph)
    apart = taken_apart(graph, NONE, whole)
    assert apart.start is not None and len(apart.start) == len(graph.ops)
    ends = [*apart.start[1:], len(apart.work.macs)]
    for i, (op, a, b) in enumerate(zip(graph.ops, apart.start, ends, strict=True)):
        assert b - a == len(list(parts(op)))
        assert apart.work.macs[a:b].sum() == whole.macs[i]
        assert apart.work.float_elems[a:b].sum() >= whole.float_elems[i]
    assert taken_apart(graph, ALL, whole).work is whole


def test_parts_that_are_fused_stay_whole() -> None:
    graph = fused("written_dynamo")
    some = Fusions(value=("FusedMatMul", "FusedSoftmax"), estimated="an example")
    apart = taken_apart(graph, some, work_of(graph))
    undone = undo(graph, ("Attention", "MergedMatMul", "SkipLayerNorm"))
    assert sorted(apart.work.macs) == sorted(work_of(undone).macs)


def test_quantization_in_a_body_is_no_part(save: Callable[..., Path]) -> None:
    constants = "float s = {0.1}, uint8 z = {3}, float[4] g = {1,2,3,4}, float[4] b = {0,1,0.5,1}"
    text = "d = DequantizeLinear(x, s, z) t = Add(d, r) n = LayerNormalization(t, g, b) y = QuantizeLinear(n, s, z)"
    graph = standard(load(save(f"q (uint8[2,4] x, float[2,4] r) => (uint8[2,4] y) <{constants}> {{ {text} }}")))
    (op,) = graph.ops
    assert op.type == "SkipLayerNorm" and op.inputs[0] == "x" and op.outputs == ("y",)
    apart = taken_apart(graph, NONE, work_of(graph))
    assert apart.start is not None and len(apart.work.macs) == 2
    assert apart.work.quant_elems.sum() == 16


def test_an_operator_that_the_file_defines_by_others_is_one_part(save: Callable[..., Path]) -> None:
    """ONNX's GroupNormalization has a body of many operators, which no pass has fused: compilers see one."""
    text = "g (float[2,4,3,3] x) => (float[a,b,c,d] y) <float[4] g = {1,2,3,4}, float[4] b = {0,1,0.5,1}>"
    graph = standard(load(save(f"{text} {{ y = GroupNormalization<num_groups = 2>(x, g, b) }}", opset=21)))
    (op,) = graph.ops
    assert op.type == "GroupNormalization" and len(op.body) > 5 and not op.is_fusion
    whole = work_of(graph)
    assert taken_apart(graph, NONE, whole).work is whole and undo(graph, ("GroupNormalization",)).ops == graph.ops


def test_the_table_charges_only_where_it_is_not_fused() -> None:
    """On the phone's CPU residual and norm are one kernel, on its NPU they are two."""
    chip = load_soc("snapdragon-8-gen-3")
    graph = undo(fused("written_dynamo"), ("Attention", "MergedMatMul"))
    table, plain = build_table(graph, chip, precision="float"), build_table(undo(graph, ("SkipLayerNorm",)), chip, precision="float")

    def seconds(table_: object, names: tuple[str, ...], kind: str) -> float:
        t = build_table(graph, chip, precision="float") if table_ is table else plain
        rows = [i for i, name in enumerate(t.op_names) if name in names]
        queue = next(q for q, queue in enumerate(t.queues) if queue.kind == kind)
        return float(sum(t.compute_s[a] + t.overhead_s[a] for i in rows for a in _alternatives(t, i) if t.alt_queue[a] == queue))

    skip = next(op for op in graph.ops if op.type == "SkipLayerNorm")
    names = tuple(part.name for part in skip.body)
    assert seconds(table, (skip.name,), "npu") == pytest.approx(seconds(plain, names, "npu"))
    assert seconds(table, (skip.name,), "cpu") < seconds(plain, names, "cpu")


def _alternatives(table: object, op: int) -> range:
    start = np.asarray(table.alt_start)  # type: ignore[attr-defined]
    return range(int(start[op]), int(start[op + 1]))


def test_an_attention_without_a_body_has_the_same_work() -> None:
    graph = fused("decoder_dynamo")
    ops = tuple(replace(op, body=()) if op.type == "Attention" else op for op in graph.ops)
    assert isinstance(ops[0], Op)
    np.testing.assert_array_equal(work_of(graph.replace(ops=ops)).macs, work_of(graph).macs)
