"""The host: detection on other machines' files, the cache, the SoC made of a measurement."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hetsched_cost_models.host import detect as detect_machine
from hetsched_cost_models.host.chip import onchip_bytes, soc_of
from hetsched_cost_models.host.detect import Machine, _cpuinfo, cache_bytes
from hetsched_cost_models.host.measurement import VERSION, HostMeasurement, cache_file, read_cached, write_cached


def _machine(cores: tuple[int, ...] = (0, 1, 2, 3), **changes: object) -> Machine:
    facts: dict[str, object] = {
        "model": "Test CPU", "architecture": "x86_64", "system": "Linux", "cores": cores, "flags": ("avx2", "fma"), "l1d_bytes": 1 << 15,
        "l2_bytes": 1 << 20, "l3_bytes": 32 << 20, "memory_bytes": 8 << 30, "max_hz": 3e9, "kernels": "k",
    }  # fmt: skip
    return Machine(**{**facts, **changes})  # type: ignore[arg-type]


def _measurement(machine: Machine) -> HostMeasurement:
    classes = ("conv1x1", "conv", "grouped", "depthwise", "gemm", "matmul")
    return HostMeasurement(
        version=VERSION, fingerprint=machine.fingerprint, model=machine.model, cores=machine.cores,
        read_one_bytes_s=10e9, read_all_bytes_s=25e9,
        peak_f32_ops_s=100e9, peak_i8_ops_s=400e9,
        rates={f"{c}/{p}": r for c in classes for p, r in (("f32", 50e9), ("i8", 100e9)) if not (c == "matmul" and p == "i8")},
        vector_bytes_s=20e9, vector={"elementwise": 1.0, "softmax": 8.0, "transpose": 4.0}, op_overhead_s=2e-6, launch_s=8e-6, sync_s=5e-6,
    )  # fmt: skip


def test_detects_this_machine() -> None:
    machine = detect_machine()
    assert machine.cores == tuple(sorted(machine.cores))
    assert machine.architecture
    assert len(machine.fingerprint) == 16
    assert machine == detect_machine()


def test_fingerprint_follows_what_changes_rates() -> None:
    base = _machine()
    assert base.fingerprint == _machine(memory_bytes=1, max_hz=1.0).fingerprint
    for change in ({"cores": (0, 1)}, {"flags": ()}, {"model": "x"}, {"l2_bytes": 5}, {"kernels": "other"}):
        assert base.fingerprint != _machine(**change).fingerprint  # type: ignore[arg-type]


def test_cpuinfo_of_arm_and_of_nothing(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\nCPU implementer\t: 0x41\nCPU part\t: 0xd81\n\nprocessor\t: 1\n")
    assert _cpuinfo(file)["CPU part"] == "0xd81"
    assert _cpuinfo(tmp_path / "absent") == {}


def test_cache_sizes(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "Unified", "x"))
    ):
        folder = tmp_path / "cpu0" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert cache_bytes(0, 1, tmp_path) == 48 << 10
    assert cache_bytes(0, 2, tmp_path) == 2 << 20
    assert cache_bytes(0, 3, tmp_path) == 0  # unreadable
    assert cache_bytes(7, 1, tmp_path) == 0  # absent


def test_measurement_survives_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    machine = _machine()
    measured = _measurement(machine)
    assert read_cached(machine.fingerprint) is None
    path = write_cached(measured)
    assert path == cache_file(machine.fingerprint)
    assert read_cached(machine.fingerprint) == measured
    assert [p.name for p in (tmp_path / "hetsched").iterdir()] == [path.name], "nothing half-written is left"


@pytest.mark.parametrize("damage", ["truncate", "version", "negative", "list", "missing", "other machine", "text"])
def test_damaged_cache_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    machine = _machine()
    path = write_cached(_measurement(machine))
    assert path is not None
    raw = json.loads(path.read_text())
    if damage == "version":
        raw["version"] = VERSION + 1
    elif damage == "negative":
        raw["read_one_bytes_s"] = -1.0
    elif damage == "missing":
        del raw["sync_s"]
    elif damage == "other machine":
        raw["fingerprint"] = "0" * 16
    elif damage == "text":
        raw["rates"]["conv/f32"] = "fast"
    text = json.dumps([raw] if damage == "list" else raw)
    path.write_text(text[:50] if damage == "truncate" else text)
    assert read_cached(machine.fingerprint) is None


def test_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert write_cached(_measurement(_machine())) is None


@pytest.mark.parametrize(("cores", "queues"), [((0,), ["cpu:0"]), ((0, 1), ["cpu:0", "cpu:1"]), ((2, 3, 6, 7), ["cpu:2", "cpu:6"])])
def test_soc_has_two_queues_where_there_are_two_cores(cores: tuple[int, ...], queues: list[str]) -> None:
    machine = _machine(cores)
    soc = soc_of(machine, _measurement(machine))
    assert list(soc.queues) == queues
    assert soc.id == "host"


def test_rates_of_a_host_queue_are_those_of_one_core() -> None:
    from hetsched_cost_models.parameters import class_shares, vector_factors
    from hetsched_cost_models.roofline import queue_rates

    machine = _machine()
    rates = queue_rates(soc_of(machine, _measurement(machine)), "cpu:2")
    assert rates.peak_ops_s == {"f32": 100e9, "i8": 400e9}
    assert rates.bandwidth_bytes_s == 10e9
    assert rates.vector_bytes_s == pytest.approx(20e9)
    overrides = {k: v.value for k, v in rates.processor.utilisation.items()}
    assert class_shares(rates.family, "f32", overrides)[1:] == [0.5] * 6
    assert class_shares(rates.family, "i8", overrides)[1:6] == [0.25] * 5
    assert vector_factors(rates.family, "f32", overrides)[4] == pytest.approx(8.0)  # softmax
    assert vector_factors(rates.family, "f32", overrides)[-1] == 0.0  # measured with the products


def test_on_chip_memory_is_what_the_read_test_overflows() -> None:
    assert onchip_bytes(_machine(l3_bytes=32 << 20)) == 32 << 20
    assert onchip_bytes(_machine(l3_bytes=300 << 20)) == 1 << 20
    assert onchip_bytes(_machine(l3_bytes=0, l2_bytes=0)) == 1 << 20


def test_host_works_from_the_cache_without_numba(tmp_path: Path) -> None:
    machine = detect_machine()
    script = (
        "import sys\n"
        "from hetsched_cost_models.host import host_soc\n"
        "soc = host_soc(lambda line: sys.exit('measured although cached: ' + line))\n"
        "assert soc.id == 'host'\n"
        "bad = sorted(m for m in sys.modules if m.split('.')[0] in ('numba', 'llvmlite', 'onnx', 'ortools', 'scipy'))\n"
        "assert not bad, bad\n"
    )
    (tmp_path / "hetsched").mkdir()
    file = tmp_path / "hetsched" / f"host-{machine.fingerprint}.json"
    file.write_text(json.dumps(_measurement(machine).as_dict()))
    env = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def measured() -> HostMeasurement:
    """One real measurement, not kept."""
    from hetsched_cost_models.host import measure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "write_cached", lambda measured: None)
        return measure.measure()


def test_a_real_measurement_is_plausible(measured: HostMeasurement) -> None:
    assert HostMeasurement.from_dict(json.loads(json.dumps(measured.as_dict()))) == measured
    assert 1e8 < measured.read_one_bytes_s <= measured.read_all_bytes_s < 1e13
    assert {f"{c}/f32" for c in ("conv1x1", "conv", "grouped", "depthwise", "gemm", "matmul")} <= set(measured.rates)
    assert {f"{c}/i8" for c in ("conv1x1", "conv", "grouped", "depthwise", "gemm")} <= set(measured.rates)
    assert all(1e7 < r <= max(measured.peak_f32_ops_s, measured.peak_i8_ops_s) for r in measured.rates.values())
    assert 1e-8 < measured.op_overhead_s < 1e-3
    assert 1e-8 < measured.sync_s < 1e-2
    assert measured.vector["elementwise"] == 1.0
