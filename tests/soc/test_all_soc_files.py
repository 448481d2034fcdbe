"""Every shipped SoC file: names, rates in a sensible order, and a cooling that holds (origins and bandwidths: ``test_soc_specs``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from hetsched.cores import cores_of
from hetsched.soc_files import load_soc, soc_paths
from hetsched.socs import Cluster, OperatingPoint, Processor, SoC

PATHS = soc_paths()


@pytest.fixture(params=sorted(PATHS), scope="module")
def soc(request: pytest.FixtureRequest) -> SoC:
    return load_soc(request.param)


def test_ids_are_unique_and_the_files_names() -> None:
    files = list(next(iter(PATHS.values())).parents[1].glob("*/*.yaml"))
    assert len({p.stem for p in files}) == len(files)
    for path in files:
        soc = load_soc(path)
        assert (soc.id, soc.vendor.lower()) == (path.stem, path.parent.name)


def test_what_the_project_promises_is_there() -> None:
    promised = """
        snapdragon-888 snapdragon-8-gen-1 snapdragon-8-plus-gen-1 snapdragon-8-gen-2 snapdragon-8-gen-3 snapdragon-8-elite
        snapdragon-8-elite-gen-5 snapdragon-7-plus-gen-3 snapdragon-7-gen-4 snapdragon-x-elite qcs6490 qcs8550 qcs9075 sa8775p sa8295p
        tensor-g1 tensor-g3 tensor-g5 generic-phone generic-laptop"""
    assert set(promised.split()) <= set(PATHS)


def test_narrower_numbers_are_not_slower(soc: SoC) -> None:
    for p in soc.processors:
        for c in p.clusters:
            peak = {name: figure.value for name, figure in c.peak_ops_s.items()}
            order = [peak[name] for name in ("f32", "f16", "i8", "i4") if name in peak]
            if p.kind == "gpu":  # its integer rate may be missing or below the float rate
                order = [peak[name] for name in ("f32", "f16") if name in peak]
            assert order == sorted(order), f"{p.name}.{c.name}"


def test_a_cpu_core_has_the_rate_of_some_core(soc: SoC) -> None:
    """From two 64-bit to six 128-bit multiply-add pipes; FP32 operations per cycle and core at the top clock."""
    for p in soc.processors:
        for c in p.clusters if p.kind == "cpu" else ():
            per_cycle = c.peak_ops_s["f32"].value / c.top.hz / len(c.cores)
            assert 7.5 <= per_cycle <= 49, f"{c.name}: {per_cycle:.1f}"


def test_npus_name_what_they_can_do(soc: SoC) -> None:
    for p in soc.processors:
        if p.kind == "npu":
            assert any("i8" in c.peak_ops_s for c in p.clusters)
            assert p.vector_bytes_s is not None
            assert p.onchip_bytes.value >= 1e6


def test_voltages_are_of_this_decade(soc: SoC) -> None:
    for p in soc.processors:
        for c in p.clusters:
            assert 0.4 <= c.operating_points[0].v <= c.top.v <= 1.3, f"{p.name}.{c.name}"
            assert c.top.hz >= 1.9 * c.operating_points[0].hz or p.kind == "cpu", f"{p.name}.{c.name}: no room to throttle"


def test_one_core_does_not_read_faster_than_all(soc: SoC) -> None:
    for p in soc.processors:
        if p.core_bandwidth_bytes_s is not None:
            assert p.core_bandwidth_bytes_s.value <= p.bandwidth_bytes_s.value


def test_each_processor_has_a_queue_of_its_name(soc: SoC) -> None:
    assert {p.name: soc.queues[p.name].partition(":")[0] for p in soc.processors} == {p.name: p.name for p in soc.processors}
    for p in soc.processors:
        cores = [core for c in p.clusters for core in c.cores]
        assert len(set(cores)) == len(cores), f"two clusters of {p.name!r} share a core"
        assert set(cores_of(soc.queues[p.name])) <= set(cores)


def _watts(cluster: Cluster, point: OperatingPoint, celsius: float) -> float:
    """Dynamic power at a point, and leakage at a temperature, of a whole cluster at work."""
    dynamic = cluster.dynamic_w.value * (point.hz / cluster.top.hz) * (point.v / cluster.top.v) ** 2
    leakage = cluster.leakage_w.value * point.v / cluster.top.v
    return dynamic + leakage * float(np.exp2((celsius - 25.0) / cluster.leakage_doubling_k.value))


def _conductance(soc: SoC) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """[n, n] conductances between nodes and [n] to ambient, W/K."""
    names = [n.name for n in soc.thermal.nodes]
    between, outside = np.zeros((len(names), len(names))), np.zeros(len(names))
    for r in soc.thermal.resistances:
        ends = [names.index(n) for n in r.between if n != "ambient"]
        siemens = 1.0 / r.k_per_w.value
        between[ends, ends] += siemens
        if len(ends) == 1:
            outside[ends[0]] += siemens
        else:
            between[ends[0], ends[1]] -= siemens
            between[ends[1], ends[0]] -= siemens
    return between, outside


def _settled(soc: SoC, busy: Processor | None, ambient_c: float) -> dict[str, float]:
    """Temperatures in the long run with one processor at its lowest clocks; raises if leakage runs away."""
    between, outside = _conductance(soc)
    names = [n.name for n in soc.thermal.nodes]
    celsius = np.full(len(names), ambient_c)
    for _ in range(200):
        watts = np.zeros(len(names))
        outer = [i for i, n in enumerate(soc.thermal.nodes) if not n.processors and outside[i] > 0]
        watts[outer[0]] += soc.base_w.value
        for i, node in enumerate(soc.thermal.nodes):
            if busy is not None and busy.name in node.processors:
                watts[i] += sum(_watts(c, c.operating_points[0], celsius[i]) for c in busy.clusters)
        after = np.linalg.solve(between, watts + outside * ambient_c)
        if np.abs(after - celsius).max() < 1e-6:
            return dict(zip(names, after.tolist(), strict=True))
        celsius = np.minimum(after, 500.0)
    raise AssertionError(f"{soc.id}: leakage runs away even at the lowest clocks")


def test_the_lowest_clocks_can_always_be_cooled(soc: SoC) -> None:
    """At 35 degrees, whatever works: no runaway, the skin within what a hand or a housing bears, junctions below their trips."""
    limit = {t.node: t.temperature_c.value for t in soc.thermal.trips if t.node != "case"}
    for p in soc.processors:
        settled = _settled(soc, p, 35.0)
        assert 35.0 < settled["case"] < 60.0, f"{p.name}: {settled}"
        assert all(settled[node] < most for node, most in limit.items()), f"{p.name}: {settled}"


def test_an_idle_device_does_not_throttle(soc: SoC) -> None:
    settled = _settled(soc, None, 25.0)
    for trip in soc.thermal.trips:
        assert settled[trip.node] < trip.temperature_c.value - trip.hysteresis_k.value, trip.node


@pytest.mark.parametrize("name", ["snapdragon-888", "snapdragon-x-elite", "qcs6490", "sa8295p"])
def test_ten_minutes_in_the_heat_stay_within_reason(real_model: Callable[[str], Path], name: str) -> None:
    """A phone, a laptop, a board and a car at 35 degrees, MobileNetV2 end to end."""
    import hetsched

    trace = hetsched.simulate(hetsched.plan(real_model("mobilenet_v2"), name), duration_s=600, ambient_c=35)
    final = trace.summary()["final_temperatures_c"]
    assert 35.0 < final["case"] < 60.0
    assert max(final.values()) < 95.0


def test_an_npu_without_float_gets_integers_only(real_model: Callable[[str], Path]) -> None:
    """The V68 of phones: float models stay on CPU and GPU, as AI Hub ran them on the QCS6490."""
    import hetsched

    model = real_model("mobilenet_v2")
    for name in ("snapdragon-888", "qcs6490"):
        assert all("f16" not in c.peak_ops_s for c in load_soc(name).by_name["npu"].clusters)
        counts = [hetsched.plan(model, name, precision=p).summary()["ops_by_processor"] for p in ("float", "w8a8")]
        assert ["npu" in count for count in counts] == [False, True]
