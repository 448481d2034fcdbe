"""A chat beside other models: alone it is the chat of the path for jobs, beside a camera it takes what by hand it must."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.socs import SoC
from hetsched_simulations import Simulation, simulate
from hetsched_simulations.conditions import Conditions
from hetsched_simulations.jobs import Jobs, Part
from hetsched_simulations.scripts import Conversation, Said
from hetsched_simulations.shared_run import SharedSimulation, simulate_streams
from hetsched_simulations.streams import Stream, Talk
from hetsched_simulations.workload import commands_of

BOTH = pytest.mark.parametrize("path", ["full", "multirate"])
PREFILL_S, TOKEN_S = 60e-3, 8e-3


def parts(toys: SimpleNamespace) -> Any:
    """On the NPU: a prefill of 60 ms, tokens of 8 ms and 10 us a token before."""

    @cache
    def of(level: int, part: Part) -> Any:
        seconds = PREFILL_S if part.phase == "prefill" else TOKEN_S + 10e-6 * part.past
        return commands_of(toys.table([{"compute": seconds, "bytes": 1e6}]), [0], toys.on(2))

    return of


def script(**more: Any) -> Conversation:
    return Conversation(256, 20, 30, 0.5, **more)


def sleepy(toys: SimpleNamespace) -> SoC:
    """The NPU sleeps after 100 ms."""
    raw = toys.soc().model_dump()
    asleep = {"after_s": {"value": 0.1, "estimated": "test"}, "exit_s": {"value": 5e-3, "estimated": "test"}}
    raw["processors"][2]["idle_states"] = [{"name": "off", **asleep}]
    return SoC.model_validate(raw)


def camera(toys: SimpleNamespace, queue: int, seconds: float, rate: float = 30.0, priority: int = 0) -> Stream:
    table = toys.table([{"compute": seconds, "bytes": 1e6}])
    return Stream("camera", commands_of(table, [0], toys.on(queue)), 1 / rate, 1 / rate, priority)


def beside(
    toys: SimpleNamespace, path: str, *streams: Stream, duration_s: float = 20.0, priority: int = 1, said: Any = None, **conditions: Any
) -> SharedSimulation:
    talk = Talk("chat", Jobs(said or script(), parts(toys)), Part("decode", 1, 64), priority)
    table = toys.table([{"compute": 1e-3}])
    return simulate_streams(
        table, conditions.pop("soc", None) or toys.soc(), streams, Conditions(**{"thermal": False, **conditions}), duration_s=duration_s,
        talk=talk, path=path,  # type: ignore[arg-type]
    )  # fmt: skip


def alone_and_shared(toys: SimpleNamespace, path: str, **conditions: Any) -> tuple[Simulation, SharedSimulation]:
    soc = toys.soc(trip_c=45.0, polling_s=0.1, scale=0.2)
    table = toys.table([{"compute": 10e-3, "bytes": 1e6}])
    jobs = Jobs(script(), parts(toys))
    alone = simulate(table, soc, [0], toys.on(2), jobs=jobs, path=path, duration_s=20.0, ambient_c=36.0, **conditions)  # type: ignore[arg-type]
    return alone, beside(toys, path, soc=soc, ambient_c=36.0, **conditions)


@BOTH
def test_alone_it_is_the_chat_of_the_path_for_jobs(toys: SimpleNamespace, path: str) -> None:
    """Every turn ends at the same time; so do tokens and energy."""
    alone, shared = alone_and_shared(toys, path, thermal=False)
    a, b = alone.jobs, shared.device.jobs
    assert a is not None and b is not None and len(a.done) > 10
    assert [(d.job.past, d.job.stages) for d in b.done] == [(d.job.past, d.job.stages) for d in a.done]
    assert [d.first_s for d in b.done] == pytest.approx([d.first_s for d in a.done], rel=1e-9)
    assert [d.ended_s for d in b.done] == pytest.approx([d.ended_s for d in a.done], rel=1e-9)
    assert b.tokens == a.tokens and shared.device.trace.counters["rate/tokens"].values
    assert shared.device.energy.total == pytest.approx(alone.energy.total, rel=1e-9)


@BOTH
def test_a_prompt_after_a_rest_is_charged_once(toys: SimpleNamespace, path: str) -> None:
    """40 answers of a token; the NPU sleeps between them and takes 5 ms to come back, at 2 W at work and 0.2 W of leakage throughout."""
    run = beside(toys, path, soc=sleepy(toys), said=said_at(0.5, 1))
    jobs = run.device.jobs
    assert jobs is not None and len(jobs.done) == 40
    work_s = sum(PREFILL_S + TOKEN_S + 10e-6 * d.job.stages[-1].part.past for d in jobs.done)
    assert run.device.energy.dynamic["npu"] == pytest.approx(2.0 * work_s)
    assert run.device.energy.leakage["npu"] == pytest.approx(0.2 * (work_s + 39 * 5e-3))


def test_beside_rare_frames_on_its_queue_a_prompt_is_charged_once(toys: SimpleNamespace) -> None:
    """Two frames of 10 ms a second: which of the two has to wake the NPU up depends on who comes when."""
    full, fast = (
        beside(toys, path, camera(toys, 2, 10e-3, 2.0), soc=sleepy(toys), said=said_at(0.5373, 1), duration_s=30.0).device
        for path in ("full", "multirate")
    )
    assert fast.energy.dynamic["npu"] == pytest.approx(full.energy.dynamic["npu"], rel=0.01)


def said_at(every_s: float, generate: int) -> Conversation:
    """Conversations of a turn each."""
    return Conversation(256, said=[Said(every_s * k, 20, generate, 0) for k in range(100)])


@BOTH
def test_alone_it_throttles_as_there(toys: SimpleNamespace, path: str) -> None:
    """The full paths are one; on the other, power is a mean over a part, and polls of the governor see no ripple."""
    alone, shared = alone_and_shared(toys, path, thermal=True)
    a, b = alone.jobs, shared.device.jobs
    assert a is not None and b is not None
    assert alone.throttling.happened and shared.device.throttling.happened
    within = 1e-9 if path == "full" else 0.02
    assert [d.ended_s for d in b.done] == pytest.approx([d.ended_s for d in a.done], rel=within)
    assert shared.device.energy.total == pytest.approx(alone.energy.total, rel=within)


@BOTH
def test_on_queues_of_their_own_nobody_waits(toys: SimpleNamespace, path: str) -> None:
    """Little traffic, other queues: the turns are those of the chat alone, and no frame is late."""
    run, alone = beside(toys, path, camera(toys, 0, 10e-3)), beside(toys, path)
    a, b = alone.device.jobs, run.device.jobs
    assert a is not None and b is not None
    assert [d.ended_s for d in b.done] == pytest.approx([d.ended_s for d in a.done])
    assert run.streams[0].missed == 0.0 and run.streams[0].arrived == pytest.approx(600, abs=1)


@BOTH
def test_frames_on_the_same_queue_slow_tokens_by_their_share(toys: SimpleNamespace, path: str) -> None:
    """Frames of 10 ms, 30 a second, go first but interrupt nothing.

    A token of about 8 ms takes 1 / (1 - 0.3) as long on average, and a first token 60 ms after what is left of a frame that
    has begun: 5 ms in 0.3 of the cases.
    """
    asked = [Said(1.2373 * k, 20, 30, 0) for k in range(48)]  # at moments of their own between frames
    run = beside(toys, path, camera(toys, 2, 10e-3), duration_s=60.0, said=Conversation(256, said=asked))
    alone = beside(toys, path, duration_s=60.0, said=Conversation(256, said=asked))
    a, b = alone.device.jobs, run.device.jobs
    assert a is not None and b is not None

    def mean(jobs: Any, begin: str, end: str) -> float:
        times: list[float] = [getattr(d, end) - getattr(d, begin) for d in jobs.done]
        return sum(times) / len(times)

    assert mean(b, "first_s", "ended_s") == pytest.approx(mean(a, "first_s", "ended_s") / 0.7, rel=0.03)
    assert mean(b, "began_s", "first_s") == pytest.approx(PREFILL_S + 0.3 * 5e-3, abs=1.5e-3)
    assert max(run.streams[0].latencies_s) > 10e-3 + 0.8 * TOKEN_S  # a token that has begun goes on
    assert run.streams[0].arrived == pytest.approx(1800, abs=1)


def test_both_paths_agree_beside_a_camera(toys: SimpleNamespace) -> None:
    """Tokens, energy, misses and the hottest, while the governor slows the NPU that both are on."""
    soc = toys.soc(trip_c=45.0, polling_s=0.1, scale=0.2)
    full, fast = (
        beside(
            toys, path, camera(toys, 2, 10e-3), soc=soc, thermal=True, ambient_c=38.0, said=Conversation(256, 40, 60, 1.0), duration_s=30.0
        )
        for path in ("full", "multirate")
    )
    assert full.device.throttling.happened and fast.device.path == "multirate"
    a, b = full.device.jobs, fast.device.jobs
    assert a is not None and b is not None
    assert b.tokens == pytest.approx(a.tokens, rel=0.02)
    assert fast.device.energy.total == pytest.approx(full.device.energy.total, rel=0.01)
    assert fast.streams[0].missed == pytest.approx(full.streams[0].missed, abs=0.03)
    for node, hottest in full.device.peak_temperatures_c.items():
        assert fast.device.peak_temperatures_c[node] == pytest.approx(hottest, abs=1.1), node


@pytest.mark.parametrize(("chat_first", "missed"), [(False, 0.0), (True, 1.0)])
def test_who_goes_first_says_who_waits(toys: SimpleNamespace, chat_first: bool, missed: float) -> None:
    """Prefills of 60 ms back to back: frames that go after them are all late or dropped while they last."""
    said = Conversation(256, 250, 1, 0.0)
    frames = camera(toys, 0, 1e-3) if not chat_first else camera(toys, 2, 1e-3)
    run = beside(toys, "multirate", frames, priority=-1 if chat_first else 1, said=said, duration_s=5.0)
    assert run.streams[0].missed == pytest.approx(missed, abs=0.75 if chat_first else 0.0)
    if chat_first:
        assert run.streams[0].missed > 0.25


@BOTH
def test_a_chat_that_never_gets_the_queue_says_nothing(toys: SimpleNamespace, path: str) -> None:
    """Three cameras ask for 180 % of the queue and go first."""
    cameras = [camera(toys, 2, 6e-3, 100.0, k) for k in range(3)]
    run = beside(toys, path, *cameras, duration_s=3.0, priority=3, said=Conversation(256, 20, 30, 0.0))
    assert run.device.jobs is not None
    assert run.device.jobs.tokens == 0 and not run.device.jobs.done
    assert sum(len(o.latencies_s) for o in run.streams) == pytest.approx(500, rel=0.02)


@BOTH
def test_turns_of_a_list_wait_for_each_other(toys: SimpleNamespace, path: str) -> None:
    said = Conversation(256, said=[Said(0.0, 20, 10), Said(0.05, 20, 10), Said(2.0, 20, 10, 0)])
    run = beside(toys, path, camera(toys, 0, 5e-3), duration_s=4.0, said=said)
    assert run.device.jobs is not None
    done = run.device.jobs.done
    assert [d.job.past for d in done] == [0, 30, 0]
    assert done[1].began_s == pytest.approx(done[0].ended_s) and done[2].began_s == pytest.approx(2.0)
