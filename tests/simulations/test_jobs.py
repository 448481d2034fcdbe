"""Jobs: event logs worked out by hand, both paths, scripts, conservation."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hetsched.plans import Switch
from hetsched.socs import SoC
from hetsched_simulations import LevelPlan, Levels, Simulation, simulate
from hetsched_simulations.jobs import Job, Jobs, Part, Stage, buckets, middles, stages_of
from hetsched_simulations.scripts import Arrivals, Conversation, Loop, Said, periodic, poisson
from hetsched_simulations.simulation import Path
from hetsched_simulations.workload import commands_of

BOTH = pytest.mark.parametrize("path", ["full", "multirate"])


def parts(toys: SimpleNamespace, prefill_s: float = 20e-3, step_s: float = 10e-3, per_token_s: float = 0.0) -> Any:
    """A prefill of so long, decode steps that grow with the context; at level 1 everything runs on the NPU, twice as long."""

    def of(level: int, part: Part) -> Any:
        seconds = prefill_s if part.phase == "prefill" else step_s + per_token_s * part.past
        table = toys.table([{"compute": [seconds, seconds, 2 * seconds], "bytes": 1e6}])
        return commands_of(table, [0], toys.on(2 if level else 0))

    return of


def run(toys: SimpleNamespace, script: Any, path: Path, of: Any = None, **options: Any) -> Simulation:
    table = toys.table([{"compute": 10e-3, "bytes": 1e6}])
    soc = options.pop("soc", None) or toys.soc()
    jobs = Jobs(script, of or parts(toys), options.pop("deadline_s", None))
    return simulate(table, soc, [0], toys.on(0), jobs=jobs, path=path, **{"duration_s": 0.1, "thermal": False, **options})


@BOTH
def test_arrivals_that_are_dropped_by_hand(toys: SimpleNamespace, path: Path) -> None:
    """10 ms each, every 8 ms: 0-10, the one at 8 is dropped, 16-26, the one at 24 is dropped, 32-42, ..."""
    s = run(toys, Arrivals(periodic(8e-3, 0.05)), path, deadline_s=11e-3)
    assert s.path == path and s.jobs is not None
    assert [d.ended_s * 1e3 for d in s.jobs.done] == pytest.approx([10, 26, 42, 58])
    assert s.jobs.dropped == 3
    assert s.latencies_s * 1e3 == pytest.approx([10] * 4)
    assert s.jobs.late(9e-3) == 4 and s.jobs.late(11e-3) == 0


@BOTH
def test_arrivals_that_wait_by_hand(toys: SimpleNamespace, path: Path) -> None:
    """All are served: the k-th ends at 10 (k + 1) ms and has come at 8 k."""
    s = run(toys, Arrivals(periodic(8e-3, 0.04), queue=True), path, deadline_s=14.5e-3)
    assert s.jobs is not None and s.jobs.dropped == 0
    assert s.latencies_s * 1e3 == pytest.approx([10, 12, 14, 16, 18])
    assert s.jobs.late(14.5e-3) == 2
    assert [(i.kind, i.name) for i in s.trace.instants if i.kind == "deadline"] == [
        ("deadline", "job 3 missed"),
        ("deadline", "job 4 missed"),
    ]


@BOTH
def test_a_loop_thinks_between_inferences(toys: SimpleNamespace, path: Path) -> None:
    """10 ms of work, 5 ms of thought."""
    s = run(toys, Loop(5e-3), path, duration_s=0.045)
    assert s.jobs is not None
    assert [d.ended_s * 1e3 for d in s.jobs.done] == pytest.approx([10, 25, 40])


@BOTH
def test_a_conversation_by_hand(toys: SimpleNamespace, path: Path) -> None:
    """Prompts of 20 tokens in 20 ms, answers of 3 tokens in 10 ms each, 30 ms to read them; two turns fit into 50 tokens."""
    s = run(toys, Conversation(50, 20, 3, 0.03), path, duration_s=0.25)
    log = s.jobs
    assert log is not None
    assert [(round(d.began_s * 1e3), round(d.first_s * 1e3), round(d.ended_s * 1e3)) for d in log.done] == [
        (0, 20, 50),
        (80, 100, 130),
        (160, 180, 210),
    ]
    assert [d.job.past for d in log.done] == [0, 23, 0]
    assert log.tokens == 9
    assert s.latencies_s * 1e3 == pytest.approx([10] * 9)
    turns = [i for i in s.trace.instants if i.kind == "turn"]
    assert turns[1].detail == "20 tokens after 23: first token after 20 ms, then 3 at 100 tok/s"
    rate = s.trace.counters["rate/tokens"]
    assert np.diff(rate.times_s) @ rate.values[:-1] == pytest.approx(9)


@BOTH
def test_contexts_grow_bucket_by_bucket(toys: SimpleNamespace, path: Path) -> None:
    """A token at a context of c takes 10 ms + 10 us c, at the middle of its bucket of 512: 256, 768."""
    s = run(toys, Conversation(1024, 480, 64), path, parts(toys, per_token_s=10e-6), duration_s=1.2)
    assert s.jobs is not None
    assert s.latencies_s[:32] * 1e3 == pytest.approx([12.56] * 32)
    assert s.latencies_s[32:64] * 1e3 == pytest.approx([17.68] * 32)
    assert s.jobs.done[0].ended_s == pytest.approx(0.02 + 32 * 0.01256 + 32 * 0.01768)


def test_both_paths_agree_on_a_chat_that_throttles(toys: SimpleNamespace) -> None:
    """Within half a per cent: tokens, energy, peak temperatures; first step of the governor within one poll."""
    soc = toys.soc(trip_c=45.0, polling_s=0.1, scale=0.2)
    full, fast = (
        run(toys, Conversation(256, 40, 60, 1.5), path, parts(toys, 60e-3, 8e-3, 20e-6), soc=soc, thermal=True, duration_s=30.0)
        for path in ("full", "multirate")
    )
    assert full.jobs is not None and fast.jobs is not None
    assert full.throttling.happened
    assert fast.jobs.tokens == pytest.approx(full.jobs.tokens, rel=5e-3)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=5e-3)
    for node, hottest in full.peak_temperatures_c.items():
        assert fast.peak_temperatures_c[node] == pytest.approx(hottest, rel=5e-3)
    assert fast.throttling.first_s == pytest.approx(full.throttling.first_s, abs=0.1)
    assert [d.ended_s for d in fast.jobs.done] == pytest.approx([d.ended_s for d in full.jobs.done], rel=5e-3)


@BOTH
def test_queues_wake_up_after_a_pause(toys: SimpleNamespace, path: Path) -> None:
    """The CPU sleeps after 20 ms and takes 2 ms to wake up: after a pause of 30 ms, but not within a turn."""
    raw = toys.soc().model_dump()
    raw["processors"][0]["idle_states"] = [idle(20e-3, 2e-3)]
    soc = SoC.model_validate(raw)
    s = run(toys, Conversation(200, 20, 3, 0.03), path, soc=soc, duration_s=0.25)
    assert s.jobs is not None
    assert [(d.first_s - d.began_s) * 1e3 for d in s.jobs.done] == pytest.approx([20, 22, 22])
    assert s.latencies_s * 1e3 == pytest.approx([10] * 9)


def idle(after_s: float, exit_s: float) -> dict[str, Any]:
    return {"name": "collapsed", "after_s": {"value": after_s, "estimated": "test"}, "exit_s": {"value": exit_s, "estimated": "test"}}


class To:
    """Wants level 1 from a time on."""

    period_s = 0.01

    def __init__(self, time_s: float) -> None:
        self.time_s = time_s

    def wanted(self, seen: Any) -> int:
        return int(seen.time_s > self.time_s - 1e-9)


@BOTH
def test_plans_switch_within_an_answer(toys: SimpleNamespace, path: Path) -> None:
    """Tokens end at 30 and 40 ms; then a switch of 4 ms, and the rest takes 20 ms a token."""
    table = toys.table([{"compute": 10e-3, "bytes": 1e6}])

    def switch(first: int, second: int) -> Switch:
        return Switch(before=("decode", first), after=("decode", second), weight_bytes=40_000_000, pack_s=4e-3, state_bytes=0, handover_s=0)

    levels = Levels(To(0.04), {1: LevelPlan(table, [0], toys.on(2))}, switch)
    s = run(toys, Conversation(100, 20, 4), path, levels=levels, duration_s=0.1)
    assert s.jobs is not None and s.levels is not None
    (d,) = s.jobs.done
    assert (d.first_s, d.ended_s, d.level) == (pytest.approx(0.02), pytest.approx(0.084), 1)
    assert s.levels.switches[0].time_s == pytest.approx(0.04)
    assert s.latencies_s[:2] * 1e3 == pytest.approx([10, 10])


def test_shorter_windows_at_deeper_levels() -> None:
    talk = Conversation(1000, 100, 100, windows={3: 250})
    assert [talk.next(0.0, level).past for level in (0, 0, 3, 3, 0)] == [0, 200, 0, 0, 200]  # type: ignore[union-attr]
    job = Conversation(1000, 400, 100, windows={3: 250}).next(0.0, 3)
    assert job is not None and (job.prompt, job.generate) == (249, 1)


def test_turns_from_a_list() -> None:
    talk = Conversation(300, said=(Said(1.0, 50, 50), Said(2.0, 50, 50), Said(9.0, 10, 10, past=0)))
    jobs = [talk.next(5.0, 0) for _ in range(4)]
    assert [None if j is None else (j.arrived_s, j.past, j.prompt) for j in jobs] == [(1.0, 0, 50), (2.0, 100, 50), (9.0, 0, 10), None]


def test_stages_cover_every_token_of_an_answer() -> None:
    assert buckets(1100) == (512, 1024, 1100) and middles(1100) == (256, 768, 1062)
    assert buckets(8192) == tuple(range(1024, 8193, 1024))
    stages = stages_of(40, 100, 434, buckets(1024))
    assert stages[0] == Stage(Part("prefill", 64, 256))
    assert sum(s.times for s in stages[1:]) == 100
    assert [(s.part.past, s.times) for s in stages[1:]] == [(256, 38), (768, 62)]


def test_random_arrivals_have_their_mean_and_follow_the_seed() -> None:
    times = poisson(0.1, 1000.0, seed=7)
    assert len(times) == pytest.approx(10_000, rel=0.05)
    assert times == poisson(0.1, 1000.0, seed=7) != poisson(0.1, 1000.0, seed=8)
    assert all(b > a for a, b in pairwise(times)) and times[-1] < 1000.0
    assert np.std(np.diff(times)) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("queue", [True, False])
def test_both_paths_agree_on_random_arrivals(toys: SimpleNamespace, queue: bool) -> None:
    """Clocks do not change: every job begins and ends at the same moment on both paths."""
    times = poisson(12e-3, 2.0, seed=3)
    full, fast = (run(toys, Arrivals(times, queue), path, thermal=True, duration_s=2.0) for path in ("full", "multirate"))
    assert full.jobs is not None and fast.jobs is not None
    assert fast.latencies_s == pytest.approx(full.latencies_s, rel=1e-6)
    assert fast.jobs.dropped == full.jobs.dropped
    assert fast.energy.soc == pytest.approx(full.energy.soc, rel=1e-3)
    assert Job(0.0).stages == (Stage(Part(), 1),)
