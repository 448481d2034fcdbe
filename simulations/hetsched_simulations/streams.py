"""Several models at once: streams of inferences that share the queues, by priority, and the memory bus.

Every stream submits an inference per period. A queue runs the commands of one stream in their order; among the streams whose next
command is ready it takes the one of the highest priority, then the one that arrived first. Queues that share cores take turns by
the same rule. Nothing is interrupted: a segment runs to its end, as command buffers and delegates do. What arrives while the
stream's last inference is still on its way is dropped, as a camera drops a frame.

A chat beside them is no stream: its next job comes when the last has ended. Its parts are inferences like all others to the queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from simpy import Environment
from simpy.events import Event, Process

from hetsched.errors import OptionError
from hetsched.trace import Instant, Span, Trace
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.engine import seen, submitted
from hetsched_simulations.fences import Fence, when
from hetsched_simulations.jobs import ANSWERING, Done, JobLog, Jobs, Part, Piece
from hetsched_simulations.machine import Host, Intervals, Machine
from hetsched_simulations.workload import Command

TRACED = 16
"""Inferences of each stream whose spans are kept."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A model that arrives every ``period_s`` and should be done ``deadline_s`` later; a smaller ``priority`` goes first."""

    name: str
    commands: tuple[Command, ...]
    period_s: float
    deadline_s: float
    priority: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Talk:
    """A chat beside streams, with a rank among them. ``usual`` is the part that stands for it where a policy weighs levels."""

    name: str
    jobs: Jobs
    usual: Part
    priority: int = 0


@dataclass(slots=True)
class StreamOutcome:
    """Latencies of the inferences that finished (arrival to end, in seconds), those over the deadline, those dropped."""

    latencies_s: list[float] = field(default_factory=list)
    late: int = 0
    dropped: int = 0

    @property
    def arrived(self) -> int:
        """All that arrived and were finished or dropped."""
        return len(self.latencies_s) + self.dropped

    @property
    def missed(self) -> float:
        """Share of arrivals that were late or dropped."""
        return (self.late + self.dropped) / max(1, self.arrived)


@dataclass(frozen=True, slots=True)
class Shared:
    """What a shared run gave: an outcome a stream, the share of the time that each queue worked, and the trace."""

    streams: tuple[StreamOutcome, ...]
    utilisation: tuple[float, ...]
    trace: Trace


@dataclass(frozen=True, slots=True)
class _Waiting:
    stream: int
    arrived_s: float
    iteration: int
    command: Command
    ready: Fence
    done: Fence


def run_streams(
    bus: Bus, queues: Sequence[str], streams: Sequence[Stream], duration_s: float, *, cores: Sequence[Collection[int]] = (),
    model: str = "", soc: str = "",
) -> Shared:  # fmt: skip
    """Run all streams from a common start for a while; every one arrives at time 0 and once a period.

    Args:
        bus: the memory system.
        queues: names of the queues that the commands refer to.
        streams: what arrives.
        duration_s: arrivals stop then; what is on its way is finished.
        cores: of each queue; those that have some in common do not run at once. Empty: no two have.
        model: for the trace.
        soc: for the trace.

    Raises:
        OptionError: a period, a deadline or the duration is not positive.
    """
    if duration_s <= 0 or any(s.period_s <= 0 or s.deadline_s <= 0 for s in streams):
        raise OptionError("periods, deadlines and the duration of a shared run must be positive")
    env = Environment()
    busy = np.zeros(len(queues))

    def observe(passed: Intervals) -> None:
        nonlocal busy
        busy = busy + passed.seconds @ passed.busy

    machine = Machine(env, bus, [1.0] * len(queues), observe, Host())
    trace = Trace("simulated", model, soc, tuple(queues))
    outcomes, arrivals = arrive(SharedQueues(env, machine, streams, trace, cores), duration_s)
    env.run(until=env.all_of(arrivals))
    machine.settle()
    trace.spans.sort(key=lambda s: (s.start_s, s.end_s))
    return Shared(outcomes, tuple((busy / max(float(env.now), duration_s)).tolist()), trace)


def arrive(queues: SharedQueues, duration_s: float, since_s: float = 0.0) -> tuple[tuple[StreamOutcome, ...], list[Process]]:
    """Let the inputs of all streams arrive for so long.

    Returns:
        What becomes of those that arrive from ``since_s`` on, and the processes that end with the last inference of each stream.
    """
    streams = [s for s in queues.streams if isinstance(s, Stream)]
    outcomes = tuple(StreamOutcome() for _ in streams)
    arrivals = [_arrivals(queues, k, s, outcomes[k], duration_s, since_s) for k, s in enumerate(streams)]
    return outcomes, [queues.env.process(a) for a in arrivals]


def _arrivals(
    queues: SharedQueues, index: int, stream: Stream, outcome: StreamOutcome, duration_s: float, since_s: float
) -> Generator[Event, Any, None]:
    """Submit an inference a period; the process ends when the last one has."""
    env, arrived = queues.env, 0
    running: Fence | None = None
    while arrived * stream.period_s < duration_s * (1 - 1e-9):
        due = arrived * stream.period_s
        if due > float(env.now):
            yield env.timeout(due - float(env.now))
        counts = due >= since_s * (1 - 1e-9)
        if running is not None and not running.signalled:
            outcome.dropped += counts
        else:
            running = queues.submit(index, arrived, stream.commands)
            if counts:
                env.process(_watch(queues, stream, running, outcome, arrived))
        arrived += 1
    if running is not None:
        yield running.wait()


