"""A plan file is untrusted: whatever was changed in it, reading it fails with one sentence, and nothing runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetsched
from hetsched.app.sessions import read_plan
from hetsched.errors import InputError, PlanError
from hetsched.plans import Deployment

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def saved(two_branch: Path) -> Path:
    """A plan with several segments, fences and buffers, beside its model."""
    forced = {"a1": "gpu", "b1": "cpu", "fc": "cpu"}
    planned = hetsched.plan(two_branch, "snapdragon-8-gen-3", dims={"width": 16}, forced=forced, solver="heft", simulated=False)
    assert len(planned.plan.segments) >= 3 and planned.plan.fences
    return planned.save(two_branch.with_name("plan.json"))


def rewrite(path: Path, change: Change) -> Path:
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))
    return path


def in_plan(change: Change) -> Change:
    return lambda raw: change(raw["entries"][0]["plan"])


INSIDE: dict[str, Change] = {
    "op twice in the order": lambda p: p["order"].append(p["order"][0]),
    "op missing from the order": lambda p: p["order"].pop(),
    "no segments": lambda p: p["segments"].clear(),
    "segment dropped": lambda p: p["segments"].pop(1),
    "segments swapped": lambda p: p["segments"].reverse(),
    "segment listed twice": lambda p: p["segments"].append(p["segments"][0]),
    "segment without ops": lambda p: p["segments"][0]["ops"].clear(),
    "segment index": lambda p: p["segments"][1].update(index=0),
    "segment on another queue": lambda p: p["segments"][0].update(queue="../../dev"),
    "placement twice": lambda p: p["placements"].append(p["placements"][0]),
    "placement dropped": lambda p: p["placements"].pop(),
    "placement of nothing": lambda p: p["placements"][0].update(op="nobody"),
    "fence to nowhere": lambda p: p["fences"][0].update(wait=1 << 60),
    "fence from nowhere": lambda p: p["fences"][0].update(signal=-1),
    "fence backwards": lambda p: p["fences"].append({**p["fences"][0], "signal": p["fences"][0]["wait"], "wait": p["fences"][0]["signal"]}),
    "fence on itself": lambda p: p["fences"][0].update(wait=p["fences"][0]["signal"]),
    "fence twice": lambda p: p["fences"].append(p["fences"][0]),
    "buffer before the arena": lambda p: p["buffers"][0].update(offset=-64),
    "buffer after the arena": lambda p: p["buffers"][0].update(offset=p["arena_bytes"]),
    "buffer far away": lambda p: p["buffers"][0].update(offset=1 << 62),
    "buffer of a huge size": lambda p: p["buffers"][0].update(nbytes=1 << 70),
    "buffer twice": lambda p: p["buffers"].append(p["buffers"][0]),
    "buffer of no segment": lambda p: p["buffers"][0].update(last=99),
    "huge arena": lambda p: p.update(arena_bytes=1 << 60),
    "no arena": lambda p: p.update(arena_bytes=0),
    "endless op": lambda p: p["placements"][0].update(seconds=1e300),
    "negative time": lambda p: p["segments"][0].update(launch_s=-1.0),
    "negative energy": lambda p: p["prediction"].update(energy_j=-1.0),
    "negative interval": lambda p: p["prediction"].update(latency_interval_s=[-1.0, 1.0]),
    "time that is no number": lambda p: p["prediction"].update(latency_s=float("nan")),
}
OUTSIDE: dict[str, Change] = {
    "no plan": lambda raw: raw["entries"].clear(),
    "unknown field": lambda raw: raw.update(run="rm -rf"),
    "newer format": lambda raw: raw["header"].update(schema_version=2),
    "SoC id that is a path": lambda raw: raw["soc"].update(id="../../etc/passwd"),
}
AGAINST_THE_MODEL: dict[str, Change] = {
    "cuts of nobody": lambda raw: raw["entries"][0].update(splits={"nobody": [3]}),
    "cuts of an op that the plan has whole": lambda raw: raw["entries"][0].update(splits={"a1": [2]}),
    "clock of a processor that is not there": lambda raw: raw["entries"][0].update(clocks={"dsp": 0.5}),
    "model elsewhere": lambda raw: raw["model"].update(path="../../etc/passwd"),
    "model that is a folder": lambda raw: raw["model"].update(path=""),
    "model that is a device": lambda raw: raw["model"].update(path="/dev/zero"),
    "model with a zero byte": lambda raw: raw["model"].update(path="a\0b"),
    "cuts that do not ascend": lambda raw: raw["entries"][0].update(splits={"a1": [3, 2]}),
    "cuts before the first channel": lambda raw: raw["entries"][0].update(splits={"a1": [0, 2]}),
    "two plans for one level": lambda raw: raw["entries"].append(raw["entries"][0]),
    "no plan for level 0": lambda raw: raw["entries"][0].update(level=1),
    "clock of nothing": lambda raw: raw["entries"][0].update(clocks={"npu": 0}),
    "another model's hash": lambda raw: raw["model"].update(sha256="0" * 64),
    "another SoC's hash": lambda raw: raw["soc"].update(sha256="0" * 64),
    "unknown dim": lambda raw: raw["model"]["dims"].update(nope=3),
    "absurd dim": lambda raw: raw["model"]["dims"].update(width=1 << 60),
    "fences dropped": in_plan(lambda p: p["fences"].clear()),
    "unknown runtime": lambda raw: raw.update(runtime="nobody's"),
    "unknown precision": lambda raw: raw.update(precision="w0a0"),
}


@pytest.mark.parametrize("kind", INSIDE)
def test_a_plan_that_contradicts_itself(saved: Path, kind: str) -> None:
    with pytest.raises(PlanError, match=r"plan\.json is not a valid plan file: .*make it again") as e:
        Deployment.from_file(rewrite(saved, in_plan(INSIDE[kind])))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("kind", OUTSIDE)
def test_a_file_that_is_no_plan(saved: Path, kind: str) -> None:
    with pytest.raises(PlanError, match=r"plan\.json is not a valid plan file"):
        Deployment.from_file(rewrite(saved, OUTSIDE[kind]))


@pytest.mark.parametrize("kind", AGAINST_THE_MODEL)
def test_a_plan_that_contradicts_its_model(saved: Path, kind: str) -> None:
    with pytest.raises(InputError):
        read_plan(rewrite(saved, AGAINST_THE_MODEL[kind]))


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text('{"header":' * 100_000)
    with pytest.raises(PlanError, match=r"deep\.json"):
        Deployment.from_file(path)


def test_what_the_planner_makes_passes(saved: Path) -> None:
    assert read_plan(saved).plan.order
