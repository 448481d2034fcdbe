"""What each policy wants, from observations made by hand; names and plug-ins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from hetsched.errors import OptionError
from hetsched.policies import SAVER, Level, Load, Observation, Trip, naming, policy_named, policy_names
from hetsched.policies.battery_saver import BatterySaver
from hetsched.policies.predictive import Predictive
from hetsched.policies.reactive import Reactive
from hetsched.policies.static import Static

LEVELS = tuple(Level(n, 0.01, (4.0 / (n + 1), 1.0)) for n in range(4))


def after(heat_w: Sequence[float], seconds: float) -> tuple[float, ...]:
    """A chip that warms by its watts per second from 50 °C, for ten seconds, within a skin that stays."""
    return (50.0 + heat_w[0] * min(seconds, 10.0), 30.0)


def seen(**changes: Any) -> Observation:
    base = Observation(100.0, 0, 100.0, LEVELS, ("chip", "skin"), (50.0, 30.0), 30.0, 1.0, (Trip(0, 95.0),), 1.0, (), after)
    return replace(base, **changes)


def test_static_stays() -> None:
    assert Static().wanted(seen(level=2, clock=0.2, skin_c=60.0)) == 2


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, 0),
        ({"clock": 0.9}, 1),
        ({"skin_c": 38.9}, 0),
        ({"skin_c": 39.0}, 1),
        ({"skin_c": 43.0}, 2),
        ({"skin_c": 50.0, "level": 1, "since_s": 0.1}, 3),
        ({"clock": 0.9, "level": 1, "since_s": 6.9}, 1),
        ({"clock": 0.9, "level": 1, "since_s": 7.0}, 2),
        ({"clock": 0.9, "level": 3}, 3),
        ({"level": 1, "since_s": 29.0}, 1),
        ({"level": 1, "since_s": 30.0}, 0),
        ({"level": 3, "since_s": 30.0}, 2),
        ({"level": 1, "since_s": 60.0, "skin_c": 37.2}, 1),
        ({"level": 1, "since_s": 60.0, "skin_c": 37.0}, 0),
        ({"level": 2, "since_s": 60.0, "skin_c": 41.0}, 1),
        ({"level": 1, "since_s": 60.0, "temperatures_c": (93.5, 30.0)}, 1),
        ({"level": 1, "since_s": 60.0, "clock": 0.9, "temperatures_c": (50.0, 30.0)}, 2),
        ({"skin_c": None, "nodes": (), "temperatures_c": (), "trips": ()}, 0),
    ],
)
def test_reactive(changes: dict[str, Any], wanted: int) -> None:
    assert Reactive().wanted(seen(**changes)) == wanted


def test_reactive_does_not_flap_while_the_skin_hovers_at_its_threshold() -> None:
    policy, level, since, changes = Reactive(), 0, 0.0, 0
    for k in range(600):
        skin = 39.0 + (0.8 if k % 2 else -0.8)
        wanted = policy.wanted(seen(time_s=float(k), level=level, since_s=since, skin_c=skin))
        changes, since = changes + (wanted != level), 0.0 if wanted != level else since + 1.0
        level = wanted
    assert (level, changes) == (1, 1)


def loads(watts: float, level: int = 0) -> tuple[Load, ...]:
    return tuple(Load(98.0 + k, 1.0, level, (watts, 1.0)) for k in range(3))


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"loads": loads(4.0)}, 0),  # 90 °C in 10 s
        ({"loads": loads(4.46)}, 1),  # 94.6 °C in 10 s: within half a degree of the trip; level 1 makes half of it
        ({"loads": loads(12.0)}, 2),  # level 1 would make 6.9 W, level 2 5 W ...
        ({"loads": loads(40.0)}, 3),  # nothing helps: the deepest
        ({"loads": ()}, 0),
        ({"loads": loads(40.0), "trips": ()}, 0),
        ({"level": 1, "since_s": 0.5, "loads": loads(40.0, 1)}, 1),
        ({"level": 1, "since_s": 1.0, "loads": loads(40.0, 1)}, 3),
        ({"level": 1, "since_s": 29.0, "loads": loads(2.0, 1)}, 1),
        ({"level": 1, "since_s": 30.0, "loads": loads(2.0, 1)}, 0),  # 5 W in all: 90 °C in 10 s at level 0
        ({"level": 1, "since_s": 30.0, "loads": loads(2.3, 1)}, 1),  # 94 °C: not far enough below
        ({"level": 1, "since_s": 30.0, "loads": loads(2.0, 0)}, 1),  # only what the level itself did counts
    ],
)
def test_predictive(changes: dict[str, Any], wanted: int) -> None:
    assert Predictive().wanted(seen(**changes)) == wanted


def test_predictive_trusts_the_newest_load_most() -> None:
    rising = tuple(Load(90.0 + k, 1.0, 0, (float(k), 0.0)) for k in range(11))
    falling = tuple(Load(90.0 + k, 1.0, 0, (float(10 - k), 0.0)) for k in range(11))
    assert Predictive().wanted(seen(loads=rising)) > 0
    assert Predictive().wanted(seen(loads=falling)) == 0


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"battery": 1.0}, 0),
        ({"battery": 0.099}, SAVER),
        ({"battery": 0.10}, 0),
        ({"battery": 0.12, "level": SAVER}, SAVER),
        ({"battery": 0.15, "level": SAVER}, 0),
        ({"battery": 0.15, "level": SAVER, "since_s": 29.0}, SAVER),
        ({"battery": 0.05, "level": SAVER}, SAVER),
        ({"skin_c": 46.4}, 0),
        ({"skin_c": 46.5}, SAVER),
        ({"skin_c": 45.2, "level": SAVER}, SAVER),
        ({"skin_c": 45.0, "level": SAVER}, 0),
        ({"skin_c": 45.0, "level": SAVER, "battery": 0.12}, SAVER),
        ({"skin_c": 60.0, "critical_c": None}, 0),
        ({"skin_c": None}, 0),
    ],
)
def test_battery_saver(changes: dict[str, Any], wanted: int) -> None:
    assert BatterySaver().wanted(seen(**{"critical_c": 46.5, **changes})) == wanted


def test_the_saving_level_is_a_step_where_it_is_thriftier_and_delivers_as_much() -> None:
    saving = Level(SAVER, 0.01, (0.1, 1.0))
    hot = seen(levels=(*LEVELS[:2], saving), clock=0.3, skin_c=60.0, critical_c=46.5, loads=loads(40.0))
    assert hot.ladder == (0, 1, SAVER)
    assert Reactive().wanted(hot) == 1 and Reactive().wanted(replace(hot, level=1)) == SAVER
    assert Predictive().wanted(hot) == SAVER
    slow = replace(hot, levels=(*LEVELS[:2], replace(saving, latency_s=0.05)))
    assert Reactive().wanted(replace(slow, level=1)) == 1 and Predictive().wanted(slow) <= 1
    assert replace(hot, levels=(*LEVELS[:2], Level(SAVER, 0.01, (2.0, 1.0)))).ladder == (0, 1)
    for policy in (Reactive(), Predictive()):
        assert policy.wanted(seen(levels=hot.levels, level=SAVER, loads=loads(0.1, SAVER))) == 1
    assert hot.nearest(BatterySaver().wanted(hot)) == SAVER
    assert replace(hot, levels=LEVELS).nearest(BatterySaver().wanted(hot)) == 3  # an older plan file


def test_the_battery_saver_saves() -> None:
    """Where another level draws less at the pace that is asked, it goes there instead."""
    thrifty = Level(1, 0.01, (0.2, 1.0))
    assert BatterySaver().wanted(seen(battery=0.05, levels=(LEVELS[0], thrifty, Level(SAVER, 0.01, (0.5, 1.0))))) == 1
    assert BatterySaver().wanted(seen(battery=0.05, levels=(LEVELS[0], thrifty, Level(SAVER, 0.01, (0.2, 1.0))))) == SAVER


def test_the_levels_there_are() -> None:
    few = seen(level=2, levels=(LEVELS[0], LEVELS[2]))
    assert (few.deeper(), few.shallower(), few.nearest(1), few.nearest(3), few.nearest(-2)) == (2, 0, 0, 2, 0)
    assert replace(few, level=0).deeper(1) == 0
    assert replace(few, level=0).deeper(3) == 2
    assert Reactive().wanted(replace(few, level=0, clock=0.5)) == 2


SLOWER = (LEVELS[0], replace(LEVELS[1], latency_s=0.02), replace(LEVELS[2], latency_s=0.04))


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"clock": 0.9}, 0),  # level 1 takes twice as long
        ({"clock": 0.5, "levels": (replace(SLOWER[0], seen_s=0.021), *SLOWER[1:])}, 1),  # throttled, level 0 takes longer than that
        ({"clock": 0.9, "asked_s": 0.03}, 1),  # both keep up
        ({"clock": 0.9, "asked_s": 0.05, "skin_c": 44.0}, 2),
        ({"skin_c": 50.0}, 0),
        # Level 1 turned out slower than level 0 was, hot as it is: back, and not there again.
        ({"clock": 0.5, "level": 1, "since_s": 7.0, "levels": (replace(SLOWER[0], seen_s=0.021), replace(SLOWER[1], seen_s=0.03))}, 0),
        ({"clock": 0.5, "level": 1, "since_s": 6.0, "levels": (replace(SLOWER[0], seen_s=0.021), replace(SLOWER[1], seen_s=0.03))}, 1),
        ({"clock": 0.5, "levels": (replace(SLOWER[0], seen_s=0.021), replace(SLOWER[1], seen_s=0.03))}, 0),
    ],
)
def test_reactive_chooses_by_what_levels_deliver(changes: dict[str, Any], wanted: int) -> None:
    assert Reactive().wanted(seen(**{"levels": SLOWER, **changes})) == wanted


@pytest.mark.parametrize(
    ("second_s", "asked_s", "wanted"),
    [
        (0.02, None, 0),  # 44.5 K of 150 may come: slowed to the root of that, 54 a second, and level 1, with 64 K, to 42 of 50
        (0.014, None, 1),  # 59 of 71
        (0.02, 0.05, 1),  # both keep up
    ],
)
def test_predictive_chooses_by_what_levels_deliver(second_s: float, asked_s: float | None, wanted: int) -> None:
    levels = (LEVELS[0], replace(LEVELS[1], latency_s=second_s))
    assert Predictive().wanted(seen(levels=levels, loads=loads(15.0), asked_s=asked_s)) == wanted


def test_a_level_that_heats_more_is_no_step() -> None:
    """A GPU at 6 W instead of the slowed NPU at 2.3 W, and a level that saves too little."""
    watts = (4.4, 2.3, 6.1, 2.1)
    levels = tuple(Level(n, 0.01, (w, 1.0)) for n, w in enumerate(watts))
    at = seen(levels=levels)
    assert at.ladder == (0, 1)
    assert replace(at, levels=(*levels[:3], Level(3, 0.01, (1.0, 1.0)))).ladder == (0, 1, 3)
    assert replace(at, levels=tuple(replace(v, heat_w=()) for v in levels)).ladder == (0, 1, 2, 3)
    assert Reactive().wanted(replace(at, skin_c=50.0)) == 1
    assert Reactive().wanted(replace(at, level=1, clock=0.5, skin_c=50.0)) == 1
    assert Predictive().wanted(replace(at, loads=loads(40.0))) == 1
    assert Reactive().wanted(replace(at, level=3)) == 1


class Mine:
    """Somebody's own."""

    period_s = 2.0

    def wanted(self, seen: Observation) -> int:
        return 2 if seen.time_s > 5 else 0


