"""Fences: signalled once, many waiters, merged, waited for with a timeout."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from simpy import Environment

from hetsched.errors import ExecutionError
from hetsched_simulations.fences import Fence


def test_everyone_who_waits_wakes_when_it_signals_and_late_comers_do_not_wait() -> None:
    env, log = Environment(), []
    fence = Fence(env, "f")

    def waiter(name: str, arrives: float) -> Generator[Any, Any, None]:
        yield env.timeout(arrives)
        yield fence.wait()
        log.append((env.now, name))

    def signaller() -> Generator[Any, Any, None]:
        yield env.timeout(3)
        fence.signal()

    for name, arrives in (("a", 0), ("b", 1), ("late", 5)):
        env.process(waiter(name, arrives))
    env.process(signaller())
    env.run()
    assert log == [(3, "a"), (3, "b"), (5, "late")]
    assert fence.signalled_at_s == 3


def test_a_fence_signals_only_once() -> None:
    fence = Fence(Environment(), "twice")
    fence.signal()
    with pytest.raises(ExecutionError, match="'twice' was already signalled at 0 s"):
        fence.signal()


def test_a_merged_fence_signals_with_the_last_and_the_merge_of_nothing_at_once() -> None:
    env = Environment()
    parts = [Fence(env, str(i)) for i in range(3)]
    merged = Fence.merge(env, parts)
    nothing = Fence.merge(env, [])

    def signaller(fence: Fence, at: float) -> Generator[Any, Any, None]:
        yield env.timeout(at)
        fence.signal()

    for fence, at in zip(parts, (4, 1, 2), strict=True):
        env.process(signaller(fence, at))
    assert nothing.signalled
    assert not merged.signalled
    env.run()
    assert merged.signalled_at_s == 4
    assert Fence.merge(env, parts[:1]) is parts[0]


def test_merging_fences_that_have_signalled_signals_now() -> None:
    env = Environment()
    parts = [Fence(env), Fence(env)]
    for p in parts:
        p.signal()
    env.run(until=7)
    merged = Fence.merge(env, parts)
    env.run()
    assert merged.signalled_at_s == 7


def test_a_wait_with_a_timeout_tells_whether_it_signalled() -> None:
    env, log = Environment(), []
    fence = Fence(env)

    def waiter(timeout: float) -> Generator[Any, Any, None]:
        signalled = yield from fence.wait_for(timeout)
        log.append((env.now, timeout, signalled))

    def signaller() -> Generator[Any, Any, None]:
        yield env.timeout(2)
        fence.signal()

    env.process(signaller())
    for timeout in (1, 5):
        env.process(waiter(timeout))
    env.run()
    env.process(waiter(1))
    env.run()
    assert log == [(1, 1, False), (2, 5, True), (5, 1, True)]


def test_a_fence_is_seen_later_where_noticing_takes_time() -> None:
    env = Environment()
    fence = Fence(env)
    seen = fence.after(0.5)
    assert fence.after(0.0) is fence

    def signaller() -> Generator[Any, Any, None]:
        yield env.timeout(2)
        fence.signal()

    env.process(signaller())
    env.run()
    assert seen.signalled_at_s == 2.5
    late = fence.after(0.25)
    env.run()
    assert late.signalled_at_s == 2.75
