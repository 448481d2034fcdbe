"""The wgpu delegate: what stays on the device, what crosses, and what happens when something is missing or fails."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched import reference
from hetsched.errors import DelegateError, ExecutionError, PlanError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates import load_delegate
from hetsched.runtime.delegates.wgpu import delegate as module
from hetsched.runtime.delegates.wgpu import device
from hetsched.runtime.delegates.wgpu.device import Adapter, Gpu, find_adapter, open_gpu
from hetsched.runtime.delegates.wgpu.memory import ALIGNMENT, arrange
from hetsched.runtime.delegates.wgpu.operators import INTEGER, OPERATORS
from hetsched.runtime.delegates.wgpu.program import Slot
from hetsched.runtime.delegates.wgpu.rules import RULES
from hetsched.runtime.delegates.wgpu.segment import WgpuSegment
from hetsched.runtime.delegates.wgpu.support import supported

HandPlan = Callable[..., Plan]
Save = Callable[..., Path]
here = pytest.mark.skipif(not load_delegate("wgpu").probe().available, reason="there is no WebGPU adapter")
NET = """
g (float[1,3,8,8] x) => (float[1,4] y)
  <float[5,3,3,3] w = {W}, float[4,5] m = {M}> {
    c = Conv<pads = [1,1,1,1]>(x, w)
    r = Relu(c)
    p = GlobalAveragePool(r)
    f = Flatten(p)
    y = Gemm<transB = 1>(f, m)
}"""


def numbers(count: int, seed: int) -> str:
    return "{" + ", ".join(f"{v:.4f}" for v in np.random.default_rng(seed).standard_normal(count)) + "}"


@pytest.fixture
def net(save: Save) -> Graph:
    return standard(load(save(NET.replace("{W}", numbers(135, 1)).replace("{M}", numbers(20, 2)))))


@pytest.fixture
def feeds() -> dict[str, Any]:
    return {"x": np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)}


def on_gpu(graph: Graph, plan_by_hand: HandPlan, precision: str = "f32") -> Plan:
    return plan_by_hand(graph, lambda i: "gpu", lambda i: precision, delegate="wgpu")


def compiled(graph: Graph, plan: Plan) -> Any:
    return compile_plan(graph, plan, delegate="wgpu")


@pytest.fixture
def segments(monkeypatch: pytest.MonkeyPatch) -> list[WgpuSegment]:
    """The segments that a test compiles."""
    made: list[WgpuSegment] = []
    real = module.build

    def build(*args: Any) -> WgpuSegment:
        made.append(real(*args))
        return made[-1]

    monkeypatch.setattr(module, "build", build)
    return made


@pytest.fixture(scope="module")
def staged() -> Gpu:
    """A device whose buffers the CPU does not see, as that of a card."""
    adapter = find_adapter()
    assert isinstance(adapter, Adapter)
    return Gpu(adapter, host_visible=False)


# -- what is right ------------------------------------------------------------------------------------------------------


@here
def test_a_segment_computes_what_numpy_does(net: Graph, feeds: dict[str, Any], plan_by_hand: HandPlan) -> None:
    want = reference.run(net, feeds)
    with compiled(net, on_gpu(net, plan_by_hand)) as executable:
        result = executable.run(feeds, repeat=3)
        observed = executable.run(feeds, observe=True)
    np.testing.assert_allclose(result.outputs["y"], want["y"], atol=1e-5)
    assert sorted(observed.observed) == sorted(o for op in net.ops for o in op.outputs)
    assert (observed.outputs["y"] == result.outputs["y"]).all()
    assert any("its times mean nothing" in note for note in result.trace.notes) == bool(load_delegate("wgpu").probe().emulated)


@here
def test_only_what_crosses_is_copied(
    net: Graph, feeds: dict[str, Any], plan_by_hand: HandPlan, staged: Gpu, segments: list[WgpuSegment], monkeypatch: pytest.MonkeyPatch
) -> None:
    crossing = feeds["x"].nbytes + 4 * 4
    plan = on_gpu(net, plan_by_hand)
    with compiled(net, plan) as executable:
        direct = executable.run(feeds)
        assert [c.array.nbytes for c in segments[0].entering] == [feeds["x"].nbytes]
    monkeypatch.setattr(module, "open_gpu", lambda: staged)
    with compiled(net, plan) as executable:
        through = executable.run(feeds, repeat=2)
    if open_gpu().host_visible:
        assert direct.copied_bytes == crossing
    assert through.copied_bytes == 2 * crossing  # to the staging memory and from there
    np.testing.assert_array_equal(through.outputs["y"], direct.outputs["y"])


@here
def test_segments_of_two_delegates_share_tensors(net: Graph, feeds: dict[str, Any], plan_by_hand: HandPlan, alternate: Any) -> None:
    plan = plan_by_hand(net, lambda i: alternate(0) if i % 2 else "gpu")
    names = {op.name: "numba" if i % 2 else "wgpu" for i, op in enumerate(net.ops)}
    placements = tuple(p.model_copy(update={"delegate": names[p.op]}) for p in plan.placements)
    with compile_plan(net, plan.model_copy(update={"placements": placements}), delegate={"gpu": "wgpu"}) as executable:
        result = executable.run(feeds, repeat=2)
    np.testing.assert_allclose(result.outputs["y"], reference.run(net, feeds)["y"], atol=1e-5)


@here
def test_float16_is_kept_as_float16_within_a_segment(
    net: Graph, feeds: dict[str, Any], plan_by_hand: HandPlan, segments: list[WgpuSegment]
) -> None:
    with compiled(net, on_gpu(net, plan_by_hand)), compiled(net, on_gpu(net, plan_by_hand, "f16")) as executable:
        result = executable.run(feeds)
    wide, half = segments
    assert half.arena_bytes < wide.arena_bytes
    assert {c.slot.kind for part in half.written for c in part if c.slot.pool == "arena"} == {"f16"}
    np.testing.assert_allclose(result.outputs["y"], reference.run(net, feeds)["y"], atol=1e-2)


@here
def test_a_number_beyond_float16_stays_float32(save: Save, plan_by_hand: HandPlan) -> None:
    text = "g (float[1,4] m) => (float[1,4] y) <float one = {1}, float far = {-3.0e38}> { a = Sub(one, m) b = Mul(a, far) y = Softmax(b) }"
    graph = standard(load(save(text)))
    x = np.array([[1, 0, 1, 0]], np.float32)
    with compiled(graph, on_gpu(graph, plan_by_hand, "f16")) as executable:
        result = executable.run({"m": x})
    np.testing.assert_allclose(result.outputs["y"], [[0.5, 0, 0.5, 0]], atol=1e-3)


@here
def test_shaders_are_compiled_once(net: Graph, plan_by_hand: HandPlan) -> None:
    plan = on_gpu(net, plan_by_hand)
    with compiled(net, plan):
        before = dict(open_gpu()._pipelines)
    with compiled(net, plan):
        assert open_gpu()._pipelines == before


@here
def test_composites_without_kernels_run_by_their_parts(save: Save, plan_by_hand: HandPlan) -> None:
    text = """g (float[2,8] x, float[2,8] z) => (float[2,8] y) <float[8] s = S, float[8] b = B> {
        a = Add(x, z)
        y = LayerNormalization(a, s, b)
    }"""
    graph = standard(load(save(text.replace("= S", f"= {numbers(8, 1)}").replace("= B", f"= {numbers(8, 2)}"))))
    assert [op.type for op in graph.ops] == ["SkipLayerNorm"] and "SkipLayerNorm" not in RULES
    given_ = {n: np.random.default_rng(i).standard_normal((2, 8)).astype(np.float32) for i, n in enumerate("xz")}
    with compiled(graph, on_gpu(graph, plan_by_hand)) as executable:
        result = executable.run(given_)
    np.testing.assert_allclose(result.outputs["y"], reference.run(graph, given_)["y"], atol=1e-5)


def test_every_rule_has_kernels() -> None:
    assert set(RULES) == set(OPERATORS)
    assert set(INTEGER) < set(OPERATORS)


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 9), st.integers(0, 4)), max_size=25))
def test_tensors_that_live_together_do_not_overlap(drawn: list[tuple[int, int, int]]) -> None:
    lives = {Slot("f32", n, "arena"): (first, first + more) for n, first, more in drawn}
    size = arrange(lives)
    for a, (a_first, a_last) in lives.items():
        assert a.offset % ALIGNMENT == 0 and a.offset + a.nbytes <= size
        for b, (b_first, b_last) in lives.items():
            if a is not b and a_first <= b_last and b_first <= a_last:
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
    busiest = max((sum(s.nbytes for s, (first, last) in lives.items() if first <= t <= last) for t in range(14)), default=0)
    assert busiest <= size <= sum(-(-s.nbytes // ALIGNMENT) * ALIGNMENT for s in lives)


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh() -> Iterator[None]:
    """The search for an adapter forgets what it found, before and after."""
    find_adapter.cache_clear()
    yield
    find_adapter.cache_clear()


def test_without_the_package_the_reason_says_what_to_install(
    net: Graph, plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch, fresh: None
) -> None:
    real = builtins.__import__

    def gone(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "wgpu":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", gone)
    assert load_delegate("wgpu").probe().reason == "wgpu is not installed: install hetsched[wgpu]"
    with pytest.raises(PlanError, match=r"'wgpu' cannot run here: wgpu is not installed"):
        compiled(net, on_gpu(net, plan_by_hand))


@here
def test_without_an_adapter_the_reason_says_what_is_needed(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    import wgpu

    def none(**options: Any) -> Any:
        raise RuntimeError("Request adapter failed:\n  No suitable graphics adapter found")

    monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", none)
    probe = load_delegate("wgpu").probe()
    assert not probe.available and "No suitable graphics adapter found" in probe.reason and "driver" in probe.reason
    monkeypatch.setattr(device, "_opened", [])
    with pytest.raises(DelegateError, match="no GPU adapter was found"):
        open_gpu()


@here
def test_an_op_without_a_kernel_is_refused_by_name(save: Save, plan_by_hand: HandPlan) -> None:
    graph = load(save("g (float[2] x) => (float[2] y) { y = Sinh(x) }"))
    with pytest.raises(UnsupportedModelError, match=r"node .* \(Sinh\) cannot run on the GPU: there is no GPU kernel for Sinh"):
        compiled(graph, on_gpu(graph, plan_by_hand))


FAKE = Adapter(
    None, "small", "none", False, frozenset(),
    {"max-buffer-size": 4096, "max-storage-buffer-binding-size": 256, "max-storage-buffers-per-shader-stage": 8},
)  # fmt: skip


@pytest.mark.parametrize(
    ("precision", "reason"),
    [
        ("f32", None), ("f16", "does not compute in float16"), ("w8a8", "not quantized"), ("w4a16", "float16"), ("bf16", "plan it as f32"),
    ],
)  # fmt: skip
def test_precisions(net: Graph, precision: str, reason: str | None) -> None:
    roomy = replace(FAKE, limits=dict.fromkeys(FAKE.limits, 1 << 30))
    why = supported(net.ops[0], net, precision, roomy)
    assert why is None if reason is None else why is not None and reason in why


def test_a_model_of_float16_needs_a_gpu_that_has_it(save: Save) -> None:
    graph = load(save("g (float16[2] x) => (float16[2] y) { y = Relu(x) }"))
    assert "does not compute in float16" in (supported(graph.ops[0], graph, "f32", FAKE) or "")
    assert supported(graph.ops[0], graph, "f32", replace(FAKE, features=frozenset({"shader-f16"}))) is None


def test_what_a_gpu_cannot_bind_is_refused(net: Graph) -> None:
    assert supported(net.ops[-1], net, "f32", FAKE) is None
    assert "'x' has 768 bytes, and the GPU 'small' binds at most 256" in (supported(net.ops[0], net, "f32", FAKE) or "")


@here
def test_a_segment_that_is_too_large_is_refused(net: Graph, plan_by_hand: HandPlan, staged: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "limits", {**staged.limits, "max-buffer-size": 512})
    monkeypatch.setattr(module, "open_gpu", lambda: staged)
    with pytest.raises(UnsupportedModelError, match=r"of segment 0 .* take \d+ bytes, and a buffer of the GPU .* has at most 512"):
        compiled(net, on_gpu(net, plan_by_hand))


# -- what fails ----------------------------------------------------------------------------------------------------------


@here
def test_out_of_memory_is_said_in_a_sentence(net: Graph, plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    import wgpu

    def full(self: Gpu, nbytes: int, use: str) -> Any:
        raise wgpu.GPUOutOfMemoryError("Not enough memory left.")

    monkeypatch.setattr(Gpu, "buffer", full)
    with pytest.raises(DelegateError, match=r"does not take segment 0 \(from node .*\): the GPU has not enough memory"):
        compiled(net, on_gpu(net, plan_by_hand))


@here
def test_a_failure_at_the_third_submission(
    net: Graph, feeds: dict[str, Any], plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, count = WgpuSegment.submit, [0]

    def failing(self: WgpuSegment, *args: Any) -> None:
        count[0] += 1
        if count[0] == 3:
            raise RuntimeError("Validation Error\n\nCaused by:\n  the third one fails")
        real(self, *args)

    monkeypatch.setattr(WgpuSegment, "submit", failing)
    with compiled(net, on_gpu(net, plan_by_hand)) as executable:
        first = executable.run(feeds)
        with pytest.raises(ExecutionError, match=r"the GPU .* failed in segment 0 \(nodes .*\): the third one fails"):
            executable.run(feeds, repeat=5)
        again = executable.run(feeds)
    np.testing.assert_array_equal(again.outputs["y"], first.outputs["y"])


@here
def test_a_lost_device_is_named_and_the_next_plan_gets_another(
    net: Graph, feeds: dict[str, Any], plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_opened", [])
    plan = on_gpu(net, plan_by_hand)
    with compiled(net, plan) as executable:
        executable.run(feeds)
        lost = open_gpu()
        lost.device.destroy()
        for _ in range(2):
            with pytest.raises(ExecutionError, match=r"failed in segment 0 .*the GPU device was lost.*compile the plan again"):
                executable.run(feeds)
    with compiled(net, plan) as executable:
        assert open_gpu() is not lost
        np.testing.assert_allclose(executable.run(feeds).outputs["y"], reference.run(net, feeds)["y"], atol=1e-5)


@here
def test_a_stuck_device_runs_into_the_time_limit(
    net: Graph, feeds: dict[str, Any], plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Callable[[], None]] = []
    real = module.when_mapped

    def late(buffers: Any, done: Callable[..., None]) -> None:
        held.append(lambda: real(buffers, done))

    with compiled(net, on_gpu(net, plan_by_hand)) as executable:
        first = executable.run(feeds)
        monkeypatch.setattr(module, "when_mapped", late)
        with pytest.raises(ExecutionError, match="time limit"):
            executable.run(feeds, timeout_s=0.3)
        monkeypatch.setattr(module, "when_mapped", real)
        held.pop()()  # the device comes back
        again = executable.run(feeds)
    np.testing.assert_array_equal(again.outputs["y"], first.outputs["y"])


@here
def test_nothing_is_printed_where_no_desktop_runs() -> None:
    code = "from hetsched.runtime.delegates.wgpu.device import open_gpu; open_gpu()"
    environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


def test_asking_what_is_supported_imports_no_kernels() -> None:
    heavy = ("numba", "llvmlite", "wgpu", "hetsched_kernels.compilation")
    code = f"import sys, hetsched.runtime.delegates.wgpu.delegate; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