class NoPolicy:
    """Lacks everything."""


def test_names_and_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert policy_names() == ["battery-saver", "predictive", "reactive", "static"]
    assert all(policy_named(n).period_s > 0 for n in policy_names())
    with pytest.raises(OptionError, match="no policy is called 'cool': use battery-saver, predictive, reactive, static"):
        policy_named("cool")
    found = [EntryPoint(n, f"{__name__}:{n}", naming.ENTRY_POINTS) for n in ("Mine", "NoPolicy")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found if group == naming.ENTRY_POINTS else [])
    assert policy_named("Mine").wanted(seen()) == 2
    with pytest.raises(OptionError, match="the policy 'NoPolicy' needs a method 'wanted'"):
        policy_named("NoPolicy")


def test_predictive_counts_on_stages_of_trips() -> None:
    """A node that is slowed a little at its first trip, and fully at its last only, delivers more than one that stays at the first."""
    levels = (Level(0, 0.010, (4.0, 1.0)), Level(1, 0.015, (1.0, 1.0)))
    warm = {"levels": levels, "loads": loads(4.0), "after": lambda heat, seconds: (30.0 + 4.0 * heat[0], 30.0)}
    assert Predictive().wanted(seen(**warm, trips=(Trip(0, 35.0),))) == 1
    assert Predictive().wanted(seen(**warm, trips=(Trip(0, 35.0, 45.0),))) == 0


def test_predictive_keeps_the_fastest_where_nothing_stays_cool() -> None:
    levels = (Level(0, 0.010, (4.0, 1.0)), Level(1, 0.1, (0.5, 1.0)))
    hot = seen(levels=levels, loads=loads(4.0), after=lambda heat, seconds: (50.0 + 4.0 * heat[0], 30.0), trips=(Trip(0, 45.0),))
    assert Predictive().wanted(hot) == 0
