"""Plans whose large operators two processors share: faster, in the file, run for real, equal results."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetsched
from hetsched.app.sessions import read_plan
from hetsched.errors import PlanError
from hetsched.soc_files import load_soc


@pytest.fixture
def heavy(tmp_path: Path) -> Path:
    """A chain of two products with nothing to overlap but themselves."""
    r = np.random.default_rng(0)
    weights = [numpy_helper.from_array((r.standard_normal((384, 384)) * 0.05).astype(np.float32), f"w{k}") for k in range(2)]
    chain = (("MatMul", ["x", "w0"], ["a"], "up"), ("Relu", ["a"], ["b"], "act"), ("MatMul", ["b", "w1"], ["y"], "down"))
    nodes = [helper.make_node(*step) for step in chain]
    graph = helper.make_graph(
        nodes, "heavy", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [384, 384])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [384, 384])], weights,
    )  # fmt: skip
    path = tmp_path / "heavy.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_nothing_is_shared_with_a_processor_that_is_much_slower(heavy: Path) -> None:
    chip = load_soc("snapdragon-8-gen-3")
    whole = hetsched.plan(heavy, chip, time_limit_s=0.5)
    shared = hetsched.plan(heavy, chip, time_limit_s=0.5, splits=True)
    assert shared.plan == whole.plan and shared.deployment.entries[0].splits == {}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_this_machines_two_cores_share_products_and_compute_the_same(heavy: Path, tmp_path: Path) -> None:
    planned = hetsched.plan(heavy, "host", time_limit_s=0.5, splits=True)
    whole = hetsched.plan(heavy, "host", time_limit_s=0.5)
    assert planned.deployment.entries[0].splits
    assert planned.plan.prediction.latency_s < 0.8 * whole.plan.prediction.latency_s
    path = planned.save(tmp_path / "shared.plan.json")
    again = read_plan(path)
    assert again.plan == planned.plan
    ran = hetsched.run(path, check=True)
    assert ran.check is not None and ran.check.passed
    busy = [[s for s in ran.trace.spans if s.queue == q and s.kind == "op" and s.iteration == 0] for q in ("cpu:0", "cpu:1")]
    assert all(busy)
    name = next(iter(planned.deployment.entries[0].splits))
    path.write_text(path.read_text().replace(f'"{name}": [', '"another": ['))
    with pytest.raises(PlanError):
        read_plan(path)
