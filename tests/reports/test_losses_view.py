"""Where the latency goes, in the report: a table beside the baselines, and the smallest changes under the causes."""

from __future__ import annotations

from hetsched.accounts import Accounts, RefusedOps
from hetsched.plans import Plan
from hetsched.reports import PlanItem
from hetsched.reports.losses import loss_view
from hetsched.reports.page import html


def accounts(work_s: float, **segments: int) -> Accounts:
    return Accounts(
        work_s=work_s, launch_s=1e-3, sync_s=5e-4, transfer_s=0, work_j=2e-3, launch_j=1e-3, sync_j=0, transfer_j=0, segments=segments
    )


def with_accounts(plan: Plan) -> Plan:
    refused = RefusedOps(type="Resize", queue="npu", reason="cubic <b>", ops=4, example="merge", latency_s=8e-3)
    baselines = tuple(
        b.model_copy(update={"accounts": accounts(9e-3, npu=9, gpu=8), "refused": (refused,)}) if b.solver == "vendor" else b
        for b in plan.baselines
    )
    return plan.model_copy(update={"accounts": accounts(6e-3, npu=3, gpu=2), "baselines": baselines})


def test_plans_without_accounts_have_no_table(deployment) -> None:
    assert loss_view(deployment.entries[0].plan) is None
    assert "Where the latency goes" not in html([PlanItem(deployment)])


def test_rows_name_the_placements_as_the_chart_does(deployment) -> None:
    view = loss_view(with_accounts(deployment.entries[0].plan))
    assert view is not None and view.whole == "latency"
    assert [r[0] for r in view.rows] == ["vendor default", "this plan"]
    assert list(view.rows[-1][1:]) == ["7.5 ms", "6 ms", "1 ms", "500 µs", "0", "3 npu, 2 gpu"]
    assert view.lines[0] == "vendor loses 3 ms (work +3 ms), in 17 segments (9 npu, 8 gpu)"


def test_a_plan_for_least_energy_speaks_of_energy(deployment) -> None:
    view = loss_view(with_accounts(deployment.entries[0].plan).model_copy(update={"objective": "energy"}))
    assert view is not None and view.whole == "energy" and view.rows[-1][1] == "3 mJ"


def test_the_page_shows_losses_and_changes_escaped(deployment) -> None:
    entry = deployment.entries[0]
    plan = with_accounts(entry.plan)
    item = PlanItem(
        deployment.model_copy(update={"entries": (entry.model_copy(update={"plan": plan}),)}),
        changes={("inference", 0): {plan.placements[3].op: ("gpu f16 if a sync with gpu took at most 47 µs (now <120> µs)",)}},
    )
    page = html([item])
    assert "Where the latency goes" in page and "npu refuses 4 Resize (cubic &lt;b&gt;): with them there it would be 2.5 ms faster" in page
    assert page.count('<td colspan="4">gpu f16 if a sync with gpu took at most 47 µs (now &lt;120&gt; µs)</td>') == 1
