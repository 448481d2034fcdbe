"""Plans by their options: one budget for every verb, dims of one of several models, CPU queues that share cores, reasons of splits."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import hetsched
from hetsched.app.comparing import compare
from hetsched.app.coscheduling import plan_together
from hetsched.app.explaining import explain
from hetsched.app.sessions import read_plan
from hetsched.cli.commands import app
from hetsched.cli.measurement_commands import compare as compare_verb
from hetsched.cli.options import seconds
from hetsched.cli.planning_commands import plan

PHONE = "snapdragon-8-gen-3"
DIMS = {"width": 16}
SPEC = Path(__file__).parents[2] / "soc_specs" / "qualcomm" / f"{PHONE}.yaml"


def with_queues(folder: Path, **queues: str) -> Path:
    """The phone with other queues."""
    spec = yaml.safe_load(SPEC.read_text("utf-8")) | {"queues": queues, "id": "mine"}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(spec), "utf-8")
    return path


@pytest.fixture
def heavy(tmp_path: Path) -> Path:
    """A chain of two products with nothing to overlap but themselves."""
    r = np.random.default_rng(0)
    weights = [numpy_helper.from_array((r.standard_normal((384, 384)) * 0.05).astype(np.float32), f"w{k}") for k in range(2)]
    chain = (("MatMul", ["x", "w0"], ["a"], "up"), ("Relu", ["a"], ["b"], "act"), ("MatMul", ["b", "w1"], ["y"], "down"))
    io = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [384, 384]) for n in "xy"]
    graph = helper.make_graph([helper.make_node(*step) for step in chain], "heavy", io[:1], io[1:], weights)
    path = tmp_path / "heavy.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_every_verb_has_the_same_budget(two_branch: Path) -> None:
    verbs = {inspect.signature(f).parameters["time_limit_s"].default for f in (hetsched.plan, compare, plan_together)}
    lines = {seconds(inspect.signature(f).parameters["time_limit"].default, "") for f in (plan, compare_verb)}
    assert len(verbs) == 1 and lines == verbs
    cell = compare([two_branch], [PHONE], dims=DIMS).cells[0]
    alone = hetsched.plan(two_branch, PHONE, dims=DIMS).plan.prediction
    assert (cell.latency_s, cell.energy_j) == (alone.latency_s, alone.energy_j)


def test_a_dim_may_be_of_one_of_several_models(two_branch: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(two_branch.read_bytes())
    args = ["plan", two_branch, other, "--soc", PHONE, "--dim", "width=16", "--dim", "other:width=24", "-o", tmp_path / "out"]
    done = CliRunner().invoke(app, [str(a) for a in args])
    assert done.exit_code == 0, done.exception
    widths = [read_plan(tmp_path / "out" / f"{name}.plan.json").deployment.model.dims["width"] for name in ("two_branch", "other")]
    assert widths == [16, 24]


@pytest.mark.parametrize("option", [["--deadline", "33ms"], ["--priority", "1"]])
def test_demands_need_rates(two_branch: Path, option: list[str]) -> None:
    done = CliRunner().invoke(app, ["plan", str(two_branch), "--soc", PHONE, "--dim", "width=16", *option])
    assert "say with --rate how often each runs" in str(done.exception)


def test_the_trace_of_the_shared_run_is_named(two_branch: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(two_branch.read_bytes())
    args = ["plan", two_branch, other, "--soc", PHONE, "--dim", "width=16", "--rate", "30", "--rate", "5", "--time-limit", "200ms"]
    done = CliRunner().invoke(app, [*map(str, args), "-o", str(tmp_path / "out")])
    assert f"trace: {tmp_path / 'out' / 'together.pftrace'}" in done.output and (tmp_path / "out" / "together.pftrace").is_file()


def test_models_on_queues_with_the_same_cores_take_turns(two_branch: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(two_branch.read_bytes())
    chip = with_queues(tmp_path, cpu="cpu:2-7", few="cpu:5-7")
    ops = [op.name for op in hetsched.load(two_branch, DIMS).ops]
    spans = []
    for queue in ("cpu", "few"):
        alone = hetsched.plan(two_branch, chip, dims=DIMS, forced=dict.fromkeys(ops, queue), time_limit_s=0.2)
        assert {p.queue for p in alone.plan.placements} == {queue}
        spans.append(alone.plan.prediction.latency_s)
    found = plan_together([two_branch, other], chip, rates=[1.0, 1.0], dims=DIMS, time_limit_s=0.2)
    busy = [(s.start_s, s.end_s) for s in found.alone.trace.spans]
    overlaps = [a for a in busy for b in busy if a < b and b[0] < a[1] - 1e-12]
    assert busy and not overlaps


def test_a_shared_operator_says_who_shares_it_and_what_that_brings(heavy: Path, tmp_path: Path) -> None:
    chip = with_queues(tmp_path, cpu="cpu:2-4", more="cpu:5-7")
    planned = hetsched.plan(heavy, chip, time_limit_s=0.5, splits=True)
    cuts = planned.deployment.entries[0].splits
    assert cuts
    name, edges = next(iter(cuts.items()))
    parts = [p for p in planned.plan.placements if p.op.startswith(f"{name}/")]
    assert len(parts) == len(edges) + 2
    assert all(p.cause.startswith(f"cpu and more share {name}: with all of it on ") and "the plan would lose" in p.cause for p in parts)
    found = explain(planned.save(heavy.parent / "p.json"), name)
    assert f"share {name}" in found.lines()[0] and {p.op for p in found.siblings} == {p.op for p in parts} - {found.placement.op}
    assert found.lines()[1].startswith("the same nodes also became ")


def test_the_thriftiest_level_uses_ranges_where_there_are_some(two_branch: Path, tmp_path: Path) -> None:
    samples = np.random.default_rng(0).standard_normal((2, 1, 3, 16, 16)).astype(np.float32)
    ranges = hetsched.calibrate_ranges(two_branch, {"x": samples}, dims=DIMS)
    planned = hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=0.5, levels=True)
    assert [e.precision for e in planned.deployment.entries] == ["", "", "", "w8a8", "w8a8-dynamic"]
    assert planned.deployment.ranges is not None
    assert f"level 3 computes in w8a8, by the ranges of {ranges.path.name}" in planned.plan.notes[0]
    path = planned.save(tmp_path / "p.json")
    for level, entry in enumerate(planned.deployment.entries):
        assert read_plan(path, level).plan == entry.plan
    assert hetsched.report(path, tmp_path / "r.html").stat().st_size > 0
    elsewhere = ranges.path.rename(tmp_path / "other.json")
    told = hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=0.5, levels=True, ranges=elsewhere)
    assert told.deployment.entries[3].plan == planned.deployment.entries[3].plan
    without = hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=0.5, levels=True)
    assert without.deployment.entries[3].precision == "w8a8-dynamic" and without.deployment.ranges is None
    assert "'hetsched calibrate-ranges'" in without.plan.notes[0]


def test_a_pipeline_says_how_often_it_delivers(two_branch: Path) -> None:
    planned = hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=0.5, objective="period")
    busy: dict[str, float] = {}
    for s in planned.plan.segments:
        busy[s.queue] = busy.get(s.queue, 0.0) + s.launch_s + s.transfer_s + s.work_s
    assert planned.summary()["period_ms"] == pytest.approx(max(busy.values()) * 1e3)
    assert planned.period_s <= planned.plan.prediction.latency_s