def _watch(queues: SharedQueues, stream: Stream, done: Fence, outcome: StreamOutcome, iteration: int) -> Generator[Event, Any, None]:
    began = float(queues.env.now)
    yield done.wait()
    took = float(queues.env.now) - began
    outcome.latencies_s.append(took)
    if took > stream.deadline_s * (1 + 1e-9):
        outcome.late += 1
        queues.trace.instants.append(Instant("deadline", f"{stream.name} missed", float(queues.env.now), f"inference {iteration}"))


def repeat(
    queues: SharedQueues, index: int, commands: tuple[Command, ...], ends_s: list[float], until_s: float, *,
    every_s: float = 0.0, rested_s: float = 0.0,
) -> Generator[Event, Any, None]:  # fmt: skip
    """Repeat the same until then, back to back but not more often than ``every_s`` on average; appends when each has ended.

    Before each, queues that nobody else uses have rested for ``rested_s``.
    """
    others = {c.queue for s in queues.streams if isinstance(s, Stream) for c in s.commands}
    own = {c.queue for c in commands} - others
    while float(queues.env.now) < until_s:
        if (early_s := len(ends_s) * every_s - float(queues.env.now)) > 0:
            yield queues.env.timeout(early_s)
        queues.machine.rest(own, rested_s)
        yield queues.submit(index, len(ends_s), commands).wait()
        ends_s.append(float(queues.env.now))


def converse(queues: SharedQueues, index: int, talk: Talk, log: JobLog) -> Generator[Event, Any, None]:
    """The jobs of a chat, each repetition of each of their stages op by op."""
    env, jobs, iteration = queues.env, talk.jobs, count()
    while (job := jobs.script.next(float(env.now), jobs.level)) is not None:
        yield env.timeout(max(job.arrived_s - float(env.now), 0.0))
        began, ends = float(env.now), list[float]()
        for part, times, each in job.stages:
            for _ in range(times):
                start = float(env.now)
                yield queues.submit(index, next(iteration), jobs.parts(jobs.level, part)).wait()
                if part.phase in ANSWERING:
                    log.pieces.append(Piece(part, start, float(env.now), 1, each))
            ends.append(float(env.now))
        log.done.append(Done(job, began, ends[0], ends[-1], jobs.level))


class SharedQueues:
    """One command list a queue and stream; a queue takes the ready head of the highest priority."""

    def __init__(
        self, env: Environment, machine: Machine, streams: Sequence[Stream | Talk], trace: Trace, cores: Sequence[Collection[int]]
    ) -> None:
        self.env, self.machine, self.streams, self.trace = env, machine, streams, trace
        used = range(len(trace.queues))
        self.rivals = {q: [o for o in used if cores and o != q and {*cores[q]} & {*cores[o]}] for q in used}
        self.running: set[int] = set()
        self.lists = {q: [deque[_Waiting]() for _ in streams] for q in used}
        self.woken = {q: env.event() for q in used}
        for q in used:
            env.process(self._serve(q))

    def submit(self, stream: int, iteration: int, commands: tuple[Command, ...]) -> Fence:
        """Submit one inference; the fence that signals when the host has seen its results."""
        done: list[Fence] = []
        now = float(self.env.now)
        for c, ready in submitted(self.env, commands, done):
            self.lists[c.queue][stream].append(_Waiting(stream, now, iteration, c, ready, done[-1]))
            when(ready.wait(), lambda _, queue=c.queue: self._wake(queue))
        return seen(self.env, commands, done, f"inference {iteration}")

    def _wake(self, queue: int) -> None:
        if not self.woken[queue].triggered:
            self.woken[queue].succeed()

    def _next(self, queue: int) -> _Waiting | None:
        """The ready command that the queue would take."""
        heads = [row[0] for row in self.lists[queue] if row and row[0].ready.signalled]
        return min(heads, key=self._rank, default=None)

    def _rank(self, w: _Waiting) -> tuple[int, float, int]:
        return self.streams[w.stream].priority, w.arrived_s, w.stream

    def _gives_way(self, queue: int, w: _Waiting) -> bool:
        """Whether a queue with the same cores runs, or has something that goes first."""
        waiting = (self._next(o) for o in self.rivals[queue])
        return any(o in self.running for o in self.rivals[queue]) or any(v is not None and self._rank(v) < self._rank(w) for v in waiting)

    def _serve(self, queue: int) -> Generator[Event, Any, None]:
        while True:
            w = self._next(queue)
            if w is None or self._gives_way(queue, w):
                self.woken[queue] = self.env.event()
                yield self.woken[queue]
                continue
            self.lists[queue][w.stream].popleft()
            self.running.add(queue)
            began = float(self.env.now)
            yield self.machine.run(queue, w.command.work)
            self.running.discard(queue)
            for rival in self.rivals[queue]:
                self._wake(rival)
            if w.iteration < TRACED:
                name = f"{self.streams[w.stream].name}: {w.command.name}"
                end = float(self.env.now)
                span = Span(self.trace.queues[queue], w.command.kind, name, began, end, w.command.segment, w.iteration, w.command.seconds)
                self.trace.spans.append(span)
            w.done.signal()
