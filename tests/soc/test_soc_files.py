"""The locator and the messages of bad SoC files."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hetsched.cores import cores_of
from hetsched.errors import SoCError
from hetsched.soc_files import MAX_FILE_BYTES, list_socs, load_soc, soc_directory, soc_paths, soc_sha256
from hetsched.socs import HOST

PHONES = ("apple-a17-pro", "dimensity-9300", "snapdragon-8-gen-3")


def _raw(name: str = "snapdragon-8-gen-3") -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load(soc_paths()[name].read_text())
    return raw


def _write(tmp_path: Path, raw: Any) -> Path:
    path = tmp_path / "x.yaml"
    path.write_text(raw if isinstance(raw, str) else yaml.safe_dump(raw))
    return path


def test_the_three_phones_ship_and_load() -> None:
    assert set(PHONES) <= set(list_socs())
    for name in list_socs():
        soc = load_soc(name)
        assert soc.id == name
        assert {q.split(":")[0] for q in soc.queues.values()} <= set(soc.by_name)


def test_a_path_works_where_an_id_does(tmp_path: Path) -> None:
    by_id = load_soc("dimensity-9300")
    path = tmp_path / "mine.yaml"
    shutil.copy(soc_paths()["dimensity-9300"], path)
    assert load_soc(path) == by_id
    assert load_soc(str(path)) == by_id
    assert soc_sha256(load_soc(path)) == soc_sha256(by_id)


def test_an_edit_in_the_checkout_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "hetsched"
    package.mkdir()
    shutil.copytree(soc_directory(), tmp_path / "soc_specs")
    assert soc_directory(package) == tmp_path / "soc_specs"
    path = tmp_path / "soc_specs" / "apple" / "apple-a17-pro.yaml"
    before = load_soc("apple-a17-pro", directory=soc_directory(package))
    path.write_text(path.read_text().replace("name: Apple A17 Pro\n", "name: Edited\n"))
    after = load_soc("apple-a17-pro", directory=soc_directory(package))
    assert (before.name, after.name) == ("Apple A17 Pro", "Edited")
    assert soc_sha256(before) != soc_sha256(after)


def test_package_data_wins_over_the_checkout(tmp_path: Path) -> None:
    package = tmp_path / "hetsched"
    (package / "soc_specs").mkdir(parents=True)
    (tmp_path / "soc_specs").mkdir()
    assert soc_directory(package) == package / "soc_specs"


def test_this_checkout_reads_its_own_files() -> None:
    import hetsched

    root = Path(hetsched.__file__).parent
    assert soc_directory() in (root / "soc_specs", root.parent / "soc_specs")


def test_no_soc_files_at_all(tmp_path: Path) -> None:
    with pytest.raises(SoCError, match="reinstall hetsched"):
        soc_directory(tmp_path / "hetsched")


def test_unknown_id_lists_near_matches() -> None:
    with pytest.raises(SoCError, match=r"'snapdragon-8-gen-33'.*did you mean snapdragon-8-gen-3"):
        load_soc("snapdragon-8-gen-33")
    with pytest.raises(SoCError, match=r"known are .*apple-a17-pro.*host"):
        load_soc("zzzz")


def test_only_this_machine_is_the_host() -> None:
    phone = load_soc("snapdragon-8-gen-3")
    assert not phone.is_host and phone.model_copy(update={"id": HOST}).is_host


def test_missing_path() -> None:
    with pytest.raises(SoCError, match=r"there is no SoC file 'nowhere/x.yaml'"):
        load_soc("nowhere/x.yaml")


def test_file_and_id_disagree(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    shutil.copy(soc_paths()["dimensity-9300"], tmp_path / "v" / "other.yaml")
    with pytest.raises(SoCError, match="make them agree"):
        load_soc("other", directory=tmp_path)


def test_too_large_file(tmp_path: Path) -> None:
    path = _write(tmp_path, "# " + "x" * MAX_FILE_BYTES + "\n")
    with pytest.raises(SoCError, match="bytes: a SoC file has at most"):
        load_soc(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id: [unclosed", r"not valid YAML at line \d+"),
        ("a: b: c", r"not valid YAML at line 1"),
        ("- just\n- a list\n", "not a mapping"),
        ("", "not a mapping"),
        ("plain text", "not a mapping"),
        ("a: &x [1]\nb: *x\n", r"alias \(\*x\) at line 2"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("a: 2024-13-45", "not valid YAML"),
        ("id: x", r"not a valid SoC file: the field 'name' is missing"),
    ],
)
def test_malformed_text(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SoCError, match=message) as e:
        load_soc(_write(tmp_path, text))
    assert "\n" not in str(e.value)
    assert "x.yaml" in str(e.value)


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(SoCError, match="cannot read the SoC file"):
        load_soc(path)


def _at(raw: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    raw = copy.deepcopy(raw)
    node: Any = raw
    *steps, last = path.split("/")
    for step in steps:
        node = node[int(step) if isinstance(node, list) else step]
    if value is _DELETE:
        del node[last]
    else:
        node[int(last) if isinstance(node, list) else last] = value
    return raw


_DELETE = object()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("memory/peak_bytes_s", {"value": 1.0}, r"memory\.peak_bytes_s = .*needs either 'source"),
        ("memory/peak_bytes_s", {"value": -1.0, "source": "s"}, r"peak_bytes_s\.value = -1\.0: it must be at least 0 \(bytes a second\)"),
        ("memory/peak_bytes_s", {"value": float("nan"), "source": "s"}, r"memory\.peak_bytes_s\.value = nan"),
        ("memory/peak_bytes_s", {"value": 1.0, "source": "s", "estimated": "e"}, "needs either"),
        ("processors/2/clusters/0/operating_points/0/v", "high", r"processors\.npu\.clusters\.npu\.operating_points\.0\.v = 'high'"),
        ("processors/1/clusters/0/operating_points/0/hz", 9e9, r"processors\.gpu\.clusters\.gpu.*must ascend in frequency"),
        ("processors/0/kind", "tpu", r"processors\.cpu\.kind = 'tpu'"),
        ("processors/0/launch_s", _DELETE, r"the field 'processors\.cpu\.launch_s' is missing: write a number of seconds"),
        ("processors/0/launhc_s", {"value": 1, "source": "s"}, r"no field 'processors\.cpu\.launhc_s'; did you mean 'launch_s'\?"),
        ("queues/cpu", "cpu9", "names the processor 'cpu9', which does not exist"),
        ("queues/cpu", "cpu:0-4000000000", "names more than 1024 cores"),
        ("queues/cpu", "cpu:big", "does not name cores"),
        ("queues/cpu", "cpu:7-2", "runs backwards"),
        ("queues/cpu", "cpu:4-9", "names the core 8, which 'cpu' does not have"),
        ("interval_estimated", "", "interval_estimated = ''"),
        ("thermal/trips/0/node", "battery", "trip on 'battery', which is not a thermal node"),
        ("thermal/resistances/0/between", ["cpu", "moon"], "names a node that does not exist"),
        ("processors/1/name", "cpu", "two processors share a name"),
        ("schema_version", 2, "schema_version = 2"),
        ("id", "Has Spaces", r"id = 'Has Spaces'"),
    ],
)
def test_bad_fields_are_named_with_their_value(tmp_path: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises(SoCError, match=message) as e:
        load_soc(_write(tmp_path, _at(_raw(), path, value)))
    assert "\n" not in str(e.value)


def test_overrides() -> None:
    soc = load_soc(
        "snapdragon-8-gen-3", overrides={"processors.npu.launch_s": "1e-3", "memory.reachable_bytes_s.value": "5e10", "queues.cpu": "cpu:7"}
    )
    assert soc.by_name["npu"].launch_s.value == 1e-3
    assert soc.by_name["npu"].launch_s.source == "set by the user"
    assert soc.memory.reachable_bytes_s.value == 5e10
    assert soc.queues["cpu"] == "cpu:7"
    assert soc_sha256(soc) != soc_sha256(load_soc("snapdragon-8-gen-3"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("processors.dsp.launch_s", "1", r"'processors.dsp.launch_s'.*no 'dsp', only cpu, gpu, npu"),
        ("memory.peak_bytes_s", "fast", r"'memory.peak_bytes_s' to 'fast' on snapdragon-8-gen-3: it must be a number of bytes a second"),
        ("memory.speed", "1", r"memory\.speed"),
    ],
)
def test_bad_overrides(field: str, value: str, message: str) -> None:
    with pytest.raises(SoCError, match=message):
        load_soc("snapdragon-8-gen-3", overrides={field: value})


FIGURES = [
    "processors.npu.bandwidth_bytes_s", "processors.cpu.launch_s", "processors.cpu.op_overhead_s", "processors.cpu.onchip_bytes",
    "memory.reachable_bytes_s", "memory.energy_j_per_byte", "memory.capacity_bytes", "base_w",
]  # fmt: skip


@pytest.mark.parametrize("field", FIGURES)
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e300", "1180591620717411303424", "many", "null", "[]"])
def test_figures_that_no_machine_has(field: str, value: str) -> None:
    with pytest.raises(SoCError, match=field.rpartition(".")[2]):
        load_soc("snapdragon-8-gen-3", overrides={field: value})


@pytest.mark.parametrize("value", [0, 1e-300])
def test_rates_of_nothing(tmp_path: Path, value: float) -> None:
    def rates(node: Any) -> list[dict[str, Any]]:
        items = list(node.items()) if isinstance(node, dict) else list(enumerate(node)) if isinstance(node, list) else []
        found = [v for k, v in items if str(k).endswith("bytes_s") and isinstance(v, dict) and "value" in v]
        return found + [r for _, v in items for r in rates(v)]

    raw = _raw()
    assert len(rates(raw)) > 5
    for figure in rates(raw):
        before, figure["value"] = figure["value"], value
        with pytest.raises(SoCError, match="makes no sense"):
            load_soc(_write(tmp_path, raw))
        figure["value"] = before


def _lonely(raw: dict[str, Any]) -> None:
    raw["thermal"]["resistances"] = [r for r in raw["thermal"]["resistances"] if "ambient" not in r["between"]]


BAD_NETWORKS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no way to ambient": (_lonely, "no path"),
    "node twice": (
        lambda raw: raw["thermal"]["nodes"].append(
            dict(raw["thermal"]["nodes"][0], capacity_j_per_k={"value": 1, "source": "x"}, processors=[])
        ),
        "share a name",
    ),
    "trip on no node": (lambda raw: raw["thermal"]["trips"][0].update(node="nowhere"), "nowhere"),
    "trip of no processor": (lambda raw: raw["thermal"]["trips"][0].update(processors=["tpu"]), "tpu"),
    "node of no processor": (lambda raw: raw["thermal"]["nodes"][0].update(processors=["tpu"]), "tpu"),
    "resistance to itself": (lambda raw: raw["thermal"]["resistances"][0].update(between=["ambient", "ambient"]), "twice"),
    "polling without end": (lambda raw: raw["thermal"]["trips"][0]["polling_s"].update(value=0), "makes no sense"),
    "no peaks": (lambda raw: raw["processors"][0]["clusters"][0].update(peak_ops_s={}), "peak_ops_s"),
    "queue of no processor": (lambda raw: raw["queues"].update(tpu="tpu"), "tpu"),
}


@pytest.mark.parametrize("kind", BAD_NETWORKS)
def test_bad_networks(tmp_path: Path, kind: str) -> None:
    raw = copy.deepcopy(_raw())
    change, named = BAD_NETWORKS[kind]
    change(raw)
    with pytest.raises(SoCError, match=named):
        load_soc(_write(tmp_path, raw))


@pytest.mark.parametrize(
    ("target", "cores"),
    [("cpu", ()), ("npu", ()), ("cpu:3", (3,)), ("cpu:2-4,7", (2, 3, 4, 7)), ("cpu:5,0-1,1", (0, 1, 5)), ("x:0-1023", 1024)],
)
def test_cores_of_a_queue(target: str, cores: tuple[int, ...] | int) -> None:
    found = cores_of(target)
    assert (len(found) if isinstance(cores, int) else found) == cores


@pytest.mark.parametrize(
    "target", ["cpu:", "cpu:a", "cpu:1-", "cpu:-1", "cpu:1,,2", "cpu:3-1", "cpu:0-1024", "cpu:0-4000000000", "cpu:" + "9" * 400]
)
def test_malformed_or_endless_cores_are_refused(target: str) -> None:
    with pytest.raises(SoCError, match="queue 'cpu:") as e:
        cores_of(target)
    assert len(str(e.value)) < 250


def test_the_runtime_pins_by_the_same_rule() -> None:
    from hetsched.runtime import affinity

    assert affinity.cores_of("cpu:2-4,7") == cores_of("cpu:2-4,7")
    assert affinity.cores_of("cpu:big") == ()
    with pytest.raises(SoCError, match="1024"):
        affinity.cores_of("cpu:0-4000000000")
    note = affinity.pin("cpu:0-4000000000")
    assert note is not None
    assert "1024" in note
