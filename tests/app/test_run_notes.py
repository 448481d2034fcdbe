"""What a run says about its own prediction."""

from __future__ import annotations

from hetsched.app.running import SLOW_CALIBRATION, _faster


def test_a_run_far_below_its_prediction_doubts_the_calibration() -> None:
    assert _faster(1.0, SLOW_CALIBRATION) == []
    assert _faster(1.0, 3.0) == []
    (note,) = _faster(0.076, 0.0387)
    assert "0.51" in note
    assert "hetsched calibrate" in note
