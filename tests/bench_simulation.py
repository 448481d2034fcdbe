#!/usr/bin/env python3
"""The simulator: how fast it is, and its multi-rate path against every inference op by op (``python tests/bench_simulation.py``).

Speed is CPU time of this thread. The op-level simulation (fences, contention, a DVFS governor that changes a clock every 10 ms) is
compared with a bare SimPy pipeline of the same commands: three queue processes with a store each, an event a fence, a timeout a piece
of work. Both run in turns in this process; the median of the ratios counts. Prints what | goal | measured | ok and one summary line; the
exit code is 1 if a goal is missed. Some five minutes.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "simulations"))

from conftest import make_soc, make_table, on
from simpy import Environment, Store

from hetsched.app.planned import Planned
from hetsched.app.planning import plan
from hetsched.app.simulating import Scenario, simulate
from hetsched.soc_files import load_soc
from hetsched_simulations import Simulation
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.engine import Engine, EventLog
from hetsched_simulations.machine import Host, Machine
from hetsched_simulations.workload import Command, commands_of

SOC = "snapdragon-8-gen-3"
VISION, LANGUAGE = "models/mobilenet_v2.onnx", "models/smollm2-135m-q4_1.gguf"
DEPTH, ROUNDS = 3, 9
"""Inferences in flight, and how often the two simulations take turns."""


@dataclass
class Table:
    """Rows of what | goal | measured | ok."""

    ok: list[bool] = field(default_factory=list)

    def row(self, what: str, goal: str, measured: str, ok: bool) -> None:
        """Print one."""
        print(f"{what:<74} {goal:>10} {measured:>12}  {'yes' if ok else 'NO'}", flush=True)
        self.ok.append(ok)


def cpu_s(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this thread, and what came of it."""
    began = time.thread_time()
    found = run()
    return time.thread_time() - began, found


