"""Plans whose large operators two processors share: faster, in the file, run for real, equal results."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetsched
from hetsched.app.inputs import cost_table
from hetsched.app.planned import op_names, op_queues
from hetsched.app.sensitivities import Sensitivities, with_losses
from hetsched.app.sessions import read_plan
from hetsched.app.splitting import split
from hetsched.errors import OptionError, PlanError
from hetsched.partition.limits import Limits
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


def team() -> str:
    """The queue of both cores, which leaves nothing to share."""
    return next(q for q in hetsched.soc("host").queues if q not in ("cpu:0", "cpu:1"))


def test_nothing_is_shared_with_a_processor_that_is_much_slower(heavy: Path) -> None:
    chip = load_soc("snapdragon-8-gen-3")
    whole = hetsched.plan(heavy, chip, time_limit_s=0.5)
    shared = hetsched.plan(heavy, chip, time_limit_s=0.5, splits=True)
    assert shared.plan == whole.plan and shared.deployment.entries[0].splits == {}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_this_machines_two_cores_share_products_and_compute_the_same(heavy: Path, tmp_path: Path) -> None:
    single = {"*": team()}
    planned = hetsched.plan(heavy, "host", time_limit_s=0.5, splits=True, forbidden=single)
    whole = hetsched.plan(heavy, "host", time_limit_s=0.5, forbidden=single)
    assert planned.deployment.entries[0].splits
    assert planned.plan.prediction.latency_s < 0.8 * whole.plan.prediction.latency_s
    assert planned.plan.baselines == whole.plan.baselines
    front = hetsched.plan(heavy, "host", time_limit_s=0.5, splits=True, pareto=3, forbidden=single)
    assert any(f.latency_s == front.plan.prediction.latency_s for f in front.plan.front)
    assert front.plan.front[-1].energy_j <= whole.plan.prediction.energy_j
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


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_what_the_user_forbids_holds_for_the_parts_too(heavy: Path) -> None:
    planned = hetsched.plan(heavy, "host", time_limit_s=0.5, splits=True, forbidden={"*": team(), "up": "cpu:1"})
    assert planned.deployment.entries[0].splits
    assert all(p.queue != "cpu:1" for p in planned.plan.placements if "up" in p.origin)
    none = hetsched.plan(heavy, "host", time_limit_s=0.5, splits=True, forbidden={"*": "cpu:1"})
    assert none.deployment.entries[0].splits == {}
    assert "cpu:1" not in {p.queue for p in none.plan.placements}
    forced = hetsched.plan(heavy, "host", time_limit_s=0.5, splits=True, forced={"down": "cpu:1"})
    assert {p.queue for p in forced.plan.placements if "down" in p.origin} == {"cpu:1"}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_limit_holds_for_plans_with_splits(heavy: Path) -> None:
    planned = hetsched.plan(heavy, "host", time_limit_s=0.5, splits=True, limits=Limits(segments=1))
    assert len(planned.plan.segments) == 1


def test_a_node_name_stands_for_all_that_it_became_and_an_op_name_for_itself(heavy: Path) -> None:
    graph = split(hetsched.load(heavy), {"act": (128, 256)})
    parts = [op.name for op in graph.ops if "up" in op.origin]
    assert parts == ["act/1of3", "act/2of3", "act/3of3", "act/join"]
    assert op_names(graph, {"up": "npu"}) == dict.fromkeys(parts, "npu")
    assert op_names(graph, {parts[0]: "npu"}) == {parts[0]: "npu"}
    assert op_queues(graph, {"up": "gpu, npu", "*": "cpu"}) == (*((p, q) for p in parts for q in ("gpu", "npu")), ("*", "cpu"))
    with pytest.raises(OptionError, match="is forced to npu and to gpu"):
        op_names(graph, {parts[0]: "npu", "up": "gpu"})
    with pytest.raises(OptionError, match="no op or node of 'heavy' is called 'upp': did you mean up"):
        op_queues(graph, {"upp": "gpu"})


def test_the_parts_of_an_operator_lose_what_it_loses_together(heavy: Path, tmp_path: Path) -> None:
    graph = split(hetsched.load(heavy), {"act": (128, 256), "down": (128, 256)})
    table = cost_table(graph, load_soc("snapdragon-8-gen-3"), "mixed", "default")
    lossy = with_losses(table, graph, Sensitivities(ops={"up": 4.0}, default=1.0), tmp_path)
    integers = {op.name: [a for a in table.alternatives(i) if table.alt_precision[a] == "w8a8"] for i, op in enumerate(graph.ops)}
    for node, lost in (("up", 4.0), ("down", 1.0)):
        parts = [op.name for op in graph.ops if node in op.origin]
        assert sum(lossy.loss[integers[p][0]] for p in parts) == pytest.approx(lost)


def test_splits_are_not_for_solvers_that_say_where_everything_goes(heavy: Path) -> None:
    with pytest.raises(OptionError, match="--split looks for placements of its own"):
        hetsched.plan(heavy, "snapdragon-8-gen-3", solver="single:npu", splits=True)
