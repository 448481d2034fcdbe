"""Plans for a phone, run here: its CPU by kernels, its GPU by WebGPU, its NPU by the HTP emulator, in one run, checked op by op."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import hetsched
from hetsched.runtime.delegates import load_delegate

pytestmark = pytest.mark.real_models
MODELS = Path(__file__).parents[2] / "models"
PHONE = "snapdragon-8-gen-3"
DELEGATES = {"cpu": "numba,ort", "gpu": "wgpu", "npu": "qnn"}
#: Lowest cosine of any tensor, of what ran in float16 too.
WORST = 0.9995


def in_three_parts(graph: Any, plan: Any) -> Mapping[str, str]:
    """The first third of the ops on the CPU, the next on the GPU, the last on the NPU; what one of them refuses, on the CPU."""
    refused = {(p.op, text.partition(" ")[0]) for p in plan.placements for text in p.refusals}
    thirds = {op.name: ("cpu", "gpu", "npu")[3 * i // len(graph.ops)] for i, op in enumerate(graph.ops)}
    return {op: "cpu" if (op, queue) in refused else queue for op, queue in thirds.items()}


@pytest.mark.parametrize(("name", "dims"), [("mobilenet_v2", {}), ("minilm-l3-onnx", {"sequence_length": 16})])
def test_a_phone_plan_on_three_delegates(name: str, dims: dict[str, int], tmp_path: Path) -> None:
    path = MODELS / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"{path.name} is absent: run 'make models'")
    absent = [n for n in ("ort", "qnn", "wgpu") if not load_delegate(n).probe().available]
    if absent:
        pytest.skip(f"{', '.join(absent)} cannot run here")
    options: dict[str, Any] = {"precision": "float", "dims": dims, "simulated": False, "solver": "rules"}
    first = hetsched.plan(path, PHONE, **options)
    planned = hetsched.plan(path, PHONE, forced=in_three_parts(first.graph, first.plan), **options)
    assert {s.queue for s in planned.plan.segments} == {"cpu", "gpu", "npu"}
    ran = hetsched.run(planned.save(tmp_path / "plan.json"), delegate=DELEGATES, check=True, repeat=1)
    assert ran.check is not None and ran.check.passed, ran.check and ran.check.sentence()
    compared = [c for c in ran.check.checks if c.verdict != "constant"]
    assert len(compared) > 0.9 * len(planned.graph.ops) and min(c.difference.cosine for c in compared) > WORST
    assert {c.queue for c in compared} == {"cpu", "gpu", "npu"} and {c.verdict for c in compared} == {"ok"}
    summary = ran.summary()
    assert summary["delegates"]["gpu"] == ["wgpu"] and summary["delegates"]["npu"] == ["qnn"] and "npu" in summary["emulated"]
    assert {s.queue for s in ran.trace.spans if s.kind == "segment"} == {"cpu", "gpu", "npu"}
    labels = {i.name: i.detail for i in ran.trace.instants if i.kind == "delegate"}
    assert "qnn" in labels["npu"] and "emulated" in labels["npu"] and "wgpu" in labels["gpu"]
    assert all(s.predicted_s is None for s in ran.trace.spans)