def stages(ops: int) -> tuple[Command, ...]:
    """A chain of six segments of so many ops on three queues in turn; side by side they ask for more bandwidth than there is."""
    table = make_table(
        [{"compute": 1e-4 * (1 + i % 3), "bytes": 4e6 * (1 + i % 2), "reads": [i - 1] if i else []} for i in range(6 * ops)], sync_s=20e-6
    )
    return commands_of(table, list(range(6 * ops)), on(*[i // ops % 3 for i in range(6 * ops)]))


def bare(commands: Sequence[Command], inferences: int) -> None:
    """The bare pipeline."""
    env = Environment()
    stores = {q: Store(env) for q in sorted({c.queue for c in commands})}

    def queue(store: Store) -> Generator[Any, Any, None]:
        while True:
            command, waits, done = yield store.get()
            for fence, sync_s in waits:
                yield fence
                yield env.timeout(sync_s)
            for work in command.work:
                yield env.timeout(work.seconds)
            done.succeed()

    def host() -> Generator[Any, Any, None]:
        for _ in range(inferences):
            done: list[Any] = []
            for c in commands:
                waits = [(done[p], sync_s) for p, sync_s in c.waits]
                done.append(env.event())
                stores[c.queue].put((c, waits, done[-1]))
            yield env.all_of(done)

    for store in stores.values():
        env.process(queue(store))
    env.run(until=env.all_of([env.process(host()) for _ in range(DEPTH)]))


def simulated(bus: Bus, commands: Sequence[Command], inferences: int) -> None:
    """The same op by op on the machine, with contention, and a clock that changes every 10 ms."""
    env = Environment()
    machine = Machine(env, bus, [1.0] * 3, lambda passed: None, Host(), compiled=True)
    engine = Engine(env, machine, commands, EventLog((), 0))

    def governor() -> Generator[Any, Any, None]:
        while True:
            for rate in (0.9, 1.0):
                yield env.timeout(0.01)
                machine.set_rates([1.0, rate, 1.0])

    def host() -> Generator[Any, Any, None]:
        for k in range(inferences):
            yield from engine.inference(k)

    env.process(governor())
    env.run(until=env.all_of([env.process(host()) for _ in range(DEPTH)]))
    machine.settle()


def op_level(out: Table) -> None:
    """Ops a second, ours to bare."""
    table = make_table([{}])
    bus = Bus.of(make_soc(), table.queues, table.bandwidth_bytes_s.tolist())
    for ops in (1, 3, 10, 50):
        commands = stages(ops)
        inferences = max(600 // (6 * ops), 4)
        simulated(bus, commands, 1)
        ratios, rates = [], []
        for _ in range(ROUNDS):
            plain, mine = (
                cpu_s(lambda c=commands, n=inferences: bare(c, n))[0],
                cpu_s(lambda c=commands, n=inferences: simulated(bus, c, n))[0],
            )
            ratios.append(plain / mine)
            rates.append(DEPTH * inferences * 6 * ops / mine)
        what = f"op-level ops/s to a bare SimPy pipeline, {ops} op(s) a segment ({statistics.median(rates) / 1e3:.0f}k ops/s)"
        out.row(what, ">= 0.6", f"{statistics.median(ratios):.2f}", statistics.median(ratios) >= 0.6)


def outcome(planned: Planned, **scenario: Any) -> Simulation:
    """Simulate a plan."""
    found = simulate(planned, scenario=Scenario.of(scenario))
    return found.outcome  # type: ignore[union-attr, return-value]


def agreement(out: Table, what: str, planned: Planned, polling_s: float, **scenario: Any) -> None:
    """Multi-rate against ``--exact``."""
    (slow, full), (quick, fast) = (cpu_s(lambda e=e: outcome(planned, exact=e, **scenario)) for e in (True, False))
    peaks = [abs(fast.peak_temperatures_c[n] / c - 1) for n, c in full.peak_temperatures_c.items()]
    off = {
        "rate": abs(fast.inferences / fast.duration_s / (full.inferences / full.duration_s) - 1),
        "energy": abs(fast.energy.total / full.energy.total - 1),
        "peak temperature": max(peaks),
    }
    for name, by in off.items():
        out.row(f"{what}: {name}, multi-rate against exact ({slow:.1f} s, {quick:.2f} s CPU)", "<= 0.5 %", f"{100 * by:.3f} %", by <= 0.005)
    if full.throttling.first_s is not None or fast.throttling.first_s is not None:
        first = abs((fast.throttling.first_s or 0.0) - (full.throttling.first_s or 0.0))
        out.row(f"{what}: first throttling", f"{polling_s * 1e3:g} ms", f"{first * 1e3:.3f} ms", first <= polling_s + 1e-9)


def bandwidth(out: Table) -> None:
    """Two processors that read as fast as they can."""
    soc = load_soc(SOC)
    table = make_table([{}])
    bus = Bus.of(soc, table.queues, [float(p.bandwidth_bytes_s) for p in soc.processors])
    for a, b, goal in ((0, 2, 59.6e9), (1, 2, 59.5e9)):
        rate = sum(bus.share(((a, bus.alone[a]), (b, bus.alone[b]))))
        what = f"{bus.names[a]} and {bus.names[b]} together, bytes a second on the {soc.name}"
        out.row(what, f"{goal / 1e9:.1f} GB/s", f"{rate / 1e9:.1f} GB/s", abs(rate / goal - 1) < 1e-9)


def main() -> int:
    """Run all; print the table and one summary line."""
    out = Table()
    op_level(out)
    bandwidth(out)
    vision, language = plan(VISION, SOC), plan(LANGUAGE, SOC, prompt=64, generate=256)
    decode = language.decode  # type: ignore[attr-defined]
    seconds, hour = cpu_s(lambda: outcome(decode, duration_s=3600.0, ambient_c=35.0, case="pocket"))
    throttled = "throttled" if hour.throttling.happened else "NOT THROTTLED"
    what = f"one hour of decode in a pocket at 35 °C ({hour.inferences} tokens, {throttled}), CPU"
    out.row(what, "<= 1 s", f"{seconds:.2f} s", seconds <= 1.0 and hour.throttling.happened)
    agreement(out, "60 s of vision at 30 fps", vision, 7.0, duration_s=60.0, period_s=1 / 30)
    agreement(out, "60 s of vision in a pocket at 46 °C", vision, 7.0, duration_s=60.0, period_s=1 / 30, ambient_c=46.0, case="pocket")
    agreement(out, "60 s of chat, contexts growing", language, 7.0, duration_s=60.0, chat={"prompt": 64, "generate": 256})
    print(f"{sum(out.ok)} of {len(out.ok)} goals met")
    return 0 if all(out.ok) else 1


if __name__ == "__main__":
    sys.exit(main())
