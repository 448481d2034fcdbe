"""A chat on the page, and runs of other plans than those beside them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hetsched.plans import Deployment
from hetsched.reports import PlanItem, TraceItem, html
from hetsched.reports.runs import stray
from hetsched.reports.turns import MOST, turn_tiles, turns_of, turns_view
from hetsched.trace import Span, Trace
from hetsched.trace.turns import Turn

PHONE = "snapdragon-8-gen-3"


def chat(count: int) -> Trace:
    trace = Trace("simulated", "assistant", PHONE, ("npu",))
    trace.instants = [Turn(k, 20.0 * k, 200 * (k % 3), 64, 128, 0.1 + 0.01 * k, 30.0 - 0.01 * k).instant() for k in range(count)]
    trace.spans = [Span("npu", "op", "matmul", 20.0 * k, 20.0 * k + 1.0, 0, k) for k in range(count)]
    return trace


def test_every_turn_of_a_short_chat_is_a_row() -> None:
    found = turns_view(turns_of(chat(4)))
    assert found is not None and "the last" not in found.hint
    assert found.rows[1] == ["2", "0:20", "200", "110 ms", "30.0"]
    assert [row[0] for row in found.rows] == ["1", "2", "3", "4"]


def test_a_long_chat_keeps_its_ends() -> None:
    found = turns_view(turns_of(chat(500)))
    assert found is not None and "The first 20 and the last 20 of 500 turns" in found.hint
    assert len(found.rows) == MOST and found.rows[0][0] == "1" and found.rows[-1][0] == "500"


def test_tiles_and_page_of_a_chat() -> None:
    tiles = {t.name: t for t in turn_tiles(turns_of(chat(9)), "simulated")}
    assert tiles["Turns"].value == "9" and tiles["Turns"].note.startswith("3 conversations")
    assert tiles["First token"].value == "140 ms" and "100–180 ms" in tiles["First token"].note
    page = html([TraceItem(chat(9), "a chat", "A Chip")])
    assert "assistant on A Chip" in page and "Wait for the first token" in page
    assert "Latency per inference" not in page and "First inference" not in page


def test_no_chat_no_table() -> None:
    assert turns_view([]) is None
    assert "Turn by turn" not in html([TraceItem(Trace("simulated", "m", "s"))])


def test_a_run_of_the_plan_is_no_stray(sample, deployment: Deployment) -> None:
    plan = deployment.entries[0].plan
    assert stray(sample.run(plan, "measured", 2, 1.2, 1), [PlanItem(deployment)]) == ""
    assert stray(sample.run(plan, "measured", 2, 1.2, 1), []) == ""
    together = replace(sample.run(plan, "simulated", 2, 1.2, 1), model="other + det")
    assert stray(together, [PlanItem(deployment)]) == ""


@pytest.mark.parametrize("field", ["model", "soc"])
def test_a_run_of_another_model_or_soc_is_told(sample, deployment: Deployment, field: str) -> None:
    run = sample.run(deployment.entries[0].plan, "simulated", 2, 1.2, 1)
    setattr(run, field, "something-else")
    why = stray(run, [PlanItem(deployment)])
    assert "something-else" in why and "of which there is no plan here (det on snapdragon-8-gen-3)" in why
    page = html([PlanItem(deployment), TraceItem(run, "a run")])
    assert f"{why[0].upper()}{why[1:]}" in re.sub(r"\s+", " ", page)
    assert "Did the prediction hold?" not in page


def test_a_run_of_another_plan_of_the_same_model_is_told(sample, deployment: Deployment) -> None:
    run = sample.run(deployment.entries[0].plan, "simulated", 2, 1.2, 1)
    run.spans = [replace(s, queue="gpu") for s in run.spans]
    why = stray(run, [PlanItem(deployment)])
    assert re.search(r"another plan of det on snapdragon-8-gen-3 \(\d+ of \d+ operators were elsewhere\)", why)
    assert "Did the prediction hold?" not in html([PlanItem(deployment), TraceItem(run, "a run")])
    assert stray(replace(run, origin="imported"), [PlanItem(deployment)]) == ""
