"""The flat list of a SoC's figures, and how two SoCs differ."""

from __future__ import annotations

import pytest

from hetsched.soc_figures import differences, estimated_share, figures, peak
from hetsched.soc_files import load_soc, overridden
from hetsched.soc_quantities import Figure
from hetsched.soc_thermal import Sensor
from hetsched.soc_words import link_line, memory_lines, processor_lines, quantity, trip_lines
from hetsched.socs import Link

BASE = load_soc("snapdragon-8-gen-3")


def test_paths_are_unique_and_origins_are_there() -> None:
    found = figures(BASE)
    assert len({f.path for f in found}) == len(found) > 90
    assert all(f.origin for f in found)


def test_the_list_says_what_the_file_says() -> None:
    by_path = {f.path: f for f in figures(BASE)}
    assert by_path["links.cpu-gpu.sync_s"].value == BASE.links[0].sync_s.value
    assert not by_path["links.cpu-gpu.sync_s"].estimated
    assert by_path["processors.npu.clusters.npu.top_v"].estimated
    assert by_path["processors.cpu.clusters.prime.top_hz"].value == 3.3024e9
    assert not by_path["processors.cpu.clusters.prime.top_hz"].estimated
    assert by_path["thermal.resistances.case-ambient.k_per_w"].value == BASE.thermal.resistances[-1].k_per_w.value


def test_the_share_of_estimates_counts_them() -> None:
    found = figures(BASE)
    assert estimated_share(BASE) == len([f for f in found if f.estimated]) / len(found)
    known = overridden(BASE, {"memory.capacity_bytes": "{value: 1.2e+10, source: the box}"})
    assert estimated_share(known) == pytest.approx(estimated_share(BASE) - 1 / len(found))


def test_peaks_add_up_over_clusters() -> None:
    cpu = BASE.by_name["cpu"]
    found = peak(cpu, "f32")
    assert found is not None and found.value == sum(c.peak_ops_s["f32"].value for c in cpu.clusters)
    assert found.estimated  # of the efficiency cluster
    assert peak(cpu, "i4") is None
    changed = peak(overridden(BASE, {"npu.int8_tops": "100"}).by_name["npu"], "i8")
    assert changed is not None and (changed.value, changed.was) == (100e12, BASE.by_name["npu"].clusters[0].peak_ops_s["i8"].value)


def test_a_soc_differs_from_itself_by_what_was_set() -> None:
    assert differences(BASE, BASE) == []
    found = {d.path: d.ratio for d in differences(BASE, overridden(BASE, {"base_w": "0.5"}))}
    assert found == {"base_w": pytest.approx(0.5 / BASE.base_w.value)}


def test_what_only_one_has() -> None:
    found = {d.path: d for d in differences(BASE, load_soc("apple-a18"))}
    assert found["processors.cpu.clusters.prime.top_hz"].b is None
    assert found["processors.cpu.clusters.prime.top_hz"].ratio is None
    assert found["processors.npu.peak_ops_s.i8"].a == BASE.by_name["npu"].clusters[0].peak_ops_s["i8"].value


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("memory.capacity_bytes", 12e9, "12 GB"),
        ("processors.cpu.onchip_bytes", 8e6, "8 MB"),
        ("memory.together_bytes_s.cpu+npu", 59.6e9, "59.6 GB/s"),
        ("links.cpu-npu.cache_maintenance_s_per_byte", 3e-11, "0.03 ns/B"),
        ("memory.energy_j_per_byte", 2.4e-11, "24 pJ/B"),
        ("processors.cpu.clusters.prime.top_hz", 3.3e9, "3.3 GHz"),
        ("thermal.trips.0.temperature_c", 95.0, "95 °C"),
        ("processors.npu.launch_s", 0.0, "0 ns"),
        ("processors.npu.utilisation.conv", 0.5, "0.5"),
        ("anything", None, "-"),
    ],
)
def test_quantities(path: str, value: float | None, text: str) -> None:
    assert quantity(path, value) == text


def test_words_mark_estimates_and_what_was_set() -> None:
    changed = overridden(BASE, {"npu.launch_us": "85", "memory.bandwidth_gbps": "100"})
    lines = dict(processor_lines(changed, changed.by_name["npu"]))
    launch, peak_bytes_s = BASE.by_name["npu"].launch_s.value, BASE.memory.peak_bytes_s.value
    assert lines["launch"] == f"85 µs! (file: {launch * 1e6:.4g} µs)"
    assert "~! (file: " in lines["reads"]
    assert "!" not in lines["on chip"]
    assert dict(memory_lines(changed))["bandwidth"].startswith(f"peak 100 GB/s! (file: {peak_bytes_s / 1e9:.4g} GB/s)")


def test_a_link_in_words() -> None:
    link = Link(
        between=("cpu", "gpu"), sync_s=Figure(value=4e-4, source="s"), coherent=False, handle="ahardwarebuffer",
        cache_maintenance_s=Figure(value=1e-5, estimated="e"), cache_maintenance_s_per_byte=Figure(value=3e-11, source="s"),
    )  # fmt: skip
    assert link_line(link) == "sync 400 µs, caches 10 µs~ and 0.03 ns/B, ahardwarebuffer"
    shared = link.model_copy(update={"coherent": True, "handle": None, "fence": "sync-file"})
    assert link_line(shared) == "sync 400 µs, coherent, copied, sync-file"


def test_sensors_and_controllers_in_words() -> None:
    """The Tensor G3's controllers are a line each; a sensor says what it is a mean of, and how late it is."""
    soc = load_soc("tensor-g3")
    lines = trip_lines(soc)
    assert "skin-cpu-light: case from 37 °C to 39 °C cools cpu:performance, cpu:prime (every 7 s, by vendor_pid)" in lines
    assert "skin-tpu: case from 39 °C, deeper above 43 °C, 45 °C, 46.5 °C cools npu (every 7 s, by cap)" in lines
    skin = Sensor(name="skin", weights={"case": 0.7, "soc": 0.3}, offset_k=-0.25, lag_s=20, sampling_s=7, skin=True, estimated="test")
    soc = soc.model_copy(update={"thermal": soc.thermal.model_copy(update={"sensors": (skin,)})})
    assert trip_lines(soc)[0] == "sensor: skin = 0.7 case + 0.3 soc -0.25 K, 20 s late, read every 7 s~, the skin"
