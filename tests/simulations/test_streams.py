"""Several models that share the queues: priorities, order within a stream, deadlines and drops, by hand-computed cases."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.errors import OptionError
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.streams import Stream, run_streams
from hetsched_simulations.workload import Command, Work

BUS = Bus(("cpu", "npu"), ("cpu", "npu"), (0, 1), (1e10, 1e10), (1e10, 1e10), 1e10, {})
QUEUES = ("cpu", "npu")


def command(index: int, queue: int, seconds: float, *waits: int) -> Command:
    return Command(index, queue, f"s{index}", (Work("op", f"op{index}", seconds),), tuple((p, 0.0) for p in waits), 0.0, seconds)


def stream(name: str, *commands: Command, period: float = 1.0, deadline: float = 1.0, priority: int = 0) -> Stream:
    return Stream(name, commands, period, deadline, priority)


def run(*streams: Stream, duration: float = 1.0):
    return run_streams(BUS, QUEUES, streams, duration)


def test_the_higher_priority_goes_first_and_nothing_is_interrupted():
    slow = stream("slow", command(0, 1, 0.4), priority=1)
    fast = stream("fast", command(0, 1, 0.1), priority=0, period=0.25, deadline=0.2)
    got = run(slow, fast)
    # fast at 0 first, then slow from 0.1 to 0.5; the arrival at 0.25 waits until 0.5 and is late, that of 0.5 finds it running
    assert got.streams[0].latencies_s == pytest.approx([0.5])
    assert got.streams[1].latencies_s == pytest.approx([0.1, 0.35, 0.1])
    assert (got.streams[1].late, got.streams[1].dropped) == (1, 1)
    assert got.streams[1].missed == pytest.approx(2 / 4)
    assert got.utilisation[1] == pytest.approx((0.4 + 3 * 0.1) / 1.0)
    assert [i.name for i in got.trace.instants] == ["fast missed"]


def test_other_queues_are_not_waited_for():
    a = stream("a", command(0, 1, 0.2), command(1, 0, 0.3, 0), priority=0)
    b = stream("b", command(0, 1, 0.2), priority=1)
    got = run(a, b)
    assert got.streams[0].latencies_s == pytest.approx([0.5])
    assert got.streams[1].latencies_s == pytest.approx([0.4])  # on the NPU while a is on the CPU


def test_queues_that_share_cores_take_turns_by_priority():
    a = stream("a", command(0, 0, 0.2), command(1, 1, 0.1, 0), priority=1)
    b = stream("b", command(0, 1, 0.3), priority=0)
    apart = run(a, b)
    assert (apart.streams[0].latencies_s, apart.streams[1].latencies_s) == (pytest.approx([0.4]), pytest.approx([0.3]))
    got = run_streams(BUS, QUEUES, (a, b), 1.0, cores=((0, 1), (1, 2)))
    # b first on the shared core until 0.3, then a's two commands, one after the other
    assert (got.streams[0].latencies_s, got.streams[1].latencies_s) == (pytest.approx([0.6]), pytest.approx([0.3]))
    spans = sorted((s.start_s, s.end_s) for s in got.trace.spans)
    assert all(end <= begin + 1e-12 for (_, end), (begin, _) in itertools.pairwise(spans))
    other = run_streams(BUS, QUEUES, (a, b), 1.0, cores=((0, 1), (2, 3)))
    assert other.streams[0].latencies_s == apart.streams[0].latencies_s


def test_a_stream_alone_takes_its_own_time():
    one = stream("one", command(0, 0, 0.1), command(1, 1, 0.2, 0), command(2, 0, 0.1, 1), period=0.5)
    got = run(one, duration=2.0)
    assert got.streams[0].latencies_s == pytest.approx([0.4] * 4)
    assert got.streams[0].missed == 0


def test_traffic_is_shared():
    moving = Work("op", "move", 0.0, 0.0, 0.2, 2e9, 1e10)
    streams = [Stream(n, (Command(0, q, n, (moving,), (), 0.0, 0.2),), 1.0, 1.0, 0) for n, q in (("a", 0), ("b", 1))]
    got = run(*streams)
    assert [s.latencies_s for s in got.streams] == [pytest.approx([0.4]), pytest.approx([0.4])]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9), st.booleans()), min_size=1, max_size=4), st.integers(1, 3))
def test_queues_do_one_thing_at_a_time_and_everything_that_arrives_is_accounted_for(given_streams, periods):
    streams = []
    for k, (work, period, both) in enumerate(given_streams):
        commands = (command(0, 1, work / 100), command(1, 0, 0.01, 0)) if both else (command(0, 1, work / 100),)
        streams.append(stream(f"m{k}", *commands, period=period / 50, deadline=period / 50, priority=k % 2))
    duration = periods * max(s.period_s for s in streams)
    got = run(*streams, duration=duration)
    for s, o in zip(streams, got.streams, strict=True):
        assert o.arrived == sum(1 for k in range(1000) if k * s.period_s < duration * (1 - 1e-9))
        assert all(took >= sum(c.seconds for c in s.commands) - 1e-12 for took in o.latencies_s)
    for q in QUEUES:
        own = [x for x in got.trace.spans if x.queue == q]
        assert all(a.end_s <= b.start_s + 1e-12 for a, b in itertools.pairwise(own))


def test_absurd_streams_are_refused():
    with pytest.raises(OptionError, match="must be positive"):
        run(stream("a", command(0, 0, 0.1), period=0.0))
    with pytest.raises(OptionError, match="must be positive"):
        run(stream("a", command(0, 0, 0.1)), duration=-1.0)
