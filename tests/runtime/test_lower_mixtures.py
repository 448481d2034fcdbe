"""Experts, state spaces and sampling on the kernels, against the reference executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from hetsched.graph import AttrValue, DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.plans import Plan
from hetsched.reference import run as reference
from hetsched.reference.gguf_types import BY_NAME
from hetsched.runtime import compile as compile_plan
from hetsched.runtime import supported

HandPlan = Callable[..., Plan]
T, E, H, F, K = 5, 6, 64, 96, 2


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def one_op(
    kind: str, feeds: dict[str, Any], constants: Mapping[str, Any], outputs: Mapping[str, tuple[tuple[int, ...], DType]],
    inputs: tuple[str, ...], **attrs: AttrValue,
) -> Graph:  # fmt: skip
    """A graph of one operator; a constant is an array or a finished tensor."""
    types = {"float32": DType.F32, "int64": DType.I64}
    tensors = {n: Tensor(n, a.shape, types[a.dtype.name], Role.INPUT) for n, a in feeds.items()}
    for n, value in constants.items():
        ready = isinstance(value, Tensor)
        tensors[n] = value if ready else Tensor(n, value.shape, DType.F32, Role.WEIGHT, None, WeightRef(array=value))
    tensors |= {n: Tensor(n, shape, dtype, Role.OUTPUT) for n, (shape, dtype) in outputs.items()}
    return Graph("one", tensors, (Op("op", kind, inputs, tuple(outputs), attrs),), tuple(feeds), tuple(outputs))


def on_kernels(graph: Graph, plan_by_hand: HandPlan, feeds: dict[str, Any], precision: str = "f32") -> dict[str, Any]:
    assert supported(graph.ops[0], graph, precision) is None
    with compile_plan(graph, plan_by_hand(graph, precision=lambda i: precision)) as executable:
        return executable.run(feeds).outputs


def agrees(graph: Graph, plan_by_hand: HandPlan, feeds: dict[str, Any], tolerance: float = 1e-5) -> None:
    ours, theirs = on_kernels(graph, plan_by_hand, feeds), reference(graph, feeds)
    for name in graph.outputs:
        assert np.ptp(theirs[name]) > 1e-3
        np.testing.assert_allclose(ours[name], theirs[name], rtol=tolerance, atol=tolerance * np.abs(theirs[name]).max())


def routed() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {
        "x": noise(T, H),
        "share": rng.random((T, K)).astype(np.float32),
        "expert": np.stack([rng.permutation(E)[:K] for _ in range(T)]).astype(np.int64),
    }


@pytest.mark.parametrize("normalize", [0, 1])
def test_router(plan_by_hand: HandPlan, normalize: int) -> None:
    feeds = {"s": noise(T, E)}
    outputs = {"share": ((T, K), DType.F32), "expert": ((T, K), DType.I64)}
    agrees(one_op("Router", feeds, {}, outputs, ("s",), experts_per_token=K, normalize=normalize), plan_by_hand, feeds)


@pytest.mark.parametrize("kind", ["stacked", "joined", "apart"])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_experts(plan_by_hand: HandPlan, kind: str, activation: str) -> None:
    gates, ups, downs = (noise(*s, seed=n) for n, s in enumerate([(E, F, H), (E, F, H), (E, H, F)]))
    weights = {"gates": gates, "ups": ups, "downs": downs}
    if kind == "joined":
        weights = {"both": np.concatenate([gates, ups], 1), "downs": downs}
    if kind == "apart":
        weights = {f"{name}{e}": w[e] for name, w in weights.items() for e in range(E)}
    feeds = routed()
    attributes: dict[str, AttrValue] = {"num_experts": E, "experts_per_token": K, "activation": activation}
    attributes |= {"stacked": int(kind != "apart"), "joined": int(kind == "joined")}
    graph = one_op("MoE", feeds, weights, {"y": ((T, H), DType.F32)}, (*feeds, *weights), **attributes)
    agrees(graph, plan_by_hand, feeds)


def stack(kind: str, name: str, rows: int, cols: int) -> Tensor:
    """A stack of matrices in blocks."""
    from hetsched_kernels.comparison_language import gguf_blocks

    layout = BY_NAME[kind]
    raw = gguf_blocks(np.random.default_rng(rows), kind, E * rows, cols)
    return Tensor(name, (E, rows, cols), layout.dtype, Role.WEIGHT, layout.quantization, WeightRef(array=raw))


@pytest.mark.parametrize("kinds", [("Q4_0", "Q8_0"), ("Q4_1", "Q5_0")])
def test_experts_in_blocks_are_computed_on_directly(plan_by_hand: HandPlan, kinds: tuple[str, str]) -> None:
    weights = {"gates": stack(kinds[0], "gates", F, H), "ups": stack(kinds[0], "ups", F, H), "downs": stack(kinds[1], "downs", H, F)}
    feeds = routed()
    graph = one_op("MoE", feeds, weights, {"y": ((T, H), DType.F32)}, (*feeds, *weights), num_experts=E, experts_per_token=K)
    agrees(graph, plan_by_hand, feeds)
    exact, got = reference(graph, feeds)["y"], on_kernels(graph, plan_by_hand, feeds, "w8a8")["y"]
    assert 0 < np.linalg.norm(got - exact) < 0.03 * np.linalg.norm(exact)


def test_float_experts_have_no_integer_kernel() -> None:
    weights = {"gates": noise(E, F, H), "ups": noise(E, F, H), "downs": noise(E, H, F)}
    feeds = routed()
    graph = one_op("MoE", feeds, weights, {"y": ((T, H), DType.F32)}, (*feeds, *weights), num_experts=E, experts_per_token=K)
    assert "only precision on the CPU is f32" in (supported(graph.ops[0], graph, "w8a8") or "")


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("past", [False, True])
def test_convolution_over_the_last_tokens(plan_by_hand: HandPlan, batch: int, past: bool) -> None:
    feeds = {"x": noise(batch * 4, 9), **({"past": noise(batch, 9, 3)} if past else {})}
    outputs = {"y": ((batch * 4, 9), DType.F32), "present": ((batch, 9, 3), DType.F32)}
    inputs = ("x", "w", "b", "past" if past else "")
    agrees(one_op("CausalConv", feeds, {"w": noise(9, 4), "b": noise(9)}, outputs, inputs, batch=batch), plan_by_hand, feeds)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("logarithmic", [0, 1])
def test_selective_scan(plan_by_hand: HandPlan, batch: int, logarithmic: int) -> None:
    rows, channels, size = batch * 6, 20, 16
    feeds = {"x": noise(rows, channels), "step": noise(rows, channels, seed=1), "b": noise(rows, size), "c": noise(rows, size, seed=2)}
    feeds["past"] = noise(batch, channels, size)
    a = noise(channels, size)
    constants = {"a": a if logarithmic else -np.exp(a), "d": noise(channels)}
    outputs = {"y": ((rows, channels), DType.F32), "present": ((batch, channels, size), DType.F32)}
    inputs = ("x", "step", "a", "b", "c", "d", "past")
    graph = one_op("SelectiveScan", feeds, constants, outputs, inputs, batch=batch, logarithmic=logarithmic)
    agrees(graph, plan_by_hand, feeds)


@pytest.mark.parametrize("method", [{"method": "top_k", "k": 3}, {"method": "top_p", "p": 0.5}])
def test_sampling_goes_on_from_run_to_run_and_begins_anew(plan_by_hand: HandPlan, method: dict[str, Any]) -> None:
    feeds = {"s": noise(2, 50)}
    graph = one_op("Sample", feeds, {}, {"t": ((2,), DType.I64)}, ("s",), temperature=0.8, **method)

    def tokens() -> list[list[int]]:
        with compile_plan(graph, plan_by_hand(graph)) as executable:
            return [executable.run(feeds).outputs["t"].tolist() for _ in range(12)]

    drawn = tokens()
    assert drawn == tokens()
    assert len({tuple(t) for t in drawn}) > 1
    order = np.argsort(-feeds["s"], -1)
    assert all(t[r] in order[r, :40] for t in drawn for r in range(2))


def test_what_has_no_kernel_is_refused_with_a_sentence() -> None:
    feeds = routed()
    weights: dict[str, Any] = {"gates": noise(E, F, H), "ups": noise(E, F, H), "downs": noise(E, H, F)}

    def why(constants: dict[str, Any], given: dict[str, Any], **attributes: AttrValue) -> str:
        inputs = (*feeds, "gates", "ups", "downs")
        graph = one_op("MoE", given, constants, {"y": ((T, H), DType.F32)}, inputs, num_experts=E, experts_per_token=K, **attributes)
        return supported(graph.ops[0], graph, "f32") or ""

    assert "activation swish_oai has no kernel" in why(weights, feeds, activation="swish_oai")
    moving = weights.pop("ups")
    assert "'ups' is computed while running" in why(weights, {**feeds, "ups": moving})
