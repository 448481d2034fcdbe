"""Fences with the semantics of Android sync files: signalled once, waited for by many, merged, waited for with a timeout.

A sync file never goes back to unsignalled, so a fence stands for one point of one timeline: every inference makes new
ones. A merged fence signals when the last of its parts has; its time is the latest of theirs. A fence with no parts is
signalled from the beginning, as the merge of nothing is.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from simpy import Environment
from simpy.events import AllOf, Event, Timeout

from hetsched.errors import ExecutionError


class Fence:
    """One point in time that work waits for."""

    __slots__ = ("_event", "env", "name", "signalled_at_s")

    def __init__(self, env: Environment, name: str = "") -> None:
        self.env = env
        self.name = name
        self.signalled_at_s: float | None = None
        self._event = Event(env)

    @property
    def signalled(self) -> bool:
        """Whether :meth:`signal` has happened."""
        return self.signalled_at_s is not None

    def signal(self) -> None:
        """Signal; everything that waits goes on at this same time.

        Raises:
            ExecutionError: it had been signalled before.
        """
        if self.signalled_at_s is not None:
            raise ExecutionError(f"fence {self.name!r} was already signalled at {self.signalled_at_s:.9g} s: make one fence per use")
        self.signalled_at_s = self.env._now  # what env.now returns: this runs at every turn
        happen(self._event, self)

    def wait(self) -> Event:
        """An event to ``yield``: it fires when the fence signals, or at once if it has."""
        return self._event

    def wait_for(self, timeout_s: float) -> Generator[Event, Any, bool]:
        """Wait at most ``timeout_s`` (``yield from``): True if it signalled, False if the time ran out, as ``sync_wait`` has it.

        A fence that signals at the very end of the timeout counts as signalled.
        """
        if not self.signalled:
            yield self._event | self.env.timeout(timeout_s)
        return self.signalled

    def after(self, delay_s: float) -> Fence:
        """The same fence as seen ``delay_s`` later by a waiter that needs that long to notice (``sync_s``)."""
        if delay_s <= 0:
            return self
        seen = Fence(self.env, self.name)

        def hear(_: Event) -> None:
            self.env.timeout(delay_s).callbacks.append(lambda _: seen.signal())

        when(self._event, hear)
        return seen

    @staticmethod
    def wait_all(env: Environment, waits: Sequence[tuple[Fence, float]]) -> Generator[Event, Any, None]:
        """Wait until all of these fences are seen, each its delay later (``yield from``): for the merge of what :meth:`after` gives."""
        ready_s = 0.0
        for fence, delay_s in waits:
            if fence.signalled_at_s is None:
                yield fence._event
            assert fence.signalled_at_s is not None
            seen_s = fence.signalled_at_s + delay_s
            if seen_s > ready_s:
                ready_s = seen_s
        rest_s = ready_s - env._now
        if rest_s > 0:
            yield Timeout(env, rest_s)

    @classmethod
    def merge(cls, env: Environment, fences: Sequence[Fence], name: str = "") -> Fence:
        """A fence that signals when all of ``fences`` have (``SYNC_IOC_MERGE``); none: signalled already."""
        if len(fences) == 1:
            return fences[0]
        merged = cls(env, name)
        if not fences:
            merged.signal()
        else:
            when(AllOf(env, [f.wait() for f in fences]), lambda _: merged.signal())
        return merged


def happen(event: Event, value: Any) -> None:
    """Let an event happen within the present one, without a turn of its own: what waits for it goes on before the caller does."""
    callbacks = event.callbacks
    event.callbacks = None  # type: ignore[assignment]
    event._ok, event._value = True, value
    for call in callbacks:
        call(event)


def when(event: Event, call: Any) -> None:
    """Call when the event has been processed; at once if it already was."""
    if event.processed:
        call(event)
    else:
        event.callbacks.append(call)
