"""Levels by the state of the machine: a folder as the kernel shows it, and a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.app.generating import assistant
from hetsched.language.generation import Answer
from hetsched.language.power import LEVELS
from hetsched.language.power_watch import PowerWatch

WriteDecoder = Callable[..., Path]


class Machine:
    """A machine's state in a folder, and its clock."""

    def __init__(self, root: Path) -> None:
        self.root, self.now_s = root, 0.0

    def zone(self, number: int, kind: str, degrees: float, trips: tuple[float, ...] = (), critical: float | None = None) -> None:
        folder = self.root / f"class/thermal/thermal_zone{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "type").write_text(kind + "\n")
        (folder / "temp").write_text(f"{round(degrees * 1000)}\n")
        for n, (at, name) in enumerate([*((t, "passive") for t in trips), *([(critical, "critical")] if critical else [])]):
            (folder / f"trip_point_{n}_temp").write_text(f"{round((at or 0) * 1000)}\n")
            (folder / f"trip_point_{n}_type").write_text(f"{name}\n")

    def battery(self, percent: int) -> None:
        folder = self.root / "class/power_supply/battery"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "type").write_text("Battery\n")
        (folder / "capacity").write_text(f"{percent}\n")

    def watch(self) -> PowerWatch:
        return PowerWatch(LEVELS, self.root, lambda: self.now_s)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "sys")


def names(machine: Machine, watch: PowerWatch, seconds: int) -> list[str]:
    """The level after each of so many seconds, without repeats."""
    out: list[str] = []
    for _ in range(seconds):
        machine.now_s += 1.0
        out += [name for name in [watch().name] if out[-1:] != [name]]
    return out


def test_a_zone_at_its_trip_lowers_the_level_until_it_has_cooled(machine: Machine) -> None:
    machine.zone(0, "cpu-thermal", 60.0, trips=(85.0, 95.0))
    watch = machine.watch()
    assert watch.note == "" and names(machine, watch, 40) == ["normal"]
    machine.zone(0, "cpu-thermal", 86.0)
    assert names(machine, watch, 12) == ["warm"]
    assert names(machine, watch, 20) == ["warm", "critical"]
    machine.zone(0, "cpu-thermal", 84.0)
    assert names(machine, watch, 60) == ["critical"]  # within the hysteresis
    machine.zone(0, "cpu-thermal", 70.0)
    assert names(machine, watch, 29) == ["warm"]  # one step every 30 s
    assert names(machine, watch, 60) == ["warm", "normal"]


def test_the_skin_counts_in_degrees(machine: Machine) -> None:
    machine.zone(3, "skin-therm", 38.0)
    watch = machine.watch()
    assert names(machine, watch, 3) == ["normal"]
    machine.zone(3, "skin-therm", 39.5)
    assert names(machine, watch, 3) == ["warm"]
    machine.zone(3, "skin-therm", 46.0)
    assert names(machine, watch, 3) == ["critical"]


def test_a_low_battery_is_critical_until_it_is_charged(machine: Machine) -> None:
    machine.battery(10)
    watch = machine.watch()
    assert watch.note == "" and names(machine, watch, 40) == ["normal"]
    machine.battery(9)
    assert names(machine, watch, 40) == ["critical"]
    machine.battery(12)
    assert names(machine, watch, 40) == ["critical"]
    machine.battery(15)
    assert names(machine, watch, 2) == ["normal"]


def test_the_machine_is_looked_at_once_a_second(machine: Machine) -> None:
    machine.battery(50)
    watch = machine.watch()
    watch()
    machine.battery(5)
    machine.now_s = 0.9
    assert watch().name == "normal"
    machine.now_s = 1.0
    assert watch().name == "critical"


def test_a_machine_without_sensors_stays_normal_and_says_so(machine: Machine) -> None:
    machine.zone(0, "acpitz", 99.0, critical=105.0)
    watch = machine.watch()
    assert "no charge and no temperature at which it slows down" in watch.note and names(machine, watch, 50) == ["normal"]


def test_text_goes_on_through_the_levels(machine: Machine, write_decoder: WriteDecoder) -> None:
    """The same text whenever the machine's state changes at the same tokens."""
    path, answers = write_decoder("llama", "Q4_1", vocabulary=True), []
    for _ in range(2):
        machine.zone(0, "cpu-thermal", 60.0, trips=(85.0,))
        machine.battery(80)
        answer, at, machine.now_s = Answer(), [], 0.0
        with assistant(path, context=128, cores=(0, 1)) as opened:
            opened.model.watch = machine.watch()
            for token in opened.complete("the cat", most=90, answer=answer):
                machine.now_s += 1.0
                at.append(opened.model.power.name)
                if len(at) == 20:
                    machine.zone(0, "cpu-thermal", 90.0)
                elif len(at) == 25:
                    machine.zone(0, "cpu-thermal", 40.0)
                elif len(at) == 80:
                    machine.battery(5)
                assert token.id == answer.tokens[-1]
        answers.append(answer.tokens)
        assert [at[n] for n in (19, 24, 70, 85)] == ["normal", "warm", "normal", "critical"]
    assert answers[0] == answers[1] and len(answers[0]) == 90


def test_auto_is_asked_for_by_name(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    with assistant(path, context=128, power="auto") as opened:
        watch = opened.watch
        assert watch is not None and opened.model.watch is watch
        assert opened.summary(Answer())["power_note"] == (watch.note or None)
        opened.work_at("warm")
        assert opened.model.power.name == "warm" and {opened.model.watch, opened.watch} == {None}
