"""The verb *import*: a real ONNX Runtime profile, drawn beside a plan and used in one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.app.importing import import_profile
from hetsched.errors import OptionError

ort = pytest.importorskip("onnxruntime")
DIMS = {"width": 16}


@pytest.fixture
def profile(two_branch: Path, tmp_path: Path) -> Path:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "ort")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = ort.InferenceSession(str(two_branch), options, providers=["CPUExecutionProvider"])
    for _ in range(3):
        session.run(None, {"x": np.zeros((1, 3, 16, 16), np.float32)})
    return Path(session.end_profiling())


def test_every_operator_of_the_model_is_found(profile: Path, two_branch: Path) -> None:
    found = import_profile(profile, two_branch, "host", dims=DIMS)
    s = found.summary()
    assert (s["format"], s["runs"], s["queues"]) == ("ONNX Runtime profile", 3, ["cpu"])
    assert s["matched"] >= s["model_ops"] - 1 and s["matched_by_name"] == s["matched"]
    graph = hetsched.load(two_branch, DIMS)
    assert {span.name for span in found.trace.spans} <= {op.name for op in graph.ops} | set(found.unmatched)
    assert found.trace.origin == "imported" and found.trace.model == graph.name and found.trace.soc == "host"


def test_the_trace_is_drawn_beside_the_plan(profile: Path, two_branch: Path, tmp_path: Path) -> None:
    plan = hetsched.plan(two_branch, "host", dims=DIMS)
    found = import_profile(profile, two_branch, "host", dims=DIMS)
    found.save(tmp_path / "p.pftrace")
    page = hetsched.report([plan, tmp_path / "p.pftrace"], tmp_path / "r.html").read_text("utf-8")
    assert "Did the prediction hold?" in page and "imported: p" in page


def test_measured_times_from_the_profile_and_from_what_it_became_agree(profile: Path, two_branch: Path, tmp_path: Path) -> None:
    direct = hetsched.plan(two_branch, "host", dims=DIMS, measured=profile)
    json_file = import_profile(profile, two_branch, dims=DIMS).save(tmp_path / "m.json")
    again = hetsched.plan(two_branch, "host", dims=DIMS, measured=json_file)
    assert direct.deployment.measured is not None and again.deployment.measured is not None
    assert direct.deployment.measured.ops == again.deployment.measured.ops
    assert direct.table.time_s == pytest.approx(again.table.time_s)


def test_the_queue_can_be_named(profile: Path) -> None:
    assert import_profile(profile, queue="npu").trace.queues == ("npu",)
    with pytest.raises(OptionError, match="use one of cpu, gpu, npu"):
        import_profile(profile, queue="dsp")


def test_only_traces_and_json_are_written(profile: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"must end in \.html"):
        import_profile(profile).save(tmp_path / "p.csv")


def test_a_page_draws_it_beside_the_prediction_for_where_it_ran(profile: Path, two_branch: Path, tmp_path: Path) -> None:
    found = import_profile(profile, two_branch, "snapdragon-8-gen-3", dims=DIMS, planned=True)
    assert found.planned is not None and {p.queue for p in found.planned.plan.placements} == {"cpu"}
    assert "imported" in found.save(tmp_path / "p.html").read_text("utf-8")
    with pytest.raises(OptionError, match="give --model and --soc"):
        import_profile(profile).save(tmp_path / "q.html")
    assert not (tmp_path / "q.html").exists()
