"""What-if hardware: short names, dotted paths, what follows from them, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hetsched import soc_aliases
from hetsched.errors import SoCError
from hetsched.soc_files import load_soc, overridden, soc_paths, soc_sha256
from hetsched.soc_overrides import MAX_OVERRIDES, paths
from hetsched.soc_quantities import Figure
from hetsched.socs import SoC

BASE = load_soc("snapdragon-8-gen-3")


def npu_peak(precision: str) -> Callable[[SoC], Figure]:
    return lambda s: s.by_name["npu"].clusters[0].peak_ops_s[precision]


def resistance(soc: SoC, *ends: str) -> Figure:
    return next(r.k_per_w for r in soc.thermal.resistances if set(r.between) == set(ends))


ONE: list[tuple[str, str, Callable[[SoC], Figure | None], float]] = [
    ("npu.int8_tops", "100", npu_peak("i8"), 100e12),
    ("npu.int4_tops", "200", npu_peak("i4"), 200e12),
    ("npu.fp8_tops", "90", npu_peak("f8"), 90e12),
    ("npu.fp16_tflops", "20", npu_peak("f16"), 20e12),
    ("npu.launch_us", "50", lambda s: s.by_name["npu"].launch_s, 50e-6),
    ("gpu.op_overhead_us", "3", lambda s: s.by_name["gpu"].op_overhead_s, 3e-6),
    ("npu.onchip_mb", "32", lambda s: s.by_name["npu"].onchip_bytes, 32e6),
    ("npu.bandwidth_gbps", "90", lambda s: s.by_name["npu"].bandwidth_bytes_s, 90e9),
    ("cpu.core_bandwidth_gbps", "30", lambda s: s.by_name["cpu"].core_bandwidth_bytes_s, 30e9),
    ("gpu.vector_gbps", "500", lambda s: s.by_name["gpu"].vector_bytes_s, 500e9),
    ("memory.reachable_gbps", "60", lambda s: s.memory.reachable_bytes_s, 60e9),
    ("memory.capacity_gb", "24", lambda s: s.memory.capacity_bytes, 24e9),
    ("memory.system_cache_mb", "10", lambda s: s.memory.system_cache_bytes, 10e6),
    ("memory.system_cache_gbps", "200", lambda s: s.memory.system_cache_bytes_s, 200e9),
    ("memory.system_cache_pj_per_byte", "5", lambda s: s.memory.system_cache_j_per_byte, 5e-12),
    ("memory.pim_gbps", "400", lambda s: s.memory.in_memory_bytes_s, 400e9),
    ("npu.sparsity", "2", lambda s: s.by_name["npu"].sparsity, 2.0),
    ("memory.energy_pj_per_byte", "20", lambda s: s.memory.energy_j_per_byte, 20e-12),
    ("cpu-npu.sync_us", "5", lambda s: s.links[1].sync_s, 5e-6),
    ("npu-cpu.sync_us", "6", lambda s: s.links[1].sync_s, 6e-6),
    ("gpu-npu.cache_maintenance_us", "1", lambda s: s.links[2].cache_maintenance_s, 1e-6),
    ("case-ambient.k_per_w", "2", lambda s: resistance(s, "case", "ambient"), 2.0),
    ("base_w", "0.5", lambda s: s.base_w, 0.5),
    ("processors.npu.bandwidth_bytes_s", "9e10", lambda s: s.by_name["npu"].bandwidth_bytes_s, 9e10),
    ("processors.npu.bandwidth_bytes_s.value", "9e10", lambda s: s.by_name["npu"].bandwidth_bytes_s, 9e10),
    ("processors.gpu.vector_bytes_s", "1e11", lambda s: s.by_name["gpu"].vector_bytes_s, 1e11),
    ("processors.npu.utilisation.conv", "0.9", lambda s: s.by_name["npu"].utilisation["conv"], 0.9),
    ("processors.npu.clusters.npu.peak_ops_s.i4", "1e14", npu_peak("i4"), 1e14),
    ("links.cpu-npu.sync_s", "1e-5", lambda s: s.links[1].sync_s, 1e-5),
    ("thermal.resistances.soc-case.k_per_w", "3", lambda s: resistance(s, "soc", "case"), 3.0),
    ("thermal.nodes.case.capacity_j_per_k", "80", lambda s: s.thermal.nodes[-1].capacity_j_per_k, 80.0),
    ("thermal.trips.0.temperature_c", "80", lambda s: s.thermal.trips[0].temperature_c, 80.0),
]


@pytest.mark.parametrize(("field", "text", "read", "value"), ONE, ids=[case[0] for case in ONE])
def test_one_figure(field: str, text: str, read: Callable[[SoC], Figure | None], value: float) -> None:
    changed = load_soc("snapdragon-8-gen-3", overrides={field: text})
    figure = read(changed)
    assert figure is not None
    assert (figure.value, figure.source) == (pytest.approx(value, rel=1e-12), "set by the user")
    try:
        before = read(BASE)
    except KeyError:
        before = None
    assert figure.was == (None if before is None else before.value)
    assert changed.overrides == {field: text}
    assert soc_sha256(changed) != soc_sha256(BASE)


def test_plain_values() -> None:
    changed = overridden(BASE, {"queues.cpu": "cpu:7", "links.gpu-npu.coherent": "true", "queues.big": "cpu:2-4", "governor": "powersave"})
    assert (changed.queues["cpu"], changed.queues["big"], changed.governor) == ("cpu:7", "cpu:2-4", "powersave")
    assert changed.links[2].coherent


def test_a_figure_with_its_own_source() -> None:
    changed = overridden(BASE, {"memory.peak_bytes_s": "{value: 8.0e+10, source: my datasheet}"})
    assert (changed.memory.peak_bytes_s.value, changed.memory.peak_bytes_s.source) == (8e10, "my datasheet")


def test_a_rate_of_several_clusters_is_shared_as_before() -> None:
    before = [c.peak_ops_s["i8"].value for c in BASE.by_name["cpu"].clusters]
    after = [c.peak_ops_s["i8"].value for c in overridden(BASE, {"cpu.int8_tops": "10"}).by_name["cpu"].clusters]
    assert sum(after) == pytest.approx(10e12)
    assert [a / b for a, b in zip(after, before, strict=True)] == pytest.approx([10e12 / sum(before)] * len(before))


def test_a_new_rate_is_shared_by_the_widest_float() -> None:
    cpu = overridden(BASE, {"cpu.bf16_tops": "2"}).by_name["cpu"]
    shares = [c.peak_ops_s["bf16"].value / c.peak_ops_s["f32"].value for c in cpu.clusters]
    assert sum(c.peak_ops_s["bf16"].value for c in cpu.clusters) == pytest.approx(2e12)
    assert shares == pytest.approx([shares[0]] * len(shares))


def test_a_new_clock_scales_what_depends_on_it() -> None:
    (old,) = BASE.by_name["npu"].clusters
    (new,) = overridden(BASE, {"npu.clock_ghz": f"{2 * old.top.hz / 1e9}"}).by_name["npu"].clusters
    assert [p.hz for p in new.operating_points] == pytest.approx([2 * p.hz for p in old.operating_points])
    assert [p.v for p in new.operating_points] == [p.v for p in old.operating_points]
    assert {k: f.value for k, f in new.peak_ops_s.items()} == pytest.approx({k: 2 * f.value for k, f in old.peak_ops_s.items()})
    assert new.dynamic_w.value == pytest.approx(2 * old.dynamic_w.value)
    assert "npu.clock_ghz = " in (new.dynamic_w.estimated or "")
    assert "estimated" in new.operating_points_source


def test_another_memory_scales_what_everybody_reaches() -> None:
    twice = 2 * BASE.memory.peak_bytes_s.value
    changed = overridden(BASE, {"memory.bandwidth_gbps": f"{twice / 1e9}"})
    assert changed.memory.peak_bytes_s.value == twice
    assert changed.memory.reachable_bytes_s.value == pytest.approx(2 * BASE.memory.reachable_bytes_s.value)
    for pair, together in BASE.memory.together_bytes_s.items():
        assert changed.memory.together_bytes_s[pair].value == pytest.approx(2 * together.value)
    old, new = BASE.by_name["npu"].bandwidth_bytes_s, changed.by_name["npu"].bandwidth_bytes_s
    assert (new.value, new.was) == (pytest.approx(2 * old.value), old.value)
    assert changed.by_name["cpu"].core_bandwidth_bytes_s == BASE.by_name["cpu"].core_bandwidth_bytes_s


def test_a_smaller_system_cache_than_the_files_is_refused() -> None:
    """What it spares is inside the fitted figures; nobody knows what a chip would be without it."""
    with pytest.raises(SoCError, match="cannot set the system cache to 2 MB: what the file's 6 MB spare is inside"):
        overridden(BASE, {"memory.system_cache_mb": "2"})
    with pytest.raises(SoCError, match="cannot set the system cache to 5 MB: what the file's 6 MB"):
        overridden(overridden(BASE, {"memory.system_cache_mb": "32"}), {"memory.system_cache_bytes": "5e6"})


def test_the_order_does_not_matter() -> None:
    wanted = {
        "npu.clock_ghz": "2", "npu.int8_tops": "80", "npu.sparsity": "2", "memory.bandwidth_gbps": "100", "npu.bandwidth_gbps": "70",
        "processors.npu.clusters.npu.peak_ops_s.f16": "3e13",
    }  # fmt: skip
    found = {soc_sha256(overridden(BASE, dict(order))) for order in itertools.islice(itertools.permutations(wanted.items()), 0, 720, 37)}
    assert len(found) == 1
    npu = overridden(BASE, wanted).by_name["npu"]
    assert npu.bandwidth_bytes_s.value == 70e9
    assert npu.clusters[0].peak_ops_s["f16"].value == 3e13
    assert npu.clusters[0].peak_ops_s["i8"].value == 80e12
    assert npu.sparsity is not None and npu.sparsity.value == 2


def test_every_short_name_works() -> None:
    for field in soc_aliases.names(BASE.model_dump(mode="json")):
        text = "20" if field == "memory.system_cache_mb" else "2"
        assert overridden(BASE, {field: text}).overrides == {field: text}


def test_every_path_can_be_set_to_its_own_value() -> None:
    raw = BASE.model_dump(mode="json")
    found = list(paths(raw))
    assert len(found) > 200 and "thermal.resistances.case-ambient.k_per_w" in found and "links.cpu-gpu.sync_s" in found
    for field in found[::7]:
        node = raw
        for step in field.split("."):
            node = _item(node, step)
        text = yaml.safe_dump(node["value"] if isinstance(node, dict) and "value" in node else node, default_flow_style=True)
        same = overridden(BASE, {field: text.removesuffix("\n...\n")})
        assert same.by_name.keys() == BASE.by_name.keys(), field


def _item(node: object, step: str) -> object:
    if isinstance(node, dict):
        return node[step]
    assert isinstance(node, list)
    named = [i for i in node if isinstance(i, dict) and (i.get("name") == step or "-".join(i.get("between", ())) == step)]
    return named[0] if named else node[int(step)]


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("npu.int8_top", "1", "'npu.int8_top': there is no such field; did you mean npu.int8_tops"),
        ("memory.bandwith_gbps", "1", "did you mean memory.bandwidth_gbps"),
        ("processors.npu.lunch_s", "1", "did you mean processors.npu.launch_s"),
        ("processors.dsp.launch_s", "1", "no 'dsp', only cpu, gpu, npu; did you mean processors"),
        ("cpu-npu.sync", "1", "did you mean cpu-npu.sync_us"),
        ("xyzzy", "1", "docs/soc_files.md"),
        ("npu.int8_tops", "fast", "'npu.int8_tops' to 'fast': it takes a number"),
        ("npu.int8_tops", "-1", "it takes a number"),
        ("npu.launch_us", "nan", "it takes a number"),
        ("npu.launch_us", "1e15", "the value 1e+09 makes no sense here"),
        ("npu.clock_ghz", "0", "hz"),
        ("memory.capacity_gb", "inf", "it takes a number"),
        ("memory.peak_bytes_s", "fast", "it must be a number of bytes a second, without a unit"),
        ("queues.cpu", "&a [1]", "anchor"),
        ("queues.cpu", "[1", "not a number or a YAML value"),
        ("queues.cpu", "x" * 2000, "too long"),
        ("memory.peak_bytes_s.value.more", "1", "memory.peak_bytes_s"),
        ("", "1", "no such field"),
        ("memory", "1", "cannot set 'memory' to '1' on snapdragon-8-gen-3: it must be a mapping with kind, "),
    ],
)
def test_what_is_refused(field: str, text: str, sentence: str) -> None:
    with pytest.raises(SoCError) as e:
        load_soc("snapdragon-8-gen-3", overrides={field: text})
    assert sentence in str(e.value) and "\n" not in str(e.value)


def test_too_many() -> None:
    with pytest.raises(SoCError, match="at most 256"):
        overridden(BASE, {f"queues.q{i}": "npu" for i in range(MAX_OVERRIDES + 1)})


def test_a_file_has_no_overrides(tmp_path: Path) -> None:
    raw = yaml.safe_load(soc_paths()["dimensity-9300"].read_text())
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(raw | {"overrides": {"npu.int8_tops": "1"}}))
    with pytest.raises(SoCError, match="the field overrides"):
        load_soc(path)


def test_the_documentation_lists_every_short_name() -> None:
    text = (Path(__file__).parents[2] / "docs" / "soc_files.md").read_text("utf-8")
    known = [*soc_aliases.RATES, *soc_aliases.PROCESSOR, *soc_aliases.MEMORY, *soc_aliases.LINK, *soc_aliases.RESISTANCE]
    for name in ("clock_ghz", "sparsity", "memory.bandwidth_gbps", *(n for n in known if not n.endswith("_tflops"))):
        assert name in text, name


@pytest.mark.parametrize("field", ["id", "name", "family", "schema_version"])
def test_what_names_a_soc_cannot_be_set(field: str) -> None:
    with pytest.raises(SoCError, match=f"cannot set '{field}': it says which SoC this is"):
        load_soc("snapdragon-8-gen-3", overrides={field: "host"})
