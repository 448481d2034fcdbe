"""The host: detection on other machines' files, the cache, the SoC made of a measurement."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hetsched_cost_models.host import detect as detect_machine
from hetsched_cost_models.host.chip import onchip_bytes, soc_of
from hetsched_cost_models.host.detect import Machine, _cpuinfo, cache_bytes
from hetsched_cost_models.host.measurement import POOR_OTHERS, POOR_SPREAD, VERSION, HostMeasurement, cache_file, read_cached, write_cached


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
        sync_estimated=False, serial_share=0.1, spread=0.05, others=0.0, probe_s=(1e-3, 2e-3),
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


@pytest.mark.parametrize(
    "damage", ["truncate", "version", "negative", "list", "missing", "other machine", "text", "quality", "flag", "probes"]
)
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
    elif damage == "probes":
        raw["probe_s"] = [0.0]
    elif damage == "quality":
        raw["spread"] = -1.0
    elif damage == "flag":
        raw["sync_estimated"] = "yes"
    text = json.dumps([raw] if damage == "list" else raw)
    path.write_text(text[:50] if damage == "truncate" else text)
    assert read_cached(machine.fingerprint) is None


def test_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert write_cached(_measurement(_machine())) is None


@pytest.mark.parametrize(
    ("cores", "queues"),
    [
        ((0,), ["cpu:0"]),
        ((0, 1), ["cpu:0", "cpu:1", "cpu:0-1"]),
        ((2, 3, 6, 7), ["cpu:2", "cpu:6", "cpu:2-3"]),
        ((0, 2), ["cpu:0", "cpu:2"]),
        (tuple(range(16)), ["cpu:0", "cpu:8", "cpu:0-3"]),
    ],
)
def test_soc_has_queues_of_one_core_and_one_of_neighbours(cores: tuple[int, ...], queues: list[str]) -> None:
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
    assert class_shares(rates.family, "f32", overrides)[1:] == [0.5] * 10
    assert class_shares(rates.family, "i8", overrides)[1:6] == [0.25] * 5
    assert vector_factors(rates.family, "f32", overrides)[4] == pytest.approx(8.0)  # softmax


def test_a_queue_of_two_cores_is_as_fast_as_measured() -> None:
    from hetsched_cost_models.roofline import queue_rates

    machine = _machine()
    soc = soc_of(machine, _measurement(machine))
    one, two = queue_rates(soc, "cpu:2"), queue_rates(soc, "cpu:0-1")
    for precision, peak in one.peak_ops_s.items():
        assert two.peak_ops_s[precision] == pytest.approx(2.0 * peak / 1.1)
    assert two.vector_bytes_s == pytest.approx(2.0 * one.vector_bytes_s / 1.1)
    assert two.bandwidth_bytes_s == 20e9
    assert two.active_w == 2.0 * one.active_w


def test_bytes_of_matrix_work_come_from_the_measurement() -> None:
    from hetsched_cost_models.operators import CLASSES
    from hetsched_cost_models.parameters import matrix_factors
    from hetsched_cost_models.roofline import queue_rates

    machine = _machine()
    measured = _measurement(machine)
    measured.vector["matrix/conv1x1/f32"] = 3.0
    rates = queue_rates(soc_of(machine, measured), "cpu:2")
    overrides = {k: v.value for k, v in rates.processor.utilisation.items()}
    assert matrix_factors(rates.family, "f32", overrides)[CLASSES.index("conv1x1")] == pytest.approx(3.0)


def test_identical_cores_have_identical_rates() -> None:
    """The queues of one core are shares of one measurement, so that baselines on them do not differ by noise."""
    from hetsched_cost_models.roofline import queue_rates

    for cores in ((0, 1), (0, 1, 2), (2, 3, 6, 7), tuple(range(13))):
        machine = _machine(cores)
        soc = soc_of(machine, _measurement(machine))
        a, b = (queue_rates(soc, target) for target in list(soc.queues.values())[:2])
        for field in ("peak_ops_s", "bandwidth_bytes_s", "vector_bytes_s", "overhead_s", "active_w"):
            assert getattr(a, field) == getattr(b, field), field


def test_a_poor_measurement_says_so_in_the_notes_of_the_soc() -> None:
    machine = _machine()
    good = _measurement(machine)
    assert not good.poor
    assert good.notes == ()
    for change in ({"spread": POOR_SPREAD * 1.1}, {"others": POOR_OTHERS * 1.1}):
        poor = replace(good, **change)
        assert poor.poor
        assert any("hetsched calibrate" in note for note in soc_of(machine, poor).notes)
    assumed = soc_of(machine, replace(good, sync_estimated=True))
    assert assumed.link("cpu", "cpu").sync_s.estimated  # type: ignore[union-attr]
    assert any("signal" in note for note in assumed.notes)
    assert soc_of(machine, good).link("cpu", "cpu").sync_s.source  # type: ignore[union-attr]


def test_what_compares_kernels_does_not_invalidate_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.machinery import ModuleSpec

    for name in ("gemm.py", "benchmark.py", "benchmark_peers.py", "comparison_products.py", "measure.py"):
        (tmp_path / name).write_text("a")
    spec = ModuleSpec("hetsched_kernels", None, is_package=True)
    assert spec.submodule_search_locations is not None
    spec.submodule_search_locations.append(str(tmp_path))
    monkeypatch.setattr(sys.modules["hetsched_cost_models.host.detect"], "find_spec", lambda name: spec)
    digest = sys.modules["hetsched_cost_models.host.detect"].kernels_digest
    first = digest()
    for name in ("benchmark.py", "benchmark_peers.py", "comparison_products.py", "measure.py"):
        (tmp_path / name).write_text("b")
    assert digest() == first
    (tmp_path / "gemm.py").write_text("b")
    assert digest() != first


def test_the_fastest_repeat_counts_and_the_spread_is_kept() -> None:
    from hetsched_cost_models.host.timing import Timed

    timed = Timed(lambda: None, 1, [3e-3, 1e-3, 2e-3], [4e-3, 2e-3, 3e-3])
    assert timed.best_s == 1e-3
    assert timed.spread == pytest.approx(0.5)


def test_repeats_are_interleaved() -> None:
    from hetsched_cost_models.host.timing import Timed, one_round

    log: list[str] = []
    timed = [Timed(lambda: log.append("a")), Timed(lambda: log.append("b"))]
    for _ in range(3):
        one_round(timed)
    changes = [x for x, y in zip(log, [*log[1:], ""], strict=True) if x != y]
    assert changes == ["a", "b"] * 3
    assert all(len(t.thread_s) == 3 for t in timed)


def test_what_several_cores_do_is_timed_by_their_own_clocks() -> None:
    """The thread that waits for them may get a core when all is done; it must not look as if nothing had taken any time."""
    from hetsched_cost_models.host.threads import elapsed_s, read_bandwidth

    assert elapsed_s([(1.0, 3.0), (1.5, 3.5)]) == 2.5
    assert 1e8 < read_bandwidth((0,), 2) < 1e13


@pytest.mark.parametrize(("times", "spells"), [([5, 5, 5, 5, 5], 3), ([9, 8, 7, 6, 6], 5)])
def test_spells_go_on_until_the_fastest_repeats_settle(times: list[float], spells: int) -> None:
    from hetsched_cost_models.host.timing import Patience, Timed, until_settled

    class Scripted(Timed):
        def repeat(self) -> None:
            self.thread_s.append(float(times[len(self.thread_s)]))

    seen: list[int] = []
    timed = [Scripted(lambda: None)]
    assert until_settled(timed, Patience(spells=3, rounds=1, pause_s=0.0), seen.append) == spells
    assert seen == list(range(1, spells + 1))


def test_spells_end_at_their_limit() -> None:
    from hetsched_cost_models.host.timing import Patience, Timed, until_settled

    class Faster(Timed):
        def repeat(self) -> None:
            self.thread_s.append(0.5 ** len(self.thread_s))

    timed = [Faster(lambda: None)]
    assert until_settled(timed, Patience(spells=2, rounds=1, pause_s=0.0, limit_s=0.0), lambda spell: None) == 1


def test_the_faster_of_two_measurements_counts_probe_by_probe() -> None:
    from hetsched_cost_models.host.measure import _merged
    from hetsched_cost_models.host.probes import Probe

    machine = _machine()
    probes = [Probe(n, 1e6, lambda: None) for n in ("vector/elementwise", "vector/copy", "conv/f32", "conv/i8")]
    old = replace(_measurement(machine), probe_s=(1e-3, 4e-3, 1e-3, 1e-3, 1e-6), read_one_bytes_s=11e9, sync_s=4e-6, others=1.0)
    new = replace(_measurement(machine), probe_s=(2e-3, 2e-3, 2e-3, 5e-4, 2e-6), read_one_bytes_s=10e9, sync_estimated=True)
    both = _merged(machine, probes, new, old)
    assert both.probe_s == (1e-3, 2e-3, 1e-3, 5e-4, 1e-6)
    assert (both.peak_f32_ops_s, both.peak_i8_ops_s) == (pytest.approx(1e9), pytest.approx(2e9))
    assert (both.read_one_bytes_s, both.sync_s, both.sync_estimated, both.others) == (11e9, 4e-6, False, 0.0)
    assert both == _merged(machine, probes, old, new)


def test_costs_of_operations_bytes_and_results_are_told_apart() -> None:
    from hetsched_cost_models.host.measure import fitted
    from hetsched_cost_models.host.probes import Probe

    def timed(work: float, size: float, seconds: float, results: float = 0.0) -> tuple[Probe, float]:
        return Probe("conv/f32", work, lambda: None, size, results), seconds

    shapes = ((1e8, 1e5, 4e4), (1e7, 1e6, 1e4), (5e7, 5e5, 3e5), (2e7, 2e5, 9e5))
    exact = [timed(w, b, w / 50e9 + b * 2e-10 + r * 3e-10, r) for w, b, r in shapes]
    assert fitted(exact) == (pytest.approx(50e9), pytest.approx(2e-10), pytest.approx(3e-10))
    # Bytes can cost nothing, but never less; a class bound by bytes alone keeps a finite rate.
    rate, byte_s, _ = fitted([timed(1e8, 1e6, 2e-3), timed(1e7, 1e6, 1e-4), timed(2e7, 2e6, 2e-4)])
    assert byte_s == 0.0
    assert 50e9 <= rate <= 100e9
    rate, byte_s, _ = fitted([timed(1e6, 1e6, 1e-3), timed(1e6, 2e6, 2e-3), timed(1e6, 4e6, 4e-3)])
    assert rate < 6e9, "four times the best probe's, before all is scaled"
    assert byte_s > 0
    # What cannot be fitted exactly is right on average, in logarithms; two probes say nothing about more than a rate.
    rate, byte_s, result_s = fitted([timed(1e8, 1e5, 1e-3, 1e4), timed(1e8, 2e5, 4e-3, 3e4)])
    assert (rate, byte_s, result_s) == (pytest.approx(1e8 / 2e-3), 0.0, 0.0)


def test_integers_of_floats_have_figures_of_their_own() -> None:
    from hetsched_cost_models.operators import CLASSES
    from hetsched_cost_models.parameters import DYNAMIC, class_shares, matrix_factors, result_factors
    from hetsched_cost_models.roofline import overrides_of, queue_rates

    machine = _machine()
    measured = _measurement(machine)
    measured.rates[f"conv/{DYNAMIC}"] = 20e9
    measured.vector.update({"matrix/conv/i8": 3.0, f"matrix/conv/{DYNAMIC}": 5.0, "result/conv/i8": 7.0})
    rates = queue_rates(soc_of(machine, measured), "cpu:2")
    conv, product = CLASSES.index("conv"), CLASSES.index("gemm")
    for figures, static, dynamic in ((class_shares, 0.25, 0.05), (matrix_factors, 3.0, 5.0), (result_factors, 7.0, 7.0)):
        for peak, wanted in (("i8", static), (DYNAMIC, dynamic)):
            assert figures(rates.family, peak, overrides_of(rates))[conv] == pytest.approx(wanted)
    assert class_shares(rates.family, DYNAMIC, overrides_of(rates))[product] == pytest.approx(0.25), "none of its own"


def test_a_cold_call_moves_through_memory() -> None:
    from hetsched_cost_models.host.probes_cold import Cold

    seen: list[tuple[int, int, int]] = []
    x, y, out = np.ones(1 << 20, np.float32), np.ones(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
    call = Cold(lambda a, b, c, n: seen.append((a.ctypes.data, b.ctypes.data, c.ctypes.data)), (x, y, out, 3), (1,), (2,))
    for _ in range(6):
        call()
    warm, reads, writes = (set(column) for column in zip(*seen, strict=True))
    assert warm == {x.ctypes.data}
    assert len(reads) >= 2 and len(writes) >= 2 and not reads & writes
    assert all(address % 64 == 0 for address in reads | writes)


@pytest.mark.skipif(len(detect_machine().cores) < 2, reason="one core")
def test_shared_work_is_counted_once_a_turn() -> None:
    from hetsched_cost_models.host.chip import team_of
    from hetsched_cost_models.host.probes_shared import Shared

    shared = Shared(team_of(detect_machine().cores))
    assert 0.0 < shared.together_s() < 20.0 * shared.alone_s()


@pytest.mark.parametrize("broken", ["never set", "slow"])
def test_a_disturbed_signal_is_assumed_and_said(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    from hetsched_cost_models.host import threads

    answers = {"never set": None, "slow": 6.6e-3}
    tries: list[int] = []

    def batch(first: int, second: int) -> float | None:
        tries.append(1)
        return answers[broken]

    monkeypatch.setattr(threads, "_batch", batch)
    assert threads.sync_s((0, 1)) is None
    assert len(tries) > 10, "it tries again before it gives up"
    assert threads.sync_s((0,)) is None


def test_one_good_batch_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    from hetsched_cost_models.host import threads

    answers = iter([None, 6.6e-3, 4e-6, *[5e-3] * 100])
    monkeypatch.setattr(threads, "_batch", lambda first, second: next(answers))
    assert threads.sync_s((0, 1)) == 4e-6


def test_a_wait_in_vain_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from hetsched_cost_models.host import threads

    monkeypatch.setattr(threads, "_patient", lambda wait, flags, index, value: value < 5)
    assert threads._batch(0, 0) is None


def test_processor_seconds_of_all_programs(tmp_path: Path) -> None:
    import os

    from hetsched_cost_models.host.timing import busy_s

    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 30 1000 50 4 5 6 0 0\ncpu0 1 2 3\n")
    assert busy_s(stat) == pytest.approx((100 + 20 + 30 + 4 + 5 + 6) / os.sysconf("SC_CLK_TCK"))
    assert busy_s(tmp_path / "absent") == 0.0


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
    assert 5e-8 < measured.sync_s <= 200e-6
    assert measured.spread >= 0
    assert {f"matrix/{c}/{p}" for c in ("conv1x1", "conv", "depthwise", "gemm", "matmul") for p in ("f32", "i8")} <= set(measured.vector)
    assert measured.vector["elementwise"] == 1.0


def test_memory_that_a_busy_machine_slows_still_gives_a_valid_soc() -> None:
    """What a cache holds is then many times as fast as the elementwise reference, which memory bounds."""
    from hetsched_cost_models.host.detect import detect
    from hetsched_cost_models.host.measure import _assemble, _Together
    from hetsched_cost_models.host.probes import Probe

    names = ["vector/elementwise", "vector/copy", "vector/gather", "gemm/f32", "gemm/i8"]
    probes = [Probe(name, 1e6, lambda: None) for name in names]
    machine = detect()
    together = _Together(machine.cores, 1e10, 1e10)
    found = _assemble(machine, probes, [1e-3, 1e-4, 1e-6, 1e-5, 1e-5, 1e-6], together, 0.1, 0.5)
    assert soc_of(machine, found).processors[0].utilisation["vector/gather"].value == 10.0
