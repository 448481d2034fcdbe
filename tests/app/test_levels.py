"""Plans for a phone that throttles: one a level, read back, simulated, and what switching between them costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hetsched
from hetsched.app.planned import levels_summary
from hetsched.app.sessions import read_plan
from hetsched.errors import OptionError
from hetsched.plans import Deployment

PHONE = "snapdragon-8-gen-3"
DIMS = {"width": 16}


@pytest.fixture
def planned(two_branch: Path) -> hetsched.Planned:
    return hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=1.0, levels=True)


def test_every_level_has_its_plan(planned: hetsched.Planned) -> None:
    entries = planned.deployment.entries
    assert [e.level for e in entries] == [0, 1, 2, 3, 4]
    cool, slow, off, least, _ = (e.plan for e in entries)
    assert 0 < entries[1].clocks["npu"] < 1
    assert slow.prediction.latency_s >= cool.prediction.latency_s
    assert all(p.queue != "npu" for plan in (off, least) for p in plan.placements)
    assert least.objective == "energy"
    assert least.prediction.energy_j <= off.prediction.energy_j * 1.5
    assert planned.plan == cool
    assert [row["level"] for row in planned.summary()["levels"]] == [0, 1, 2, 3, 4]
    json.dumps(planned.summary(), allow_nan=False)


def test_a_level_that_does_what_a_shallower_one_does_says_so(planned: hetsched.Planned) -> None:
    base = planned.deployment.entries[0]
    slow = base.plan.prediction.model_copy(update={"latency_s": 2 * base.plan.prediction.latency_s})
    changes = ({"level": 1, "clocks": {"npu": 0.7}}, {"level": 2, "plan": base.plan.model_copy(update={"prediction": slow})}, {"level": 3})
    rows = levels_summary((base, *(base.model_copy(update=c) for c in changes)), ())
    assert [row["same_as"] for row in rows] == [None, 0, None, 0]


def test_the_file_holds_them_and_each_reads_back(planned: hetsched.Planned, tmp_path: Path) -> None:
    path = planned.save(tmp_path / "p.json")
    assert Deployment.from_file(path).entries == planned.deployment.entries
    for level in range(5):
        again = read_plan(path, level)
        assert again.plan == planned.deployment.entries[level].plan
        simulated = hetsched.simulate(path, level=level)
        assert simulated.outcome.first_s == pytest.approx(again.plan.prediction.simulated_s, rel=1e-6)
    with pytest.raises(OptionError, match="no plan for level 5"):
        read_plan(path, 5)


def test_switches_say_what_has_to_be_packed(planned: hetsched.Planned) -> None:
    switches = {(s.before[1], s.after[1]): s for s in planned.deployment.switches}
    assert set(switches) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 4), (4, 3)}
    leaves = {level: {p.queue for p in planned.deployment.entries[level].plan.placements} for level in range(4)}
    if leaves[0] == leaves[1] == {"npu"}:
        assert switches[0, 1].weight_bytes == 0
    assert switches[1, 2].weight_bytes == planned.deployment.entries[2].plan.prediction.weight_bytes
    assert switches[1, 2].pack_s > 0
    assert all(s.state_bytes == 0 for s in switches.values())


def test_a_model_without_levels_has_one_plan(two_branch: Path, tmp_path: Path) -> None:
    planned = hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=0.5)
    assert len(planned.deployment.entries) == 1 and planned.deployment.switches == ()
    with pytest.raises(OptionError, match="no plan for level 2"):
        read_plan(planned.save(tmp_path / "p.json"), 2)
    with pytest.raises(OptionError, match="--level 1 belongs to a plan file"):
        hetsched.simulate(two_branch, PHONE, level=1, dims=DIMS)


def test_this_machine_has_no_levels(two_branch: Path) -> None:
    with pytest.raises(OptionError, match="has no accelerator"):
        hetsched.plan(two_branch, "host", dims=DIMS, time_limit_s=0.5, levels=True)


def test_a_level_that_cannot_place_the_model_says_why(two_branch: Path) -> None:
    first = hetsched.load(two_branch, DIMS).ops[0].name
    planned = hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=0.5, levels=True, forced={first: "npu"})
    assert [e.level for e in planned.deployment.entries] == [0, 1]
    assert [n.split(" has no plan")[0] for n in planned.plan.notes if "has no plan" in n] == ["level 2", "level 3", "level 4"]


def test_every_level_is_priced_with_the_anchors_of_the_plan(two_branch: Path, tmp_path: Path) -> None:
    """The last level computes in integers, for which the anchor of a float model would have another factor."""
    anchors = [f"chip={PHONE},latency_ms=5,unit=cpu"]
    planned = hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=0.5, levels=True, anchors=anchors, forbidden={"*": "gpu"})
    path = planned.save(tmp_path / "p.json")
    assert planned.deployment.entries[3].precision == "w8a8-dynamic"
    for level in range(5):
        again = read_plan(path, level)
        kept = {p.op: p.seconds for p in again.plan.placements}
        priced = {again.table.op_names[i]: float(again.table.time_s[a]) for i, a in enumerate(again.placement[1])}
        assert kept == pytest.approx(priced)


def test_every_level_is_priced_with_the_measurements_of_the_plan(two_branch: Path, tmp_path: Path) -> None:
    """Also a level whose precision nothing was measured at."""
    profile = tmp_path / "times.csv"
    profile.write_text("name,op,unit,bits,time_ms\nfc,Gemm,npu,16,5\n", "utf-8")
    planned = hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=0.5, levels=True, measured=profile)
    assert [e.level for e in planned.deployment.entries] == [0, 1, 2, 3, 4]
