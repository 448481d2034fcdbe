"""Jobs on the full path: every repetition of every stage op by op."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from typing import Any

from simpy.events import Event

from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.device import Device
from hetsched_simulations.engine import Engine, EventLog
from hetsched_simulations.full import make_way, mounted, run_until
from hetsched_simulations.jobs import ANSWERING, Done, JobLog, Jobs, Part, Piece
from hetsched_simulations.switching import Switching


def serve_full(
    device: Device, bus: Bus, jobs: Jobs, log: EventLog, *,
    duration_s: float, switching: Switching | None, progress: Callable[[float], None] | None, compiled: bool = False,
) -> tuple[JobLog, int]:  # fmt: skip
    """Run the jobs that begin within the duration, and cut the last one off: what became of them, and how many repetitions ran."""
    env, machine = mounted(device, bus, compiled)
    engines: dict[tuple[int, Part], Engine] = {}
    out, iteration = JobLog(), count()

    def at() -> int:
        return jobs.level if switching is None else switching.level

    def repetition(part: Part, each: int) -> Generator[Event, Any, float]:
        key = (at(), part)
        if key not in engines:
            engines[key] = Engine(env, machine, jobs.parts(*key), log)
        began = float(env.now)
        yield from engines[key].inference(next(iteration))
        ended = float(env.now)
        if part.phase in ANSWERING:
            out.pieces.append(Piece(part, began, ended, 1, each))
        if switching is not None and ended >= switching.next_ask_s - 1e-9:
            machine.settle()
            if switching.ask(ended, switching.slowed(ended - began, part, jobs.parts(*key))):
                yield from make_way(env, machine, device, switching)
        return ended

    def host() -> Generator[Event, Any, None]:
        while (job := jobs.script.next(float(env.now), at())) is not None:
            yield env.timeout(max(job.arrived_s - float(env.now), 0.0))
            began, ends = float(env.now), list[float]()
            for stage in job.stages:
                for _ in range(stage.times):
                    ended = yield from repetition(stage.part, stage.each)
                ends.append(ended)
            out.done.append(Done(job, began, ends[0], ends[-1], at()))
            if progress is not None:
                progress(float(env.now) / duration_s)

    env.process(host())
    run_until(env, machine, device, duration_s)
    out.done = [d for d in out.done if d.ended_s <= device.off_s + 1e-9]
    out.pieces = [p for p in out.pieces if p.end_s <= device.off_s + 1e-9]
    out.dropped = jobs.script.dropped
    return out, next(iteration)
