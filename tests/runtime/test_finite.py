"""Which results are called an overflow: those in less than float32, from finite inputs, of segments without masks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ExecutionError
from hetsched.frontends import load
from hetsched.plans import Plan
from hetsched.runtime.failures import NotFiniteError, failure
from hetsched.runtime.finite import Inspection

HandPlan = Callable[..., Plan]
Save = Callable[..., Path]
PLAIN = "g (float[4] x) => (float[4] y) { a = Relu(x) y = Exp(a) }"
MASKED = "g (float[4] x) => (float[4] y) <float big = {-3.4e38}> { a = Relu(x) y = Add(a, big) }"
GOOD, BAD = np.zeros(4, np.float32), np.array([0, np.inf, 0, np.nan], np.float32)


@pytest.mark.parametrize(
    ("text", "precision", "before", "after", "is_wrong"),
    [
        (PLAIN, "f16", GOOD, BAD, True),
        (PLAIN, "w8a8", GOOD, BAD, True),
        (PLAIN, "f16", GOOD, GOOD, False),
        (PLAIN, "f16", BAD, BAD, False),
        (PLAIN, "f32", GOOD, BAD, False),
        (MASKED, "f16", GOOD, BAD, False),
    ],
)
def test_what_is_an_overflow(
    text: str, precision: str, before: Any, after: Any, is_wrong: bool, save: Save, plan_by_hand: HandPlan
) -> None:  # fmt: skip
    graph = load(save(text))
    buffers = {"x": before, "a": GOOD, "y": GOOD}
    inspection = Inspection(graph, plan_by_hand(graph, precision=lambda i: precision), buffers)
    inspection.before(0)
    buffers["x"], buffers["y"] = BAD, after  # results may be written over the inputs
    if is_wrong:
        with pytest.raises(NotFiniteError, match=rf"segment 0 on cpu:0 wrote infinities .* into 'y', in {precision} and from finite"):
            inspection.after(0)
    else:
        inspection.after(0)


def test_errors_name_what_failed_once() -> None:
    made = failure(RuntimeError("lost\nat 0x1"), "wgpu", 3)
    assert isinstance(made, ExecutionError) and (made.segments, made.delegate) == ((3,), "wgpu")
    assert str(made) == "the delegate 'wgpu' failed in segment 3: RuntimeError: lost"
    assert failure(made, "mixed", 4) is made and (made.segments, made.delegate) == ((3,), "wgpu"), "the first to say it knows best"
    assert isinstance(failure(MemoryError(), "wgpu", 3), MemoryError)
