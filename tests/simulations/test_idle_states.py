"""Idle states: a processor that has rested for long takes its time to come back, in both paths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.socs import SoC
from hetsched_simulations import Simulation, simulate


def sleepy(toys: SimpleNamespace) -> SoC:
    """The NPU collapses after 20 ms and takes 2 ms to come back; after 100 ms it is in a deeper state, 5 ms from work."""
    states = [
        {"name": name, "after_s": {"value": a, "estimated": "test"}, "exit_s": {"value": e, "estimated": "test"}}
        for name, a, e in (("collapse", 0.02, 0.002), ("off", 0.1, 0.005))
    ]
    raw = toys.soc().model_dump()
    raw["processors"][2]["idle_states"] = states
    return SoC.model_validate(raw)


def run(toys: SimpleNamespace, queues: list[int], path: str, **options: Any) -> Simulation:
    ops = [{"compute": 3e-3, "reads": [i - 1] if i else []} for i in range(len(queues))]
    settings = {"thermal": False, **options}
    return simulate(toys.table(ops), sleepy(toys), list(range(len(queues))), toys.on(*queues), path=path, **settings)


@pytest.mark.parametrize(("period_s", "wake_s"), [(0.02, 0.0), (0.03, 0.002), (0.2, 0.005)])
def test_sparse_frames_pay_for_waking_up(toys: SimpleNamespace, period_s: float, wake_s: float) -> None:
    """3 ms of work a frame: it rests for a period less 3 ms, at first not at all."""
    full = run(toys, [2], "full", iterations=5, period_s=period_s)
    assert full.latencies_s == pytest.approx([3e-3, *[3e-3 + wake_s] * 4])
    fast = run(toys, [2], "multirate", iterations=5, period_s=period_s)
    assert fast.latencies_s == pytest.approx([3e-3 + wake_s] * 5)
    # it works at 2 W and leaks 0.2 W, also while it wakes up
    assert full.energy.dynamic["npu"] == pytest.approx(5 * 6e-3)
    assert full.energy.leakage["npu"] == pytest.approx(0.2 * (5 * 3e-3 + 4 * wake_s))


def test_it_sleeps_within_an_inference_too(toys: SimpleNamespace) -> None:
    """NPU, 24 ms of CPU, NPU again."""
    for path in ("full", "multirate"):
        s = run(toys, [2, *[0] * 8, 2], path)
        assert s.first_s == pytest.approx(30e-3 + 2e-3)
        woken = [(x.start_s, x.end_s) for x in s.trace.spans if x.name == "wake"]
        assert woken == [pytest.approx((27e-3, 29e-3))]
        last = max(x.start_s for x in s.trace.spans if x.kind == "op")
        assert last == pytest.approx(29e-3)


def test_others_are_always_ready(toys: SimpleNamespace) -> None:
    s = run(toys, [0], "full", iterations=3, period_s=0.2)
    assert s.latencies_s == pytest.approx([3e-3] * 3)
