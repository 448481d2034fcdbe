"""``explain``: a whole plan beside the vendor's default, one operator with what would have to change; levels, phases, files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from markupsafe import escape
from typer.testing import CliRunner

import hetsched
from hetsched.app.explaining import explain, explain_plan
from hetsched.app.sessions import read_plan
from hetsched.cli.commands import app
from hetsched.errors import OptionError
from hetsched.partition import Problem, solve
from hetsched.partition.conditions import shortest
from hetsched.segments import schedule

PHONE = "snapdragon-8-gen-3"
DIMS = {"width": 16}
#: Core ML's Neural Engine does not enlarge fourfold, so the vendor's default leaves and comes back.
ENLARGING = """pieces (float[1,16,64,64] x) => (float[1,16,256,256] y)
<float[16,16,3,3] w = {VALUES}, float[4] scales = {1.0, 1.0, 4.0, 4.0}, float[0] none = {}> {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = Relu (a)
    c = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (b, none, scales)
    d = Conv <pads = [1, 1, 1, 1]> (c, w)
    y = Relu (d)
}""".replace("VALUES", ", ".join(["0.01"] * (16 * 16 * 9)))


def shown(*args: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def pieces(save: Callable[..., Path], tmp_path: Path) -> Path:
    """The plan file of a model that the vendor's default cuts in pieces."""
    return hetsched.plan(save(ENLARGING, name="pieces"), "apple-a17-pro", time_limit_s=1.0).save(tmp_path / "plan.json")


def test_a_plan_says_what_the_vendors_default_loses_and_where(pieces: Path) -> None:
    planned = read_plan(pieces)
    found = explain_plan(pieces)
    assert found == explain_plan(planned)
    vendor = next(b for b in planned.plan.baselines if b.solver == "vendor")
    assert vendor.accounts is not None and vendor.accounts.count == vendor.segments
    (refused,) = vendor.refused
    assert (refused.type, refused.queue, refused.ops) == ("Resize", "npu", 1) and "upsampling by more than 2" in refused.reason
    answer = solve(Problem(planned.table), "vendor")
    assert schedule(planned.table, answer.order, answer.alternative).latency_s == pytest.approx(vendor.latency_s, rel=1e-12)
    told = json.loads(shown("explain", pieces, "--json"))
    assert told["losses"]["vendor"]["lost"] == pytest.approx(vendor.latency_s - planned.plan.prediction.latency_s, abs=1e-12)
    assert told["losses"]["vendor"]["refused"][0]["reason"] == refused.reason and told["lines"] == found.lines()
    assert told["baselines"]["vendor"]["segments"] == vendor.segments
    text = " ".join(shown("explain", pieces).split())
    assert "placement latency work launches syncs transfers segments" in text and "npu refuses 1 Resize" in text


def test_plan_and_its_json_name_what_the_vendor_loses(save: Callable[..., Path]) -> None:
    model = save(ENLARGING, name="pieces")
    options = ("--soc", "apple-a17-pro", "--solver", "single:gpu", "--force", "y=gpu")
    planned = hetsched.plan(model, "apple-a17-pro", solver="frontier-dp")
    summary = planned.summary()
    assert summary["accounts"]["segments"] == planned.plan.accounts.segments  # type: ignore[union-attr]
    assert summary["losses"] == explain_plan(planned).as_dict()
    lines = explain_plan(planned).brief()
    said = shown("plan", model, *options[:2], "--solver", "frontier-dp")
    assert all(line in said for line in lines)


def test_an_operator_says_what_would_have_to_change(pieces: Path) -> None:
    conv = read_plan(pieces).plan.placements[0].op
    found = explain(pieces, conv)
    told = json.loads(shown("explain", pieces, conv, "--json"))
    assert told["conditions"] == found.conditions() and told["elsewhere"][0]["queue"] == found.elsewhere[0].queue
    assert {e.queue for e in found.elsewhere} == {"cpu", "gpu", "npu"} - {found.placement.queue}
    assert "w8a8" in {e.precision for e in found.precisions}, "integers are tried although the plan is float"
    assert all(text in shown("explain", pieces, conv) for text in found.conditions())


def test_a_queue_that_refuses_floats_says_what_integers_would_save(two_branch: Path) -> None:
    """Everything moved at once is one of the moves that are tried, and it costs what the plan in integers costs."""
    floats = hetsched.plan(two_branch, "snapdragon-888", dims=DIMS, solver="single:gpu", simulated=False)
    integers = hetsched.plan(two_branch, "snapdragon-888", dims=DIMS, precision="w8a8", solver="single:npu", simulated=False)
    found = explain(floats, floats.plan.placements[1].op)
    assert any("computes on 8-bit integers only" in r for r in found.refusals)
    npu = next(e for e in found.precisions if (e.queue, e.precision) == ("npu", "w8a8"))
    whole = integers.plan.prediction.latency_s - floats.plan.prediction.latency_s
    assert len(npu.ops) == len(floats.graph.ops) and npu.extra == pytest.approx(whole, rel=1e-9)
    assert any(text.startswith(f"npu if w8a8 with {len(npu.ops) - 1} neighbours: saves ") for text in found.conditions())


def test_levels_are_explained_each_by_itself(two_branch: Path, tmp_path: Path) -> None:
    path = hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=0.5, levels=True).save(tmp_path / "p.json")
    entries = read_plan(path).deployment.entries
    for level in (0, 1, 2, 3, 4):
        found = explain_plan(path, level=level)
        assert found.plan == entries[level].plan and found.unit == ("J" if level >= 3 else "s")
        op = explain(path, "stem", level=level)
        assert op.objective == entries[level].plan.objective
        assert op.closed == ((), (), ("npu",), ("npu",), ("gpu", "npu"))[level]
        offered = {e.queue for e in (*op.elsewhere, *op.precisions)}
        assert "npu" not in offered if level >= 2 else op.placement.queue == "npu" or "npu" in offered
    off = {b.solver: b for b in entries[2].plan.baselines}
    assert off["single:npu"].latency_s is None and "npu" not in off["vendor"].accounts.segments  # type: ignore[union-attr]
    assert "npu is off in this plan" in shown("explain", path, "stem", "--level", "2")
    with pytest.raises(OptionError, match="no plan for level 5"):
        explain_plan(path, level=5)
    with pytest.raises(OptionError, match="no phase 'decode': it has inference"):
        explain_plan(path, "decode")


def test_a_report_has_the_losses_and_the_smallest_changes(pieces: Path, tmp_path: Path) -> None:
    page = hetsched.report(pieces, tmp_path / "r.html").read_text()
    assert "Where the latency goes" in page and "npu refuses 1 Resize" in page
    planned = read_plan(pieces)
    said = [shortest(e, "latency") for p in planned.plan.placements for e in explain(planned, p.op).elsewhere]
    assert any(said) and all(escape(text) in page for text in said)
