"""The processes of one inference: a host thread that submits, one in-order command queue per queue, fences between them.

The DMA engine, where there is one, is such a queue too, whose commands are copies. The host submits every segment of an inference, and
the copies for it before, in the plan's order at once: submission costs nothing beyond the segment's own ``launch_s``. A segment
starts when its queue is free and the merged fence of what feeds it, as seen
``sync_s`` later, has signalled. It signals its own fence when it ends. The host returns from an inference when all
segments have ended and it has seen those that write the graph's outputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from simpy import Environment
from simpy.events import Event

from hetsched.trace import Instant, Kind, Span
from hetsched_simulations.fences import Fence
from hetsched_simulations.machine import Machine
from hetsched_simulations.workload import Command


@dataclass(slots=True)
class EventLog:
    """Spans and fences of the iterations below ``iterations``; ``op_spans`` off leaves the segments."""

    queues: tuple[str, ...]
    iterations: int
    op_spans: bool = True
    spans: list[Span] = field(default_factory=list)
    fences: list[Instant] = field(default_factory=list)


class _Submitted(NamedTuple):
    command: Command
    iteration: int
    waits: list[tuple[Fence, float]]
    done: Fence


def submitted(env: Environment, commands: Sequence[Command], done: list[Fence]) -> Iterator[tuple[Command, Fence]]:
    """Each command of an inference with the fence that it waits for; the fence of its end is appended to ``done`` before."""
    for c in commands:
        ready = Fence.merge(env, [done[p].after(sync) for p, sync in c.waits], f"ready {c.index}")
        done.append(Fence(env, f"segment {c.index} {c.name}"))
        yield c, ready


def seen(env: Environment, commands: Sequence[Command], done: Sequence[Fence], name: str) -> Fence:
    """The fence that signals when all commands have ended and the host has seen those that write the graph's outputs."""
    noticed = [f if c.output_sync_s is None else f.after(c.output_sync_s) for f, c in zip(done, commands, strict=True)]
    return Fence.merge(env, noticed, name)


class CommandQueue:
    """What was submitted to a queue and has not begun, in order."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self._waiting: deque[_Submitted] = deque()
        self._filled: Event | None = None

    def put(self, submitted: _Submitted) -> None:
        """Submit a command."""
        self._waiting.append(submitted)
        if self._filled is not None:
            self._filled.succeed()
            self._filled = None

    def next(self) -> _Submitted | None:
        """The next command, if there is one."""
        return self._waiting.popleft() if self._waiting else None

    def get(self) -> Generator[Event, Any, _Submitted]:
        """The next command (``yield from``), once there is one."""
        if not self._waiting:
            self._filled = self.env.event()
            yield self._filled
        return self._waiting.popleft()


class Engine:
    """Queues over one machine, ready to run inferences."""

    def __init__(self, env: Environment, machine: Machine, commands: Sequence[Command], log: EventLog) -> None:
        self.env, self.machine, self.commands, self.log = env, machine, tuple(commands), log
        self._noticed = [c.output_sync_s or 0.0 for c in reversed(self.commands)]
        self._queues = {q: CommandQueue(env) for q in sorted({c.queue for c in commands})}
        for q in self._queues:
            env.process(self._queue(q))

    def inference(self, iteration: int) -> Generator[Event, Any, None]:
        """Submit one inference and wait for it (``yield from``)."""
        env, done = self.env, list[Fence]()
        for c in self.commands:
            fence = Fence(env, c.name)
            waits = [(done[p], sync_s) for p, sync_s in c.waits] if c.waits else []
            self._queues[c.queue].put(_Submitted(c, iteration, waits, fence))
            done.append(fence)
        # The last first: when it has signalled, most have.
        yield from Fence.wait_all(env, list(zip(reversed(done), self._noticed, strict=True)))

    def _queue(self, queue: int) -> Generator[Event, Any, None]:
        env, commands, traced = self.env, self._queues[queue], self.log.iterations
        while True:
            s = commands.next() or (yield from commands.get())
            picked = env._now  # what env.now returns: this runs at every turn
            if s.waits:
                yield from Fence.wait_all(env, s.waits)
            start = env._now
            ends = yield self.machine.run(queue, s.command.work)
            s.done.signal()
            if s.iteration < traced:
                if start > picked:
                    self._span(s, "wait", s.command.name, picked, start)
                self._spans(s, start, ends)

    def _spans(self, s: _Submitted, start_s: float, ends_s: Sequence[float]) -> None:
        """Those of a segment whose pieces ended then, or that of a copy."""
        whole, now = s.command.kind == "segment", float(self.env.now)
        began = start_s + self.machine.woken_s[s.command.queue]
        if self.log.op_spans and began > start_s:
            self._span(s, "launch", "wake", start_s, began)
        for work, end in zip(s.command.work, ends_s, strict=True):
            if self.log.op_spans and whole:
                self._span(s, work.kind, work.name, began, end, work.seconds)
            began = end
        if self.log.op_spans or whole:
            self._span(s, s.command.kind, s.command.name, start_s, now, s.command.seconds)
        self.log.fences.append(Instant("fence", f"segment {s.command.segment} {s.command.name}", now, f"iteration {s.iteration}"))

    def _span(self, s: _Submitted, kind: Kind, name: str, start_s: float, end_s: float, predicted_s: float | None = None) -> None:
        queue, segment = self.log.queues[s.command.queue], s.command.segment
        self.log.spans.append(Span(queue, kind, name, start_s, end_s, segment, s.iteration, predicted_s))
