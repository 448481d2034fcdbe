"""The machine's arithmetic: compiled and plain it does the same, and looking ahead past changes loses nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from simpy import Environment

from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.engine import Engine, EventLog
from hetsched_simulations.machine import Host, Intervals, Machine
from hetsched_simulations.workload import commands_of


def run(toys: SimpleNamespace, seed: int, compiled: bool, every_s: float | None) -> tuple[list[Any], list[Any]]:
    """Two inferences of a random graph; clocks change every so often. Spans and fences, and what the observer was told."""
    table, order, alternative = toys.random_case(np.random.default_rng(seed), 12)
    bus = Bus.of(toys.soc(), table.queues, table.bandwidth_bytes_s.tolist())
    env, told = Environment(), list[Intervals]()
    machine = Machine(env, bus, [1.0] * 3, told.append, Host(), compiled)
    log = EventLog(("cpu", "gpu", "npu"), 2)
    engine = Engine(env, machine, commands_of(table, order, alternative), log)

    def host() -> Any:
        for k in range(2):
            yield from engine.inference(k)

    def clocks(every: float) -> Any:
        for rate in [0.5, 1.0] * 50:
            yield env.timeout(every)
            machine.set_rates([1.0, rate, 1.0])

    if every_s is not None:
        env.process(clocks(every_s))
    env.run(until=env.process(host()))
    machine.settle()
    moved = [float(p.seconds @ p.flow_bytes_s) for p in told]
    assert sum(moved) == pytest.approx(2 * sum(w.bytes for c in engine.commands for w in c.work), rel=1e-9, abs=1e-3)
    return [*log.spans, *log.fences], [np.concatenate([p.end_s for p in told]).tolist(), sum(moved)]


@pytest.mark.parametrize("every_s", [None, 0.3e-3])
def test_compiled_and_plain_are_the_same_to_the_bit(toys: SimpleNamespace, every_s: float | None) -> None:
    for seed in range(5):
        assert run(toys, seed, True, every_s) == run(toys, seed, False, every_s)


def test_a_look_at_the_meters_changes_nothing(toys: SimpleNamespace) -> None:
    """The same clocks again, every now and then: what is in flight is split at those times and goes on."""
    table, order, alternative = toys.random_case(np.random.default_rng(3), 12)
    bus = Bus.of(toys.soc(), table.queues, table.bandwidth_bytes_s.tolist())
    ends = []
    for every in (None, 0.17e-3):
        env = Environment()
        machine = Machine(env, bus, [1.0] * 3, lambda passed: None, Host())
        engine = Engine(env, machine, commands_of(table, order, alternative), EventLog((), 0))

        def look(every: float, env: Environment = env, machine: Machine = machine) -> Any:
            while True:
                yield env.timeout(every)
                machine.settle()

        if every is not None:
            env.process(look(every))
        env.run(until=env.process(engine.inference(0)))
        ends.append(env.now)
    assert ends[1] == pytest.approx(ends[0], rel=1e-12)
