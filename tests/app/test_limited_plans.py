"""Plans within limits, of mixed precision within an accuracy budget, and with a front of latency and energy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import hetsched
from hetsched.app.fronts import front_points
from hetsched.errors import InfeasibleError, OptionError
from hetsched.partition import Problem
from hetsched.partition.limits import Limits
from hetsched.partition.memory import held_bytes
from hetsched.plans import Deployment

PHONE = "dimensity-9300"
DIMS = {"width": 16}


def planned(model: Path, **more) -> hetsched.Planned:
    return hetsched.plan(model, PHONE, dims=DIMS, time_limit_s=0.5, **more)


def sensitivities(folder: Path, content: object) -> Path:
    path = folder / "sensitivities.json"
    path.write_text(json.dumps(content))
    return path


def test_a_plan_keeps_its_limits_or_says_which_it_cannot(two_branch: Path) -> None:
    free = planned(two_branch, objective="latency").plan.prediction
    assert planned(two_branch, objective="energy", limits=Limits(latency_s=free.latency_s)).plan.prediction.latency_s <= free.latency_s
    with pytest.raises(InfeasibleError, match=r"of at most 0\.0001 W"):
        planned(two_branch, limits=Limits(power_w=1e-4))


def test_mixed_precision_spends_the_accuracy_budget_and_no_more(two_branch: Path, tmp_path: Path) -> None:
    ops = [op.name for op in hetsched.load(two_branch, DIMS).ops]
    path = sensitivities(tmp_path, {"ops": {ops[0]: {"w8a8": 5.0}}, "default": 1.0})
    whole = planned(two_branch, precision="mixed", sensitivities=path).plan
    most = whole.prediction.loss
    assert most is not None and most > 0
    seen = []
    for budget in (0.0, most / 2, most):
        plan = planned(two_branch, precision="mixed", sensitivities=path, limits=Limits(loss=budget)).plan
        lost = sum(5.0 if p.op == ops[0] else 1.0 for p in plan.placements if p.precision == "w8a8")
        assert plan.prediction.loss == lost <= budget
        seen.append(plan.prediction.latency_s)
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > seen[-1]
    assert all(p.precision != "w8a8" for p in planned(two_branch, precision="float").plan.placements)


def test_the_front_is_in_the_plan_file_and_its_ends_are_the_best_of_each(two_branch: Path, tmp_path: Path) -> None:
    made = planned(two_branch, pareto=5)
    front = made.plan.front
    assert [f.latency_s for f in front] == sorted(f.latency_s for f in front)
    assert [f.energy_j for f in front] == sorted((f.energy_j for f in front), reverse=True)
    assert front[0].latency_s <= made.plan.prediction.latency_s * (1 + 1e-9)
    thrift = planned(two_branch, objective="energy").plan.prediction.energy_j
    assert front[-1].energy_j == pytest.approx(thrift, rel=0.01)
    path = made.save(tmp_path / "p.json")
    assert Deployment.from_file(path).entries[0].plan.front == front
    assert made.summary()["front"][0]["latency_s"] == front[0].latency_s


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([], "not valid at the top level"),
        ({"ops": {"a": -1}}, "not valid at ops.a"),
        ({"ops": {"a": {"w8a8": "much"}}}, "not valid at ops.a"),
        ({"ops": {}, "more": 1}, "not valid at more"),
        ({"ops": {"nowhere": 1}}, "name 'nowhere', which is no node"),
    ],
)
def test_bad_sensitivities_are_refused_with_what_to_write(two_branch: Path, tmp_path: Path, content: object, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        planned(two_branch, precision="mixed", sensitivities=sensitivities(tmp_path, content))


def test_an_accuracy_budget_without_sensitivities_is_refused(two_branch: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="needs --sensitivities"):
        planned(two_branch, precision="mixed", limits=Limits(loss=1.0))
    with pytest.raises(OptionError, match="no file of sensitivities"):
        planned(two_branch, precision="mixed", sensitivities=tmp_path / "absent.json")
    with pytest.raises(OptionError, match="front of 1 points"):
        planned(two_branch, pareto=1)


def test_a_processor_holds_no_more_than_it_addresses(two_branch: Path) -> None:
    """An NPU that addresses less than the whole model: some weights go elsewhere, or the plan says why nothing fits."""
    chip = hetsched.soc("snapdragon-8-gen-3")
    npu = next(p for p in chip.processors if p.kind == "npu")
    assert npu.address_bytes is not None

    def on(limit: float) -> hetsched.Planned:
        few = npu.model_copy(update={"address_bytes": npu.address_bytes.model_copy(update={"value": limit})})
        smaller = chip.model_copy(update={"processors": tuple(few if p is npu else p for p in chip.processors)})
        return hetsched.plan(two_branch, smaller, dims=DIMS, time_limit_s=0.5)

    free = on(1e9)
    held = held_bytes(free.graph, free.table, free.placement[1])
    assert held["npu"] > 0
    tight = on((held["npu"] + free.plan.arena_bytes) * 0.8)
    now = held_bytes(tight.graph, tight.table, tight.placement[1])
    assert "npu" not in now or now["npu"] + tight.plan.arena_bytes <= (held["npu"] + free.plan.arena_bytes) * 0.8
    assert tight.plan.prediction.latency_s > free.plan.prediction.latency_s
    assert any("on npu, which addresses" in n for n in tight.plan.notes)
    none = on(1)
    assert all(p.queue != "npu" for p in none.plan.placements)


def test_a_front_has_no_plan_that_does_not_fit_into_memory(two_branch: Path) -> None:
    made = planned(two_branch)
    problem = Problem.of(made.graph, made.table)
    free = front_points(made.graph, problem, made.plan, 4, "auto", 1.0)
    need = made.plan.prediction.peak_memory_bytes
    assert front_points(made.graph, replace(problem, memory_limit_bytes=100 * need), made.plan, 4, "auto", 1.0) == free != ()
    (own,) = front_points(made.graph, replace(problem, memory_limit_bytes=1), made.plan, 4, "auto", 1.0)
    assert own.latency_s == made.plan.prediction.latency_s  # nothing else is let in
