"""Anchors as plan files keep them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from hetsched.anchors import Anchor, counting, factors


def test_describe_names_chip_runtime_precision_and_other_units() -> None:
    anchor = Anchor(chip="snapdragon-8-gen-3", latency_s=1.58e-3, predicted_s=2e-3, runtime="qnn")
    assert anchor.describe() == "1.58 ms on snapdragon-8-gen-3 (qnn, float)"
    assert anchor.model_copy(update={"unit": "cpu"}).describe().endswith("(qnn, float, cpu)")
    assert anchor.factor == pytest.approx(0.79)


def test_several_anchors_of_a_unit_are_averaged_as_ratios() -> None:
    two = [Anchor(chip="a", latency_s=2e-3, predicted_s=1e-3), Anchor(chip="b", latency_s=8e-3, predicted_s=1e-3)]
    assert factors(two, "c") == {"npu": pytest.approx(4.0)}


def test_an_anchor_of_the_chip_itself_counts_alone() -> None:
    own = Anchor(chip="a", latency_s=2e-3, predicted_s=1e-3)
    other = Anchor(chip="b", latency_s=8e-3, predicted_s=1e-3, unit="all")
    assert factors([other, own], "a") == {"cpu": pytest.approx(8.0), "gpu": pytest.approx(8.0), "npu": pytest.approx(2.0)}
    assert counting([other, own], "a")["npu"] == (own,)


def test_all_units_are_every_kind() -> None:
    assert factors([Anchor(chip="a", latency_s=3e-3, predicted_s=1e-3, unit="all")], "b") == dict.fromkeys(
        ("cpu", "gpu", "npu"), pytest.approx(3.0)
    )


@pytest.mark.parametrize(
    "change",
    [{"latency_s": 0.0}, {"latency_s": float("nan")}, {"predicted_s": -1.0}, {"unit": "dsp"}, {"chip": "No Such Chip"},
     {"interval": (1.2, 1.5)}],
    ids=str,
)  # fmt: skip
def test_nonsense_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Anchor.model_validate({"chip": "a", "latency_s": 1e-3, "predicted_s": 1e-3} | change)
