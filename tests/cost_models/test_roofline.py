"""The roofline against hand-computed figures, and that it is monotone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.errors import SoCError
from hetsched.graph import DType, Graph
from hetsched.soc_files import load_soc, validate_soc
from hetsched.socs import SoC
from hetsched_cost_models import build_table
from hetsched_cost_models.operators import VECTOR_KINDS
from hetsched_cost_models.parameters import family_of
from hetsched_cost_models.residency import spill
from hetsched_cost_models.roofline import Storage, padding, queue_cores, queue_rates, roofline
from hetsched_cost_models.work import Work

MATRIX = VECTOR_KINDS.index("matrix")


def _work(
    macs: float = 0.0, elems: float = 0.0, weights: float = 0.0, cls: int = 2, kind: int = MATRIX,
    m: float = 64, n: float = 64, k: float = 64,
) -> Work:  # fmt: skip
    one = np.ones(1)
    zero = np.zeros(1)
    return Work(
        macs * one,
        np.array([cls]),
        np.array([kind]),
        m * one,
        n * one,
        k * one,
        elems * one,
        zero,
        zero,
        weights * one,
        zero,
        zero,
        zero,
        zero,
        zero,
        zero,
        zero,
        zero,
        (),
    )


def _seconds(work: Work, soc: SoC, queue: str = "npu", precision: str = "f16") -> float:
    rates = queue_rates(soc, soc.queues[queue])
    cost = roofline(work, rates, precision, Storage(2.0, 2.0, 2.0, 2.0))
    return float(cost.overhead_s[0] + max(cost.compute_s[0], cost.dram_bytes[0] / rates.bandwidth_bytes_s))


def test_conv_by_hand(graph_of: Callable[..., Graph], soc: SoC) -> None:
    """A 3x3 convolution, 16 -> 32 channels on 32x32, on each queue."""
    g = graph_of([("Conv", ["x", "w"], ["y"])], {"x": (1, 16, 34, 34), "w": (32, 16, 3, 3), "y": (1, 32, 32, 32)}, constants=("w",))
    t = build_table(g, soc)
    macs, x, w, y = 32 * 32 * 32 * 16 * 9, 16 * 34 * 34, 32 * 16 * 9, 32 * 32 * 32
    assert t.macs.tolist() == [macs] * len(t.macs)
    alt = {t.queues[q].name: a for a, q in enumerate(t.alt_queue.tolist())}
    # CPU queue of 2 of 4 cores: half of 100 GFLOP/s at utilisation 0.5; vector rate halves too; weights fit the caches.
    activations = 4 * (x + y)
    cpu = 2 * macs / (50e9 * 0.5) + activations / 50e9
    assert t.compute_s[alt["cpu:0"]] == pytest.approx(cpu, rel=1e-12)
    ratio = activations / 1e6
    resident = (4 * w / 1e6) ** 4
    assert t.weight_bytes[alt["cpu:0"]] == pytest.approx(4 * w * resident / (1 + resident), rel=1e-12)
    assert t.dram_bytes[alt["cpu:0"]] - t.weight_bytes[alt["cpu:0"]] == pytest.approx(activations * ratio**4 / (1 + ratio**4), rel=1e-12)
    # NPU in fp16: 2000 GFLOP/s at 0.5, weights streamed by the family's share.
    npu = 2 * macs / (2000e9 * 0.5) + 2 * (x + y) / 100e9
    assert t.compute_s[alt["npu"]] == pytest.approx(npu, rel=1e-12)
    assert t.weight_bytes[alt["npu"]] == pytest.approx(0.61 * 2 * w, rel=1e-12)
    assert t.overhead_s[alt["npu"]] == 1e-6
    assert t.alt_precision[alt["npu"]] == "f16"
    # Energy: while busy, at work (cores whenever they do not wait for memory, the NPU at its peaks), and DRAM.
    at_peak = 2 * macs / 2000e9 + 2 * (x + y) / 100e9
    for a, q in enumerate(t.alt_queue.tolist()):
        kind = t.queues[q].kind
        watts, busy = (1.0 if kind == "cpu" else 2.0), {"cpu": 0.3, "gpu": 0.26, "npu": 0.75}[kind]
        drawn = watts * (
            busy * t.time_s[a] + (1 - busy) * {"npu": at_peak, "gpu": t.compute_s[a], "cpu": t.compute_s[a] + t.overhead_s[a]}[kind]
        )
        assert t.energy_j[a] == pytest.approx(drawn + 1e-11 * t.dram_bytes[a], rel=1e-12)


def test_integers_use_the_integer_peak(soc: SoC) -> None:
    work = _work(macs=1e9)
    assert _seconds(work, soc, precision="f16") - 1e-6 == pytest.approx(4 * (_seconds(work, soc, precision="w8a8") - 1e-6), rel=1e-9)


def test_views_are_free_on_the_cpu_and_cost_a_dispatch_elsewhere(soc: SoC) -> None:
    view = _work(elems=1e6, cls=0, kind=0)
    assert _seconds(view, soc, "cpu:0", "f32") == 0.0
    assert _seconds(view, soc, "npu") == 1e-6


def test_float_arithmetic_on_integers_pays_for_their_conversion(graph_of: Callable[..., Graph], soc: SoC) -> None:
    """A softmax on quantized tensors on the CPU: 4 bytes an element of arithmetic, 5 of conversion, 1 of storage."""
    x = (4, 1000)
    g = graph_of([("Softmax", ["x"], ["y"])], {"x": x, "y": x}, dtypes={"x": DType.U8, "y": DType.U8}, quantized=("x", "y"))
    t = build_table(g, soc)
    cpu = t.alternatives(0)[0]
    family = family_of(soc.by_name["cpu"])
    softmax, convert = family.vector["softmax"], family.vector["convert"]
    assert t.compute_s[cpu] == pytest.approx(8000 * (4 * softmax + 5 * convert) / 50e9, rel=1e-12)
    floats = build_table(graph_of([("Softmax", ["x"], ["y"])], {"x": x, "y": x}), soc)
    assert floats.compute_s[0] == pytest.approx(8000 * 4 * softmax / 50e9, rel=1e-12)


def test_spill_is_zero_when_small_and_one_when_large() -> None:
    s = spill(np.array([0.0, 0.1, 1.0, 10.0, 1e30]))
    assert s[0] == 0.0
    assert s[1] < 1e-3
    assert s[2] == 0.5
    assert s[3] > 0.999
    assert s[4] == pytest.approx(1.0)
    assert np.isfinite(s).all()


def test_padding() -> None:
    work = _work(macs=1.0, m=10, n=33, k=64)
    assert padding(work, (1, 32, 32))[0] == pytest.approx(64 / 33)
    assert padding(work, (1, 1, 1))[0] == 1.0
    assert padding(_work(macs=0.0, n=1), (1, 32, 1))[0] == 1.0


def test_queue_cores() -> None:
    assert queue_cores("cpu:2-4,7") == ("cpu", (2, 3, 4, 7))
    assert queue_cores("gpu") == ("gpu", ())
    with pytest.raises(SoCError, match="more than 1024 cores"):
        queue_cores("cpu:0-4000000000")


def test_short_rows_of_depthwise_convolutions_count_as_whole_vectors_on_a_cpu(graph_of: Callable[..., Graph], soc: SoC) -> None:
    def conv(size: int) -> Graph:
        shapes = {"x": (1, 32, size + 2, size + 2), "w": (32, 1, 3, 3), "y": (1, 32, size, size)}
        return graph_of([("Conv", ["x", "w"], ["y"], {"group": 32})], shapes, constants=("w",))

    def of_matrix(size: int) -> tuple[float, float]:
        t = build_table(conv(size), soc)
        cpu, npu = (next(a for a in t.alternatives(0) if t.queues[t.alt_queue[a]].kind == kind) for kind in ("cpu", "npu"))
        activations = 32 * ((size + 2) ** 2 + size**2)
        return t.compute_s[cpu] - 4 * activations / 50e9, t.compute_s[npu] - 2 * activations / 100e9

    for size, padded in ((7, 16), (16, 16), (20, 32)):
        macs = 32 * 9 * size
        cpu, npu = of_matrix(size)
        assert cpu == pytest.approx(2 * macs * padded / (50e9 * 0.5), rel=1e-9)
        assert npu == pytest.approx(2 * macs * size / (2000e9 * 0.5), rel=1e-9)


def test_a_fused_function_is_computed_on_a_cpu(graph_of: Callable[..., Graph], soc: SoC) -> None:
    def gemm(activation: str) -> float:
        shapes = {"x": (64, 32), "w": (32, 64), "y": (64, 64)}
        ops = [("FusedMatMul", ["x", "w", ""], ["y"], {"activation": activation})]
        return float(build_table(graph_of(ops, shapes, constants=("w",)), soc).compute_s[0])

    transcendental = family_of(soc.by_name["cpu"]).vector["transcendental"]
    assert gemm("Gelu") - gemm("") == pytest.approx(64 * 64 * 8 * transcendental / 50e9, rel=1e-9)
    assert gemm("Relu") == gemm("")


sizes = st.floats(0, 1e10)


@settings(max_examples=60, deadline=None)
@given(
    macs=sizes,
    elems=sizes,
    weights=sizes,
    more=st.tuples(sizes, sizes, sizes),
    precision=st.sampled_from(["f16", "w8a8"]),
    kind=st.integers(1, MATRIX),
)
def test_more_work_is_never_cheaper(
    macs: float, elems: float, weights: float, more: tuple[float, float, float], precision: str, kind: int
) -> None:
    soc = load_soc("snapdragon-8-gen-3")
    small = _seconds(_work(macs, elems, weights, kind=kind), soc, "npu", precision)
    large = _seconds(_work(macs + more[0], elems + more[1], weights + more[2], kind=kind), soc, "npu", precision)
    assert large >= small * (1 - 1e-12)


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(1, 500),
    n=st.integers(1, 500),
    k=st.integers(1, 500),
    grow=st.tuples(*[st.integers(0, 50)] * 3),
    align=st.tuples(*[st.integers(1, 64)] * 3),
)
def test_padded_work_grows_with_every_dimension(m: int, n: int, k: int, grow: tuple[int, int, int], align: tuple[int, int, int]) -> None:
    def padded(m: int, n: int, k: int) -> float:
        return m * n * k * float(padding(_work(macs=m * n * k, m=m, n=n, k=k), align)[0])

    assert padded(m, n, k) >= m * n * k * (1 - 1e-12)
    assert padded(m + grow[0], n + grow[1], k + grow[2]) >= padded(m, n, k) * (1 - 1e-12)


@settings(max_examples=40, deadline=None)
@given(
    macs=sizes, elems=sizes, weights=sizes, factor=st.floats(1.0, 10.0),
    field=st.sampled_from(["peak", "bandwidth_bytes_s", "vector_bytes_s", "onchip_bytes"]),
)  # fmt: skip
def test_a_faster_processor_is_never_slower(macs: float, elems: float, weights: float, factor: float, field: str) -> None:
    base = load_soc("snapdragon-8-gen-3")
    raw: dict[str, Any] = base.model_dump(mode="json")
    npu = next(p for p in raw["processors"] if p["name"] == "npu")
    figures = npu["clusters"][0]["peak_ops_s"].values() if field == "peak" else [npu[field]]
    for figure in figures:
        figure["value"] *= factor
    work = _work(macs, elems, weights)
    assert _seconds(work, validate_soc(raw, "faster")) <= _seconds(work, base) * (1 + 1e-12)


def test_large_models_keep_no_more_resident_than_the_fit_saw(soc: SoC) -> None:
    rates = queue_rates(soc, soc.queues["npu"])
    share, most = rates.family.weight_share, rates.family.resident_bytes
    assert share < 1.0 and most < 1e8

    def streamed(nbytes: float) -> float:
        return float(roofline(_work(weights=nbytes / 2), rates, "f16", Storage(2.0, 2.0, 2.0, 2.0)).dram_bytes[0])

    assert streamed(50e6) == pytest.approx(share * 50e6)
    assert streamed(2e9) == pytest.approx(2e9 - most)
    bytes_in = np.linspace(1e6, 3e9, 200)
    assert np.all(np.diff([streamed(b) for b in bytes_in]) > 0), "more weights are never read faster"
