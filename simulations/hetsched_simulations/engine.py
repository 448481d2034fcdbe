"""The processes of one inference: a host thread that submits, one in-order command queue per queue, fences between them.

The host submits every segment of an inference in the plan's order at once: submission costs nothing beyond the
segment's own ``launch_s``. A segment starts when its queue is free and the merged fence of what feeds it, as seen
``sync_s`` later, has signalled. It signals its own fence when it ends. The host returns from an inference when all
segments have ended and it has seen those that write the graph's outputs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from simpy import Environment, Store
from simpy.events import Event

from hetsched.trace import Instant, Span
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


@dataclass(frozen=True, slots=True)
class _Submitted:
    command: Command
    iteration: int
    ready: Fence
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


class Engine:
    """Queues over one machine, ready to run inferences."""

    def __init__(self, env: Environment, machine: Machine, commands: Sequence[Command], log: EventLog) -> None:
        self.env, self.machine, self.commands, self.log = env, machine, tuple(commands), log
        self._stores = {q: Store(env) for q in sorted({c.queue for c in commands})}
        for q in self._stores:
            env.process(self._queue(q))

    def inference(self, iteration: int) -> Generator[Event, Any, None]:
        """Submit one inference and wait for it (``yield from``)."""
        done: list[Fence] = []
        for c, ready in submitted(self.env, self.commands, done):
            self._stores[c.queue].put(_Submitted(c, iteration, ready, done[-1]))
        yield seen(self.env, self.commands, done, f"inference {iteration}").wait()

    def _queue(self, queue: int) -> Generator[Event, Any, None]:
        while True:
            s: _Submitted = yield self._stores[queue].get()
            picked = float(self.env.now)
            yield s.ready.wait()
            start = float(self.env.now)
            if start > picked:
                self._span(s, "wait", s.command.name, picked)
            for work in s.command.work:
                began = float(self.env.now)
                yield self.machine.run(queue, work)
                if self.log.op_spans:
                    self._span(s, work.kind, work.name, began, work.seconds)
            self._span(s, "segment", s.command.name, start, s.command.seconds)
            s.done.signal()
            if s.iteration < self.log.iterations:
                self.log.fences.append(Instant("fence", s.done.name, float(self.env.now), f"iteration {s.iteration}"))

    def _span(self, s: _Submitted, kind: Any, name: str, start: float, predicted: float | None = None) -> None:
        if s.iteration < self.log.iterations:
            queue = self.log.queues[s.command.queue]
            self.log.spans.append(Span(queue, kind, name, start, float(self.env.now), s.command.index, s.iteration, predicted))
