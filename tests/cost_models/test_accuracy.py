"""Predicted beside measured: groups of points, and the shipped measurements."""

from __future__ import annotations

import pytest

from hetsched_cost_models.accuracy import Point, anchored, furthest, grouped, points


def point(model: str, predicted: float, **change: object) -> Point:
    fields = {"chip": "c", "unit": "npu", "precision": "float", "runtime": "qnn", "use": "fit", "interval_s": (0.5, 1.5)} | change
    return Point(model=model, measured_s=1.0, predicted_s=predicted, **fields)  # type: ignore[arg-type]


def test_every_model_weighs_alike() -> None:
    (group,) = grouped([point("a", 1.2)] * 8 + [point("b", 2.0, interval_s=(1.5, 2.5))])
    assert (group.rows, group.models) == (9, 2)
    assert group.mean == pytest.approx((0.2 + 1.0) / 2)
    assert group.within_quarter == pytest.approx(0.5)
    assert group.covered == pytest.approx(0.5)
    assert group.bias == pytest.approx((1.2 * 2.0) ** 0.5 - 1)
    assert group.p90 == pytest.approx(1.0) and group.median == pytest.approx(0.2)


def test_groups_by_the_fields_asked_for() -> None:
    rows = [point("a", 1.0), point("a", 1.0, precision="w8a8"), point("a", 1.0, chip="d", interval_s=None)]
    assert [(g.chip, g.precision) for g in grouped(rows)] == [("c", "float"), ("c", "w8a8"), ("d", "float")]
    by_chip = grouped(rows, ("chip",))
    assert [(g.chip, g.precision, g.rows) for g in by_chip] == [("c", "all", 2), ("d", "float", 1)]
    assert by_chip[1].covered is None


def test_anchored_points_are_ratios_of_predictions() -> None:
    base, other = "snapdragon-8-gen-3", "snapdragon-8-elite"
    rows = [point("a", 2.0, chip=base), point("a", 3.0, chip=other), point("b", 1.0, chip=other)]
    (found,) = anchored(rows, base)
    assert (found.model, found.chip, found.measured_s) == ("a", other, 1.0)
    assert found.predicted_s == pytest.approx(1.5)
    assert found.interval_s is not None and found.interval_s[0] < 1.5 < found.interval_s[1]


def test_the_furthest_counts_ratios_and_each_model_once() -> None:
    rows = [point("a", 1.9), point("a", 0.1), point("b", 0.5), point("c", 1.0)]
    assert [(p.model, p.predicted_s) for p in furthest(rows, 2)] == [("a", 0.1), ("b", 0.5)]


def test_the_shipped_measurements_are_predicted_usefully() -> None:
    found = points()
    assert len(found) > 1000 and all(p.measured_s > 0 and p.predicted_s > 0 for p in found)
    base = next(g for g in grouped([p for p in found if p.unit == "npu"], ("chip",)) if g.chip == "snapdragon-8-gen-3")
    assert base.models >= 35
    for chip in ("snapdragon-8-elite", "qcs8550"):
        mine = [p for p in found if p.chip == chip]
        (plain,), (corrected,) = grouped(mine, ("chip",)), grouped([p for p in anchored(found, base.chip) if p.chip == chip], ("chip",))
        assert corrected.median < plain.median and corrected.covered is not None and corrected.covered > 0.6
    assert base.median < 0.2 and base.covered is not None and base.covered > 0.6
