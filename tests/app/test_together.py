"""Several models on one SoC by the verb: deadlines, comparison with plans of their own, files, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hetsched
from hetsched.app.coscheduling import plan_together
from hetsched.app.sessions import read_plan
from hetsched.cli.commands import app
from hetsched.errors import OptionError
from hetsched.partition import Problem
from hetsched.partition.problem import objective_of

PHONE = "dimensity-9300"
DIMS = {"width": 16}


@pytest.fixture
def two(two_branch: Path, tmp_path: Path) -> list[Path]:
    other = tmp_path / "other.onnx"
    other.write_bytes(two_branch.read_bytes())
    return [two_branch, other]


def test_models_together_miss_no_more_than_planned_alone(two: list[Path]) -> None:
    own = hetsched.plan(two[0], PHONE, dims=DIMS, time_limit_s=0.5)
    rate = 0.8 / own.plan.prediction.latency_s  # together they ask for 160 % of what one plan's critical queue can do
    found = plan_together(two, PHONE, rates=[rate, rate], dims=DIMS, time_limit_s=0.5)
    ours, theirs = found.shared.streams, found.alone.streams
    assert sum(s.missed for s in ours) < sum(s.missed for s in theirs)
    s = found.summary()
    assert [m["rate"] for m in s["models"]] == [rate, rate]
    assert s["models"][0]["priority"] == 0 and s["models"][1]["priority"] == 1
    assert s["models"][0]["together"]["arrived"] == ours[0].arrived
    assert any("beside other models" in n for p in found.planned for n in p.plan.notes)


@pytest.mark.parametrize("objective", ["latency", "period", "energy"])
def test_a_plan_that_gives_way_has_figures_of_its_own(two: list[Path], objective: str) -> None:
    own = hetsched.plan(two[0], PHONE, dims=DIMS, time_limit_s=0.5)
    rate = 0.8 / own.plan.prediction.latency_s
    found = plan_together(two, PHONE, rates=[rate, rate], dims=DIMS, time_limit_s=0.5, objective=objective)
    moved = [p for p in found.planned if any("beside other models" in n for n in p.plan.notes)]
    for p in moved:
        problem = Problem.of(p.graph, p.table, p.plan.objective)
        assert p.plan.gap == pytest.approx(1 - p.plan.bound_s / objective_of(problem, *p.placement))
        assert p.plan.prediction.simulated_s == pytest.approx(hetsched.simulate(p).outcome.first_s)
        low, high = p.plan.prediction.latency_interval_s
        assert low < p.plan.prediction.latency_s < high
    assert moved


def test_an_easy_load_keeps_every_deadline_and_the_plans_as_they_are(two: list[Path]) -> None:
    found = plan_together(two, PHONE, rates=[5, 1], deadlines_s=[0.1, 0.5], dims=DIMS, time_limit_s=0.5)
    assert all(s.missed == 0 for s in found.shared.streams)


def test_the_verb_writes_a_plan_each_and_the_trace(two: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = [*map(str, two), "--soc", PHONE, "--dim", "width=16", "--rate", "30", "--rate", "5", "--deadline", "33ms", "--deadline", "200ms"]
    done = subprocess.run(
        [sys.executable, "-m", "hetsched", "plan", *args, "--time-limit", "0.5s", "-o", str(out), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert [m["deadline_ms"] for m in found["models"]] == [33.0, 200.0]
    assert (out / "together.pftrace").stat().st_size > 0
    assert read_plan(Path(found["models"][1]["plan_path"])).graph.name == "other"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"rates": [1.0]}, "1 --rate for 2 models"),
        ({"rates": [1.0, -1.0]}, "--rate -1 is out of range"),
        ({"rates": [1.0, 2.0], "deadlines_s": [0.1]}, "1 --deadline for 2 models"),
        ({"rates": [1.0, 2.0], "deadlines_s": [0.1, 0.0]}, "--deadline must be more than 0"),
        ({"rates": [1.0, 2.0], "priorities": [1, 2, 3]}, "3 --priority for 2 models"),
        ({"rates": [1.0, 2.0], "prompt": 4, "generate": 4}, "leave --prompt and --generate out"),
        ({"rates": [1.0, 2.0], "generate": 4}, "leave --prompt and --generate out"),
        ({"rates": [1.0, 2.0], "pareto": 4}, "leave --pareto out"),
        ({"rates": [1.0, 2.0], "levels": True}, "leave --levels out"),
        ({"rates": [1.0, 2.0], "ranges": "r.json"}, "--ranges r.json is of no use"),
        ({"rates": [1.0, 2.0], "memory_limit_bytes": 4}, "without --memory-limit"),
    ],
)
def test_demands_that_fit_no_models_are_refused(two: list[Path], more: dict, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        plan_together(two, PHONE, dims=DIMS, **more)


def test_one_model_is_not_several(two_branch: Path) -> None:
    with pytest.raises(OptionError, match="--rate is for several models at once"):
        plan_together([two_branch], PHONE, rates=[1.0], dims=DIMS)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--ranges", "r.json"], "--ranges r.json is of no use"),
        (["--anchor", "nothing"], "--anchor 'nothing' is neither"),
        (["--measured", "absent.json"], "absent.json"),
        (["--kv", "int9"], "int9"),
        (["--experts", "absent.yaml"], "absent.yaml"),
        (["--generate", "4"], "--generate out"),
        (["--pareto", "4"], "leave --pareto out"),
        (["--levels"], "leave --levels out"),
    ],
)
def test_no_option_of_plan_is_passed_over(two: list[Path], more: list[str], why: str) -> None:
    args = ["plan", *map(str, two), "--soc", PHONE, "--dim", "width=16", "--rate", "30", "--rate", "5", *more]
    done = CliRunner().invoke(app, args)
    assert done.exit_code != 0
    assert why in f"{done.output} {done.exception}"
