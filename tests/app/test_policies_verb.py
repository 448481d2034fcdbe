"""Policies on real plan files: the levels read back, what is paid, the comparison, the report, the messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import hetsched
from hetsched.app.policies import levels_of, other_levels
from hetsched.app.sessions import open_session, read_plan
from hetsched.app.simulating import Scenario, Simulated, simulate_policies
from hetsched.errors import OptionError
from hetsched.policies.battery_saver import BatterySaver

PHONE = "snapdragon-8-gen-3"
DIMS = {"width": 96}
Runner = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plan_file(two_branch_heavy: Path, tmp_path: Path) -> Path:
    return hetsched.plan(two_branch_heavy, PHONE, dims=DIMS, time_limit_s=0.5, levels=True).save(tmp_path / "p.json")


def test_policies_compared_on_one_plan_file(plan_file: Path) -> None:
    runs = simulate_policies(
        plan_file, ("static", "reactive", "predictive", "battery-saver"), Scenario(duration_s=120.0, ambient_c=40.0, battery=0.05)
    )
    static, reactive, predictive, saver = (runs[p].summary() for p in ("static", "reactive", "predictive", "battery-saver"))
    json.dumps([r.summary() for r in runs.values()], allow_nan=False)
    assert static["levels"] is None and static["policy"] == "static"
    assert reactive["levels"]["switches"] >= 1 and saver["levels"]["switches"] >= 1
    for s in (reactive, predictive, saver):
        spent = sum(s["levels"]["seconds"].values()) + s["levels"]["switching_s"]
        assert spent == pytest.approx(120.0)
        assert s["latency_ms"]["median"] <= s["latency_ms"]["p90"] <= s["latency_ms"]["p99"]
        assert all(s["peak_temperatures_c"][n] >= c for n, c in s["final_temperatures_c"].items())
    assert predictive["inferences"] >= 0.99 * max(static["inferences"], reactive["inferences"])
    assert saver["levels"]["first"][0]["before"] == 0 and saver["levels"]["seconds"]["0"] < 20.0
    assert saver["levels"]["seconds"]["4"] > 100.0
    assert saver["average_power_w"] < static["average_power_w"]
    assert hetsched.simulate(plan_file, duration_s=120.0, ambient_c=40.0, policy="reactive").summary()["levels"] == reactive["levels"]


def test_switches_cost_what_the_plan_file_says(plan_file: Path) -> None:
    planned = open_session(plan_file)
    others = other_levels(planned, "reactive")
    levels = levels_of(planned, others, "reactive", 1.0)
    assert levels is not None and sorted(levels.others) == [1, 2, 3, 4] and levels.level == 0
    for s in planned.deployment.switches:
        assert levels.switch(s.before[1], s.after[1]) == s
    assert levels.switch(0, 3).pack_s > 0
    assert levels.others[1].clocks == planned.deployment.entries[1].clocks


def test_a_level_simulated_draws_what_its_plan_says(plan_file: Path) -> None:
    """Lower clocks need lower voltages: without heat the simulation and the plan add up the same joules."""
    from hetsched_simulations import simulate

    for level in range(5):
        planned = read_plan(plan_file, level)
        entry = planned.deployment.entries[planned.entry]
        s = simulate(planned.table, planned.soc, *planned.placement, thermal=False, contention=False, clocks=entry.clocks)
        assert s.first_s == pytest.approx(entry.plan.prediction.latency_s, rel=1e-9)
        # A plan charges launches and conversions at the top clocks, the simulator at those of the level.
        exact = {0: 1e-9, 1: 0.01, 2: 1e-9, 3: 0.1, 4: 0.1}[level]
        assert s.energy.soc == pytest.approx(entry.plan.prediction.energy_j, rel=exact)
        assert bool(entry.clocks) == (level in (1, 3, 4))
        warm = hetsched.simulate(plan_file, level=level)
        assert isinstance(warm, Simulated)
        assert warm.outcome.energy.soc == pytest.approx(s.energy.soc, rel=0.02)


def test_the_saver_has_the_power_and_the_pace_of_its_two_cores(plan_file: Path) -> None:
    """Before the switch the clusters are shared as level 0 says, after it as level 4 does, whoever counts."""
    from hetsched_simulations import simulate

    planned = open_session(plan_file)
    levels = levels_of(planned, other_levels(planned, "battery-saver"), "battery-saver", 0.05)
    assert levels is not None
    levels = replace(levels, policy=BatterySaver(period_s=0.1))
    found = [
        simulate(planned.table, planned.soc, *planned.placement, duration_s=0.3, levels=levels, path=path) for path in ("full", "multirate")
    ]
    full, fast = found
    assert full.levels is not None and [s.after for s in full.levels.switches] == [4]
    assert fast.inferences == pytest.approx(full.inferences, rel=5e-3)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=2e-3)
    saver = read_plan(plan_file, 4)
    clocks = saver.deployment.entries[saver.entry].clocks
    held = [
        simulate(p.table, p.soc, *p.placement, duration_s=0.3, clocks=c, path="multirate").energy.total / 0.3
        for p, c in ((planned, {}), (saver, clocks))
    ]
    spent = full.levels.seconds
    assert fast.energy.total == pytest.approx(held[0] * spent[0] + held[1] * spent[4], rel=0.03)


def test_levels_are_read_once_a_process(plan_file: Path) -> None:
    planned = open_session(plan_file)
    first, again = other_levels(planned, "reactive"), other_levels(planned, "battery-saver")
    assert first.keys() == again.keys() and all(first[n] is again[n] for n in first)


def test_the_command_prints_compares_and_draws(plan_file: Path, run: Runner, tmp_path: Path) -> None:
    base = ["simulate", plan_file, "--duration", "2min", "--ambient", "38"]
    code, out, _ = run(*base, "--policy", "reactive")
    assert code == 0
    assert all(part in out for part in ("policy reactive:", ", which took", "at level 0 for", "p90", "(peak"))
    code, out, _ = run(*base, "--policy", "static", "--policy", "predictive", "--trace", tmp_path / "t.pftrace")
    assert code == 0
    assert all(part in out for part in ("static", "predictive: at level 0 for", "t-predictive.pftrace"))
    code, out, _ = run(*base, "--policy", "static", "--policy", "battery-saver", "--battery", "9", "--json")
    found = json.loads(out)["policies"]
    assert (code, list(found)) == (0, ["static", "battery-saver"])
    assert found["battery-saver"]["levels"]["switches"] == 1
    page = hetsched.report([plan_file, tmp_path / "t-static.pftrace", tmp_path / "t-predictive.pftrace"], tmp_path / "r.html")
    assert "Throttle level of the plan" in Path(page).read_text()


def test_what_has_no_levels_says_so(two_branch: Path, run: Runner) -> None:
    planned = hetsched.plan(two_branch, PHONE, dims={"width": 16}, time_limit_s=0.5)
    with pytest.raises(OptionError, match="the policy reactive needs plans to switch between: make a plan file with"):
        hetsched.simulate(planned, policy="reactive")
    with pytest.raises(OptionError, match="no policy is called 'cold': use battery-saver"):
        hetsched.simulate(planned, policy="cold")
    with pytest.raises(OptionError, match=r"battery = 9\.0: it must be at most 1"):
        hetsched.simulate(planned, battery=9.0)
    levels = hetsched.plan(two_branch, PHONE, dims={"width": 16}, time_limit_s=0.5, levels=True)
    with pytest.raises(OptionError, match="needs a plan file: save the plan"):
        hetsched.simulate(levels, policy="reactive")
    code, _, err = run("simulate", two_branch, "--policy", "static", "--policy", "reactive")
    assert code == 2
    assert "several policies are compared on a plan file with levels" in err
