"""Silero VAD, whose nets for two sampling rates are the branches of an If: planned, simulated, run and checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsched
from hetsched.errors import ExecutionError

CORPUS = Path(__file__).parents[3] / "shared" / "models" / "real"
DIMS = {
    "16k_op15": {"sequence": 576}, "16k_sequence": {"sequence_length": 3}, "half": {"sequence": 576}, "op18_ifless": {"sequence": 576},
    "openvino_16k": {},
}  # fmt: skip


def speech(graph: hetsched.graph.Graph, rate: int) -> dict[str, Any]:
    """Quiet noise, states of zero, and the sampling rate."""
    rng = np.random.default_rng(4)
    out: dict[str, Any] = {}
    for name in graph.inputs:
        t = graph.tensors[name]
        zero = name in ("state", "h", "c")
        out[name] = np.full(t.shape, rate, np.int64) if name == "sr" else (rng.standard_normal(t.shape) * (not zero) * 0.1)
        out[name] = out[name].astype(t.dtype.numpy)
    return out


def everything(path: Path, dims: dict[str, int], rate: int = 16000) -> hetsched.app.running.Ran:
    phone = hetsched.plan(path, "snapdragon-8-gen-3", dims=dims)
    simulated = hetsched.simulate(phone)
    assert phone.plan.prediction.latency_s > 0 and simulated is not None
    planned = hetsched.plan(path, "host", dims=dims, simulated=False)
    ran = hetsched.run(planned, inputs=speech(planned.graph, rate), check=True, repeat=2)
    assert ran.check is not None and ran.check.passed
    assert {c.tensor for c in ran.check.checks if c.is_output} == set(planned.graph.outputs)
    assert all(c.difference.cosine >= 0.9999 for c in ran.check.checks if c.is_output)
    return ran


@pytest.mark.corpus
@pytest.mark.parametrize("name", DIMS)
def test_every_silero_vad(name: str) -> None:
    path = CORPUS / f"silero_vad__silero_vad_{name}.onnx"
    if not path.is_file():
        pytest.skip(f"the shared corpus is absent ({CORPUS})")
    everything(path, DIMS[name])


@pytest.mark.real_models
def test_the_packaged_silero_vad(real_model: Callable[[str], Path], tmp_path: Path) -> None:
    path, dims = real_model("silero-vad"), {"input.1": 576, "state.1": 1}
    ran = everything(path, dims)
    assert {p.type: p.delegate for p in ran.planned.plan.placements}["If"] == "ort"
    with pytest.raises(ExecutionError, match="the else_branch of If_0, which does not accept the dims that were bound"):
        hetsched.run(ran.planned, inputs=speech(ran.planned.graph, 8000), repeat=1)
    np.savez(tmp_path / "x.npz", **speech(ran.planned.graph, 16000))
    again = hetsched.run(ran.planned, inputs=tmp_path / "x.npz", repeat=1)
    assert all((again.outputs[n] == ran.outputs[n]).all() for n in ran.outputs)
    bound = everything(path, {**dims, "sr": 16000})
    np.testing.assert_allclose(bound.outputs["output"], ran.outputs["output"], rtol=1e-4)
    assert bound.planned.graph.inputs == ("input", "state")
    everything(path, {"input.1": 288, "state.1": 1}, rate=8000)


@pytest.mark.real_models
def test_a_bound_rate_stays_in_the_plan_file(real_model: Callable[[str], Path], tmp_path: Path) -> None:
    planned = hetsched.plan(real_model("silero-vad"), "host", dims={"input.1": 576, "state.1": 1, "sr": 16000}, simulated=False)
    saved = planned.save(tmp_path / "plan.json")
    assert planned.deployment.model.dims["sr"] == 16000
    ran = hetsched.run(saved, repeat=1)
    assert set(ran.outputs) == {"output", "stateN"}
