"""The front in the report: a dot a plan, the plan itself marked, escaped and in place."""

from __future__ import annotations

from hetsched.plans import FrontPoint
from hetsched.reports.front import front_view


def point(latency: float, energy: float) -> FrontPoint:
    return FrontPoint(latency_s=latency, energy_j=energy, segments=2, ops_by_queue={"npu": 3}, gap=0.02)


def test_every_plan_is_a_dot_and_a_row(deployment) -> None:
    plan = deployment.entries[0].plan
    assert front_view(plan) is None
    view = front_view(plan.model_copy(update={"front": (point(1e-3, 5e-3), point(2e-3, 4e-3), point(4e-3, 1e-3))}))
    assert view is not None
    assert str(view.chart).count("<circle") == 4
    assert [r[0] for r in view.rows] == ["1.00 ms", "2.00 ms", "4.00 ms"]
    assert view.rows[0][2:] == ("3 on npu", "2", "2.0 %")


def test_a_front_of_one_plan_is_a_sentence(deployment) -> None:
    plan = deployment.entries[0].plan
    p = plan.prediction
    view = front_view(plan.model_copy(update={"front": (point(p.latency_s, p.energy_j),)}))
    assert view is not None and view.chart is None and not view.rows
