"""Precision of caches, profiles of experts and the choice of a token, as rewritings of small graphs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import ExecutionError, OptionError
from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.passes.expert_activation import ExpertActivation, expected_distinct
from hetsched.passes.kv_precision import KvPrecision
from hetsched.passes.sampling import AppendSampling, scores_of
from hetsched.reference import run
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table
from hetsched_cost_models.operators import VECTOR_KINDS
from hetsched_cost_models.work import work_of

KV, PAST, DIM = 2, 12, 64


def attention(scan: bool = False) -> Graph:
    """One attention with a cache of 12 positions; with ``scan`` also a state of another operator."""
    tensors = {n: Tensor(n, (1, KV * DIM), DType.F32) for n in ("q", "k", "v", "y")}
    for part in ("key", "value"):
        tensors[f"past.{part}"] = Tensor(f"past.{part}", (1, KV, PAST, DIM), DType.F16, Role.STATE)
        tensors[f"present.{part}"] = Tensor(f"present.{part}", (1, KV, PAST + 1, DIM), DType.F16, Role.STATE)
    attrs = {"num_heads": KV, "kv_num_heads": KV, "head_dim": DIM, "batch": 1, "window": 0, "scale": 1.0, "softcap": 0.0}
    ops = [Op("a", "GroupQueryAttention", ("q", "k", "v", "past.key", "past.value"), ("y", "present.key", "present.value"), attrs)]
    inputs, outputs = ["q", "k", "v", "past.key", "past.value"], ["y", "present.key", "present.value"]
    states = {"present.key": "past.key", "present.value": "past.value"}
    if scan:
        for n in ("s", "s.next"):
            tensors[n] = Tensor(n, (1, 4, 3), DType.F32, Role.STATE)
        tensors |= {"x": Tensor("x", (1, 4), DType.F32), "z": Tensor("z", (1, 4), DType.F32)}
        tensors["w"] = Tensor("w", (4, 4), DType.F32, Role.WEIGHT, None, WeightRef(array=np.ones((4, 4), np.float32)))
        ops.append(Op("c", "CausalConv", ("x", "w", "", "s"), ("z", "s.next"), {"batch": 1}))
        inputs, outputs, states = [*inputs, "x", "s"], [*outputs, "z", "s.next"], {**states, "s.next": "s"}
    return Graph("g", tensors, tuple(ops), tuple(inputs), tuple(outputs), states=states)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [("fp16", 128, 128), ("int8", 66, 68), ("fp8", 64, 64), ("int8/int4", 66, 36), ("fp16/int4:64", 128, 34), ("fp8/int8:2", 64, 128)],
)
def test_bytes_of_a_position_by_hand(text: str, key: int, value: int) -> None:
    graph = KvPrecision.parse(text)(attention(scan=True))
    for name, size in (("key", key), ("value", value)):
        assert graph.tensors[f"past.{name}"].nbytes == KV * PAST * size
        assert graph.tensors[f"present.{name}"].nbytes == KV * (PAST + 1) * size
        assert graph.tensors[f"past.{name}"].role is Role.STATE
    assert graph.tensors["s"].nbytes == 4 * 3 * 4, "other states stay"
    assert graph.states == attention(scan=True).states
    assert work_of(graph).state_bytes[0] == KV * (PAST + 1) * (key + value)


@given(st.sampled_from(("fp16", "fp8", "int8")), st.sampled_from(("fp16", "fp8", "int8", "int4")), st.integers(1, 40).map(lambda n: 2 * n))
def test_the_text_of_a_precision_parses_back(key: str, value: str, group: int) -> None:
    made = KvPrecision(key, value, group)
    again = KvPrecision.parse(made.text)
    assert (again.key, again.value) == (key, value)
    assert again.group == group or not value.startswith("int")


def test_stored_blocks_do_not_make_a_quantized_model() -> None:
    soc = load_soc("snapdragon-8-gen-3")
    plain, small = attention(), KvPrecision.parse("int8/int4")(attention())
    a, b = build_table(plain, soc), build_table(small, soc)
    assert a.alt_precision == b.alt_precision and [d.dtype for d in a.domains] == [d.dtype for d in b.domains]
    assert (b.dram_bytes < a.dram_bytes).all()


def test_widening_costs_arithmetic_but_no_traffic() -> None:
    work = work_of(KvPrecision.parse("int8/int4")(attention()))
    assert work.state_vector_bytes[0] == 2 * KV * (PAST + 1) * 2 * DIM
    assert work.state_bytes[0] < work.state_vector_bytes[0] / 2


@pytest.mark.parametrize(
    "text", ["int8/int4:48", "int8/int4:7", "int4/int8", "", "/", "int8/", "int8/int4:0", "INT8", "int8/int4:" + "9" * 9]
)
def test_impossible_precisions(text: str) -> None:
    with pytest.raises(OptionError):
        KvPrecision.parse(text)(attention())


def mixture(tokens: int, apart: bool) -> Graph:
    """Three experts of 2 × 5, with two of them a token; the third one weighs twice as much where they are apart."""
    sizes = [5, 5, 10] if apart else [5]
    names = [f"{p}{e}" for p in ("gate", "up", "down") for e in range(len(sizes))]
    shapes = {n: ((3, 5, 2) if not apart else (sizes[int(n[-1])], 2)) for n in names}
    tensors = {n: Tensor(n, s, DType.F32, Role.WEIGHT, None, WeightRef(length=math.prod(s) * 4)) for n, s in shapes.items()}
    tensors |= {"x": Tensor("x", (tokens, 2), DType.F32), "y": Tensor("y", (tokens, 2), DType.F32, Role.OUTPUT)}
    tensors |= {"share": Tensor("share", (tokens, 2), DType.F32), "expert": Tensor("expert", (tokens, 2), DType.I64)}
    attrs = {"num_experts": 3, "experts_per_token": 2, "stacked": int(not apart)}
    return Graph("m", tensors, (Op("moe", "MoE", ("x", "share", "expert", *names), ("y",), attrs),), ("x", "share", "expert"), ("y",))


def test_expected_experts_by_hand() -> None:
    (op,) = ExpertActivation(((1.0, 0.75, 0.25),))(mixture(2, apart=False)).ops
    expected = 1.0 + (1 - 0.25**2) + (1 - 0.75**2)
    assert op.attrs["active_experts"] == pytest.approx(expected)
    assert op.attrs["active_weight_bytes"] == round(3 * 3 * 5 * 2 * 4 * expected / 3)
    (op,) = ExpertActivation(((1.0, 0.75, 0.25),))(mixture(2, apart=True)).ops
    assert op.attrs["active_weight_bytes"] == round(3 * 2 * 4 * (5 * 1.0 + 5 * (1 - 0.25**2) + 10 * (1 - 0.75**2)))


def test_only_active_bytes_are_counted() -> None:
    graph = ExpertActivation(((1.0, 1.0, 0.0),))(mixture(4, apart=False))
    assert work_of(graph).weight_float_elems[0] == pytest.approx(2 * 3 * 5 * 2)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(1, 500))
def test_more_tokens_use_no_fewer_experts(chances: list[float], tokens: int) -> None:
    one, many = expected_distinct(chances, 1), expected_distinct(chances, tokens)
    assert one == pytest.approx(chances)
    assert all(a <= b + 1e-12 and b <= 1.0 for a, b in zip(one, many, strict=True))


@pytest.mark.parametrize(
    "profile", [((0.5, 0.5),), ((1.0, 1.0, 1.0),), ((-0.5, 1.5, 1.0),), ((1.0, 1.0, 0.0),) * 2, ((float("nan"), 1.0, 1.0),), ()]
)
def test_profiles_that_do_not_fit(profile: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(OptionError):
        ExpertActivation(profile)(mixture(1, apart=False))


def scores(name: str = "logits", dtype: DType = DType.F32) -> Graph:
    tensors = {"x": Tensor("x", (2, 3, 50), DType.F32), name: Tensor(name, (2, 3, 50), dtype, Role.OUTPUT)}
    return Graph("s", tensors, (Op("scores", "Neg", ("x",), (name,)),), ("x",), (name,))


@given(st.integers(0, 2**32 - 1))
def test_greedy_takes_the_highest_score(seed: int) -> None:
    graph = AppendSampling()(scores())
    x = np.random.default_rng(seed).standard_normal((2, 3, 50)).astype(np.float32)
    token = run(graph, {"x": x})["next_token"]
    assert token.dtype == np.int64 and token.shape == (2, 3)
    assert (np.take_along_axis(-x, token[..., None], -1)[..., 0] == (-x).max(-1)).all()


@pytest.mark.parametrize(
    ("method", "kind", "attrs"), [("greedy", "maximum", {}), ("top_k", "softmax", {"k": 40}), ("top_p", "softmax", {"p": 0.95})]
)
def test_sampling_is_one_pass_on_the_cpu(method: str, kind: str, attrs: dict[str, Any]) -> None:
    graph = AppendSampling(method)(scores())
    assert AppendSampling(method)(graph) is graph
    assert graph.ops[-1].attrs == {"method": method, "temperature": 1.0, **attrs}
    work = work_of(graph)
    assert VECTOR_KINDS[work.kind[-1]] == kind and work.float_elems[-1] == 300 and work.unknown == ()
    table = build_table(graph, load_soc("snapdragon-8-gen-3"))
    assert {table.queues[int(table.alt_queue[a])].kind for a in table.alternatives(1)} == {"cpu"}
    assert all("CPU" in r.reason for r in table.refusals[1]) and len(table.refusals[1]) == 2
    if method != "greedy":
        with pytest.raises(ExecutionError, match="random"):
            run(graph, {"x": np.zeros((2, 3, 50), np.float32)})


def test_scores_are_found_by_name_or_type() -> None:
    assert scores_of(scores("linear_7")) == "linear_7"
    for name, dtype in (("last_hidden_state", DType.F32), ("tokens", DType.I64)):
        with pytest.raises(OptionError, match="no output with scores"):
            scores_of(scores(name, dtype))


@pytest.mark.parametrize(
    "options", [{"method": "beam"}, {"temperature": 0.0}, {"k": 0}, {"p": 0.0}, {"p": 1.5}, {"temperature": float("nan")}]
)
def test_bad_sampling(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        AppendSampling(**options)
