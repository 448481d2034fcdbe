"""Attention with a mask on the kernels, against the reference executor, however its heads lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hetsched.graph import AttrValue, DType, Graph, Op, Role, Tensor
from hetsched.plans import Plan
from hetsched.reference import run as reference
from hetsched.runtime import compile as compile_plan
from hetsched.runtime import supported

HandPlan = Callable[..., Plan]
B, HEADS, KV, TQ, TK, D, W = 2, 4, 2, 7, 60, 16, 24


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def graph_of(feeds: dict[str, Any], y: tuple[int, ...], **attrs: AttrValue) -> Graph:
    types = {"float32": DType.F32, "bool": DType.BOOL, "int64": DType.I64}
    tensors = {n: Tensor(n, a.shape, types[a.dtype.name], Role.INPUT) for n, a in feeds.items()}
    tensors["y"] = Tensor("y", y, DType.F32, Role.OUTPUT)
    given = {"batch": B, "q_num_heads": HEADS, "kv_num_heads": KV, "scale": 0.3, "y_shape": y, **attrs}
    return Graph("attention", tensors, (Op("op", "Attention", tuple(feeds), ("y",), given),), tuple(feeds), ("y",))


def agrees(plan_by_hand: HandPlan, feeds: dict[str, Any], y: tuple[int, ...], **attrs: AttrValue) -> None:
    graph = graph_of(feeds, y, **attrs)
    assert supported(graph.ops[0], graph, "f32") is None
    with compile_plan(graph, plan_by_hand(graph)) as executable:
        got = executable.run(feeds).outputs["y"]
    want = reference(graph, feeds)["y"]
    assert np.ptp(want) > 0.1
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def rows() -> dict[str, Any]:
    return {"q": noise(B, TQ, HEADS * D), "k": noise(B, TK, KV * D, seed=1), "v": noise(B, TK, KV * W, seed=2)}


@pytest.mark.parametrize("mask", [None, (B, 1, 1, TK), (TQ, TK), (1, HEADS, TQ, 1)])
@pytest.mark.parametrize("causal", [0, 1])
def test_rows_with_a_mask_of_numbers(plan_by_hand: HandPlan, mask: tuple[int, ...] | None, causal: int) -> None:
    feeds = rows() | ({"mask": 3 * noise(*mask, seed=3)} if mask else {})
    agrees(plan_by_hand, feeds, (B, TQ, HEADS * W), is_causal=causal, softcap=5.0 if causal else 0.0)


@pytest.mark.parametrize("inverted", [0, 1])
def test_rows_with_a_mask_of_booleans(plan_by_hand: HandPlan, inverted: int) -> None:
    mask = np.random.default_rng(5).random((B, 1, TQ, TK)) < 0.4
    agrees(plan_by_hand, rows() | {"mask": mask}, (B * TQ, HEADS * W), mask_inverted=inverted, mask_fill=-1e4)


@pytest.mark.parametrize("turned", ["query", "key", "value", "y"])
def test_heads_apart_and_transposed(plan_by_hand: HandPlan, turned: str) -> None:
    shapes = {"q": (B, HEADS, TQ, D), "k": (B, KV, TK, D), "v": (B, KV, TK, W)}
    feeds = {n: noise(*s, seed=i) for i, (n, s) in enumerate(shapes.items())}
    y = (B, HEADS, W, TQ) if turned == "y" else (B, HEADS, TQ, W)
    if turned != "y":
        feeds[turned[0]] = np.ascontiguousarray(feeds[turned[0]].swapaxes(2, 3))
    agrees(plan_by_hand, feeds, y, **{f"{turned}_transposed": 1})


def test_a_cache_and_a_mask_of_integers_are_refused() -> None:
    y = (B, TQ, HEADS * W)
    graph = graph_of(rows() | {"mask": np.ones((TQ, TK), np.int64)}, y)
    assert "its mask 'mask' is i64" in (supported(graph.ops[0], graph, "f32") or "")
    feeds = rows() | {"mask": noise(TQ, TK), "past": noise(B, KV, 1, D)}
    assert "has a cache" in (supported(graph_of(feeds, y).ops[0], graph_of(feeds, y), "f32") or "")


@pytest.mark.parametrize("queries", [5, 9])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("flat", [False, True])
def test_attention_of_the_model_file_itself(against_ort: Callable[..., Any], queries: int, causal: int, flat: bool) -> None:
    """It says nowhere how many sequences there are, and its order counts from the first key."""
    shapes = {"q": (3, 4, queries, 8), "k": (3, 2, 7, 8), "v": (3, 2, 7, 8)}
    shapes = {n: (s[0], s[2], s[1] * s[3]) if flat else s for n, s in shapes.items()}
    attributes = {"is_causal": causal, **({"q_num_heads": 4, "kv_num_heads": 2} if flat else {})}
    feeds = {n: noise(*s, seed=i) for i, (n, s) in enumerate(shapes.items())}
    ours, theirs = against_ort([("Attention", [*feeds], ["y"], attributes)], feeds, opset=23)
    np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-4, atol=1e-5)
