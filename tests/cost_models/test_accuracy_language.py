"""Language models among the points of ``hetsched accuracy``."""

from __future__ import annotations

from collections import Counter

import pytest

from hetsched_cost_models.accuracy import anchored, grouped, points
from hetsched_cost_models.fit.language_data import rates

_PROVIDERS = ("hetsched_cost_models.accuracy_language",)


def test_every_measured_rate_is_a_point() -> None:
    found = Counter(p.unit.split()[1] for p in points(_PROVIDERS))
    assert found == {phase: sum(getattr(r, phase) > 0 for r in rates()) for phase in ("decode", "prefill")}


def test_a_point_is_the_seconds_of_one_token() -> None:
    rate = next(r for r in rates() if r.decode > 0 and r.engine == "executorch" and not r.app)
    own = [p for p in points(_PROVIDERS) if (p.chip, p.model, p.runtime, p.unit) == (rate.chip, rate.model, "executorch", "cpu decode")]
    assert pytest.approx(1.0 / rate.decode) in [p.measured_s for p in own]


def test_apps_stand_apart_from_benchmarks() -> None:
    groups = grouped(points(_PROVIDERS), by=("runtime",))
    assert {g.runtime for g in groups} >= {"executorch", "executorch in an app"}


def test_language_rows_are_not_anchored_like_graphs() -> None:
    assert anchored(points(_PROVIDERS), "snapdragon-8-gen-3") == []
