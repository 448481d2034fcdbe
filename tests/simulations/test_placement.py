"""From a plan file's names to the indices of a cost table."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hetsched.errors import PlanError, SoCError
from hetsched.placement import placement_of
from hetsched.plans import Placement, Plan, Prediction
from hetsched_simulations import simulate
from hetsched_simulations.workload import commands_of


def plan(*queues: str, order: tuple[str, ...] = ("op1", "op0"), precision: str = "f32") -> Plan:
    """A plan that names only what a placement needs."""
    prediction = Prediction(
        latency_s=1, latency_interval_s=(1, 1), serial_s=1, energy_j=0, peak_memory_bytes=0, weight_bytes=0, arena_bytes=0
    )
    placements = tuple(
        Placement(op=f"op{i}", type="Relu", origin=(), queue=q, precision=precision, delegate="numba", seconds=1e-3, energy_j=0, cause="")
        for i, q in enumerate(queues)
    )
    return Plan(
        solver="test", objective="latency", status="feasible", bound_s=0, gap=0, order=order, placements=placements,
        segments=(), fences=(), buffers=(), arena_bytes=0, prediction=prediction,
    )  # fmt: skip


def test_names_become_indices(toys: SimpleNamespace) -> None:
    table = toys.table([{"compute": 1e-3}, {"compute": 1e-3}])
    placement = placement_of(plan("npu", "gpu"), table)
    assert placement == ((1, 0), (2, 4))
    s = simulate(table, toys.soc(), *placement)
    assert [(x.queue, x.name) for x in s.trace.spans if x.kind == "op"] == [("gpu", "op1"), ("npu", "op0")]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (plan("npu", "dsp"), "the plan runs 'op1' on dsp in f32, which the cost table does not offer"),
        (plan("npu", "gpu", precision="w8a8"), "on npu in w8a8, which the cost table does not offer"),
        (plan("npu"), "the plan and the model disagree about the op 'op1'"),
        (plan("npu", "gpu", order=("op0", "conv")), "the plan and the model disagree about the op 'conv'"),
        (plan("npu", "gpu", "cpu"), "the plan places the op 'op2', which the model does not have"),
    ],
)
def test_a_plan_of_another_model_is_refused(toys: SimpleNamespace, bad: Plan, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        placement_of(bad, toys.table([{}, {}]))


def test_orders_that_break_the_rules_are_refused(toys: SimpleNamespace) -> None:
    table = toys.table([{}, {"reads": [0]}])
    with pytest.raises(PlanError, match="runs op 'op1' before 'op0', which it reads from"):
        simulate(table, toys.soc(), [1, 0], toys.on(0, 0))
    with pytest.raises(PlanError, match="must name each of the 2 ops once"):
        simulate(table, toys.soc(), [0, 0], toys.on(0, 0))


def test_a_table_of_another_soc_is_refused(toys: SimpleNamespace) -> None:
    soc = toys.soc()
    other = soc.model_copy(update={"processors": soc.processors[:2]})
    with pytest.raises(SoCError, match="queue 'npu' of the cost table is on 'npu', which test-soc does not have"):
        simulate(toys.table([{}]), other, [0], toys.on(0))


def test_fences_only_where_the_queue_changes(toys: SimpleNamespace) -> None:
    """In-order queues need no fence among themselves; the join waits for the other queue alone."""
    ops = [{"compute": 1e-3}, {"compute": 1e-3}, {"compute": 1e-3, "reads": [0, 1]}]
    commands = commands_of(toys.table(ops, sync_s=1e-4), [0, 1, 2], toys.on(2, 1, 2))
    assert [(c.queue, c.waits, c.output_sync_s) for c in commands] == [(2, (), None), (1, (), None), (2, ((1, 1e-4),), 1e-4)]
