"""Work and support of the composites of language models, by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.graph import DType, Graph, Quantization, Role
from hetsched.socs import SoC
from hetsched_cost_models import build_table
from hetsched_cost_models.language import visible_pairs
from hetsched_cost_models.operators import CLASSES, VECTOR_KINDS
from hetsched_cost_models.support import support_table
from hetsched_cost_models.work import work_of

GraphOf = Callable[..., Graph]
TABLES = ("hexagon-qnn", "hexagon-litert", "apu-litert", "gpu-litert", "ane-coreml")
HEADS, KV, D = 6, 2, 8


def with_tensors(graph: Graph, changes: dict[str, dict[str, Any]]) -> Graph:
    return graph.replace(tensors={n: replace(t, **changes.get(n, {})) for n, t in graph.tensors.items()})


def attention(graph_of: GraphOf, tokens: int, past: int, window: int = 0, batch: int = 1, softcap: float = 0.0) -> Graph:
    kept = min(past + tokens, window - 1) if window else past + tokens
    attrs = {"num_heads": HEADS, "kv_num_heads": KV, "head_dim": D, "batch": batch, "window": window, "scale": 1.0, "softcap": softcap}
    shapes = {
        "q": (batch * tokens, HEADS * D), "k": (batch * tokens, KV * D), "v": (batch * tokens, KV * D), "y": (batch * tokens, HEADS * D),
        "nk": (batch, KV, kept, D), "nv": (batch, KV, kept, D),
    }  # fmt: skip
    if past:
        shapes |= {"pk": (batch, KV, past, D), "pv": (batch, KV, past, D)}
    reads = ["q", "k", "v", *(("pk", "pv") if past else ("", ""))]
    graph = graph_of([("GroupQueryAttention", reads, ["y", "nk", "nv"], attrs)], shapes)
    state = {"dtype": DType.F16, "role": Role.STATE}
    return with_tensors(graph, dict.fromkeys(("pk", "pv", "nk", "nv"), state))


@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 8))
def test_visible_pairs_are_those_of_the_mask(queries: int, past: int, window: int) -> None:
    past = min(past, window - 1) if window else past
    at, key = np.arange(past, past + queries)[:, None], np.arange(past + queries)[None, :]
    seen = (at >= key) & ((at - key < window) if window else True)
    assert visible_pairs(queries, past, window) == seen.sum()


@pytest.mark.parametrize(
    ("tokens", "past", "window", "batch", "pairs"),
    [(1, 512, 0, 1, 513), (4, 0, 0, 1, 10), (4, 0, 0, 3, 30), (3, 2, 0, 1, 12), (1, 3, 4, 1, 4), (8, 0, 3, 1, 21), (5, 2, 3, 2, 30)],
)
def test_attention_counts_visible_pairs(graph_of: GraphOf, tokens: int, past: int, window: int, batch: int, pairs: int) -> None:
    work = work_of(attention(graph_of, tokens, past, window, batch))
    assert work.macs[0] == 2 * HEADS * D * pairs
    assert work.activation_elems[0] == HEADS * pairs
    assert (CLASSES[work.cls[0]], VECTOR_KINDS[work.kind[0]], work.unknown) == ("matmul", "matrix", ())
    assert work.macs[0] == pytest.approx(2 * batch * KV * work.m[0] * work.n[0] * work.k[0])


def test_a_cap_on_scores_is_one_more_function(graph_of: GraphOf) -> None:
    assert work_of(attention(graph_of, 1, 9, softcap=30.0)).activation_elems[0] == 2 * HEADS * 10


def test_a_cache_is_read_once_and_only_new_tokens_are_written(graph_of: GraphOf) -> None:
    row = 2 * KV * D * 2  # keys and values of one position, float16
    assert work_of(attention(graph_of, 1, 512)).state_bytes[0] == 512 * row + row
    assert work_of(attention(graph_of, 16, 0)).state_bytes[0] == 16 * row
    assert work_of(attention(graph_of, 1, 3, window=4)).state_bytes[0] == 3 * row + row
    work = work_of(attention(graph_of, 2, 512))
    assert work.float_elems[0] == 2 * (2 * HEADS * D + 2 * KV * D), "caches are not activations"


def test_a_longer_context_is_slower_everywhere(graph_of: GraphOf, soc: SoC) -> None:
    short, long = (build_table(attention(graph_of, 1, past), soc) for past in (512, 65536))
    assert np.all(long.time_s > short.time_s)
    assert np.all(long.dram_bytes > 0.9 * 65536 * 2 * KV * D * 2), "a large cache comes from DRAM"
    assert np.all(long.weight_bytes == 0)


def mixture(graph_of: GraphOf, rows: int, stacked: bool, active: float) -> Graph:
    hidden, ffn, experts, chosen = 8, 12, 4, 2
    parts = {"gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}
    weights = {n: (experts, *s) for n, s in parts.items()} if stacked else {f"{n}{e}": s for n, s in parts.items() for e in range(experts)}
    attrs = {
        "num_experts": experts, "experts_per_token": chosen, "activation": "silu", "stacked": int(stacked), "active_experts": active,
        "active_weight_bytes": round(3 * hidden * ffn * 4 * active),
    }  # fmt: skip
    shapes = {"x": (rows, hidden), "share": (rows, chosen), "expert": (rows, chosen), **weights, "y": (rows, hidden)}
    ops = [("MoE", ["x", "share", "expert", *weights], ["y"], attrs)]
    return graph_of(ops, shapes, constants=tuple(weights), dtypes={"expert": DType.I64})


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize(("rows", "active"), [(1, 2.0), (5, 3.875)])
def test_only_active_experts_are_computed_and_read(graph_of: GraphOf, stacked: bool, rows: int, active: float) -> None:
    work = work_of(mixture(graph_of, rows, stacked, active))
    assert work.macs[0] == rows * 2 * 3 * 8 * 12
    assert work.weight_float_elems[0] == pytest.approx(3 * 8 * 12 * active)
    assert work.activation_elems[0] == rows * 2 * 12
    assert (work.n[0], work.k[0], CLASSES[work.cls[0]]) == (12, 8, "gemm")


def test_state_spaces(graph_of: GraphOf) -> None:
    rows, channels, states, kernel = 6, 32, 8, 4
    shapes = {"x": (rows, channels), "w": (channels, kernel), "b": (channels,), "p": (2, channels, 3), "y": (rows, channels)}
    ops = [("CausalConv", ["x", "w", "b", "p"], ["y", "n"], {"batch": 2})]
    g = graph_of(ops, {**shapes, "n": (2, channels, 3)}, constants=("w", "b"))
    g = with_tensors(g, {"p": {"role": Role.STATE}, "n": {"role": Role.STATE}})
    work = work_of(g)
    assert work.macs[0] == rows * channels * kernel
    assert work.state_bytes[0] == 2 * (2 * channels * 3) * 4
    assert work.weight_float_elems[0] == channels * (kernel + 1)
    g = scan(graph_of, rows, 1, channels, states)
    work = work_of(g)
    assert work.macs[0] == rows * channels * (3 * states + 1)
    assert work.activation_elems[0] == rows * channels * (states + 1)
    assert work.unknown == ()


def scan(graph_of: GraphOf, rows: int, batch: int, channels: int = 32, states: int = 8) -> Graph:
    wide, narrow = (rows, channels), (rows, states)
    shapes = {"x": wide, "step": wide, "a": (channels, states), "b": narrow, "c": narrow, "d": (channels,), "y": wide}
    ops = [("SelectiveScan", ["x", "step", "a", "b", "c", "d", ""], ["y"], {"batch": batch, "state_size": states})]
    return graph_of(ops, shapes, constants=("a", "d"))


@pytest.mark.parametrize(("op_type", "kind"), [("RMSNorm", "norm"), ("RotaryEmbedding", "elementwise"), ("Router", "softmax")])
def test_vector_composites_are_known(graph_of: GraphOf, op_type: str, kind: str) -> None:
    work = work_of(graph_of([(op_type, ["x"], ["y"])], {"x": (4, 8), "y": (4, 8)}))
    assert (VECTOR_KINDS[work.kind[0]], work.macs[0], work.unknown) == (kind, 0, ())


def blocks(graph: Graph, name: str, dtype: DType, group: int, nbytes: int) -> Graph:
    quantization = Quantization(granularity="group", axis=-1, group=group, scheme="gguf:test", block_bytes=nbytes)
    return with_tensors(graph, {name: {"dtype": dtype, "quantization": quantization}})


def test_blocks_weigh_what_they_are_stored_in(graph_of: GraphOf, soc: SoC) -> None:
    shapes = {"x": (1, 512), "w": (4096, 512), "y": (1, 4096)}
    plain = graph_of([("Gemm", ["x", "w"], ["y"], {"transB": 1})], shapes, constants=("w",))
    g = blocks(plain, "w", DType.U4, 256, 144)
    work = work_of(g)
    assert work.weight_packed_bytes[0] == 4096 * 512 * 144 / 256
    assert work.weight_packed_elems[0] == 4096 * 512
    assert work.weight_quant_elems[0] == work.weight_float_elems[0] == 0
    t, f = build_table(g, soc), build_table(plain, soc)
    for a, queue in enumerate(t.alt_queue.tolist()):
        if t.queues[queue].kind == "cpu":
            ratio = 4096 * 512 * 144 / 256 / 1e6
            assert t.weight_bytes[a] == pytest.approx(4096 * 512 * 144 / 256 * ratio**4 / (1 + ratio**4))
        else:
            assert t.weight_bytes[a] == f.weight_bytes[a], "accelerators have no such blocks: they hold float16"


def test_rows_of_a_table_in_blocks(graph_of: GraphOf) -> None:
    shapes = {"table": (1000, 64), "ids": (3,), "y": (3, 64)}
    g = graph_of([("Gather", ["table", "ids"], ["y"], {"axis": 0})], shapes, constants=("table",), dtypes={"ids": DType.I64})
    assert work_of(blocks(g, "table", DType.I8, 32, 34)).weight_packed_bytes[0] == pytest.approx(3 * 64 * 34 / 32)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_16_bit_weights_are_read_as_they_are(graph_of: GraphOf, dtype: DType) -> None:
    g = graph_of([("MatMul", ["x", "w"], ["y"])], {"x": (1, 8), "w": (8, 4), "y": (1, 4)}, constants=("w",), dtypes={"w": dtype})
    work = work_of(g)
    assert (work.weight_packed_bytes[0], work.weight_packed_elems[0], work.weight_float_elems[0]) == (64, 32, 0)


def test_norms_and_rotations_go_where_their_parts_go(graph_of: GraphOf) -> None:
    norm = graph_of([("RMSNorm", ["x", "s"], ["y"])], {"x": (4, 8), "s": (8,), "y": (4, 8)}, constants=("s",))
    turn = graph_of([("RotaryEmbedding", ["x", "c", "s"], ["y"])], {"x": (4, 8), "c": (4, 4), "s": (4, 4), "y": (4, 8)})
    for name in TABLES:
        assert support_table(name).refusal(norm, norm.ops[0], "f16") is None, name
        assert support_table(name).refusal(turn, turn.ops[0], "f16") is None, name
    tables = graph_of(
        [("RotaryEmbedding", ["x", "p", "c", "s"], ["y"])],
        {"x": (4, 8), "p": (4,), "c": (99, 4), "s": (99, 4), "y": (4, 8)}, constants=("c", "s"), dtypes={"p": DType.I32},
    )  # fmt: skip
    assert "not in the operator list" in (support_table("gpu-litert").refusal(tables, tables.ops[0], "f16") or "")


def test_attention_goes_where_products_and_softmax_go(graph_of: GraphOf) -> None:
    g = attention(graph_of, 1, 16)
    for name in TABLES:
        assert support_table(name).refusal(g, g.ops[0], "f16") is None, name


def test_what_depends_on_data_stays_on_the_cpu(graph_of: GraphOf, soc: SoC) -> None:
    experts, loop = mixture(graph_of, 1, True, 2.0), scan(graph_of, 6, 1)
    for name in TABLES:
        assert "which experts" in (support_table(name).refusal(experts, experts.ops[0], "f16") or "")
        assert "6 tokens is a loop" in (support_table(name).refusal(loop, loop.ops[0], "f16") or "")
    step = scan(graph_of, 2, 2)  # one token of each of two sequences: no loop
    assert support_table("hexagon-qnn").refusal(step, step.ops[0], "f16") is None
    assert "its part Softplus" in (support_table("gpu-litert").refusal(step, step.ops[0], "f16") or "")
    for graph in (experts, loop):
        table = build_table(graph, soc)
        assert "cpu" in {table.queues[q].kind for q in table.alt_queue.tolist()}
        assert not any("do not know" in n or "does not know" in n for n in table.notes)


def test_a_router_may_write_its_choice_as_64_bit_integers(graph_of: GraphOf) -> None:
    shapes = {"scores": (4, 8), "share": (4, 2), "expert": (4, 2)}
    g = graph_of([("Router", ["scores"], ["share", "expert"])], shapes, dtypes={"expert": DType.I64})
    assert support_table("hexagon-qnn").refusal(g, g.ops[0], "f16") is None
    assert "its part TopK" in (support_table("apu-litert").refusal(g, g.ops[0], "f16") or "")
