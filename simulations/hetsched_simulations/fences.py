"""Fences with the semantics of Android sync files: signalled once, waited for by many, merged, waited for with a timeout.

A sync file never goes back to unsignalled, so a fence stands for one point of one timeline: every inference makes new
ones. A merged fence signals when the last of its parts has; its time is the latest of theirs. A fence with no parts is
signalled from the beginning, as the merge of nothing is.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from simpy import Environment
from simpy.events import AllOf, Event

from hetsched.errors import ExecutionError


class Fence:
    """One point in time that work waits for."""

    __slots__ = ("_event", "env", "name", "signalled_at_s")

    def __init__(self, env: Environment, name: str = "") -> None:
        self.env = env
        self.name = name
        self.signalled_at_s: float | None = None
        self._event: Event = env.event()

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
        self.signalled_at_s = float(self.env.now)
        self._event.succeed(self)

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


def when(event: Event, call: Any) -> None:
    """Call when the event has been processed; at once if it already was."""
    if event.processed:
        call(event)
    else:
        event.callbacks.append(call)
