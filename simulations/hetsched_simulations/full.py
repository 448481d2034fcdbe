"""The full path: every inference op by op, with the thermal network and the governor in the same event loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

from simpy import Environment
from simpy.events import Event

from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.device import Device
from hetsched_simulations.engine import Engine, EventLog
from hetsched_simulations.flow import next_arrival
from hetsched_simulations.machine import Machine
from hetsched_simulations.passing import let_pass
from hetsched_simulations.schedutil import PERIOD_S
from hetsched_simulations.switching import Switching
from hetsched_simulations.workload import Command
from hetsched_simulations.zones import Zone

LOOKS = 100
"""How often a run looks whether the battery is empty."""


def run_full(
    device: Device, bus: Bus, commands: Sequence[Command], log: EventLog, *,
    duration_s: float | None, iterations: int, period_s: float | None, progress: Callable[[float], None] | None,
    switching: Switching | None = None, compiled: bool = False,
) -> list[tuple[float, float]]:  # fmt: skip
    """Simulate every inference: when it finished, and its latency. At ``duration_s`` the one in flight is cut off."""
    env, machine = mounted(device, bus, compiled)
    run = Engine(env, machine, commands, log).inference
    finished: list[tuple[float, float]] = []

    def host() -> Generator[Event, Any, None]:
        nonlocal run
        k = 0
        while True:
            start = float(env.now)
            yield from run(k)
            k, now = k + 1, float(env.now)
            finished.append((now, now - start))
            if progress is not None:
                progress(now / duration_s if duration_s else k / iterations)
            if duration_s is None and k == iterations:
                return
            if switching is not None and now >= switching.next_ask_s - 1e-9:
                machine.settle()
                if switching.ask(now, switching.slowed(now - start)):
                    yield from make_way(env, machine, device, switching)
                    run = Engine(env, machine, switching.commands[switching.level], log).inference
            if period_s is not None:
                now = float(env.now)
                yield env.timeout(max(next_arrival(now, period_s) - now, 0.0))

    submitting = env.process(host())
    if duration_s is None:
        env.run(until=submitting)
        machine.settle()
    else:
        run_until(env, machine, device, duration_s)
    return [(ended, took) for ended, took in finished if ended <= device.off_s + 1e-9]


def mounted(device: Device, bus: Bus, compiled: bool = False) -> tuple[Environment, Machine]:
    """The device as a machine, with its governors at work; ``compiled`` as for :class:`Machine`."""
    env = Environment()
    device.scale()
    machine = Machine(env, bus, device.rates, lambda passed: let_pass(device, passed), device.host, compiled)
    for zone in device.zones:
        env.process(_polling(env, machine, device, zone))
    if device.schedutil is not None:
        env.process(_scaling(env, machine, device))
    if device.background is not None:
        env.process(_other_app(env, machine, device))
    return env, machine


def run_until(env: Environment, machine: Machine, device: Device, end_s: float) -> None:
    """Run to the end, or for little longer than the battery lasts."""
    pieces = 1 if device.supply is None else LOOKS
    for k in range(pieces):
        env.run(until=end_s * (k + 1) / pieces)
        machine.settle()
        if device.off:
            return


def make_way(env: Environment, machine: Machine, device: Device, switching: Switching) -> Generator[Event, Any, None]:
    """Make way for another plan, at the end of an inference."""
    work = switching.begin(float(env.now))
    if work:
        yield from Engine(env, machine, work, EventLog((), 0)).inference(0)
    machine.settle()
    switching.finish(float(env.now))
    machine.host = device.host
    machine.set_rates(device.rates)


def _other_app(env: Environment, machine: Machine, device: Device) -> Generator[Event, Any, None]:
    """A background load, on and off."""
    machine.set_other(device.other_bytes_s)
    while math.isfinite(device.next_toggle_s):
        yield env.timeout(device.next_toggle_s - float(env.now))
        machine.settle()
        device.toggle()
        machine.set_rates(device.rates)
        machine.set_other(device.other_bytes_s)


def _scaling(env: Environment, machine: Machine, device: Device) -> Generator[Event, Any, None]:
    while True:
        yield env.timeout(PERIOD_S)
        machine.settle()
        if device.scale():
            machine.set_rates(device.rates)


def _polling(env: Environment, machine: Machine, device: Device, zone: Zone) -> Generator[Event, Any, None]:
    while True:
        yield env.timeout(max(zone.next_poll(float(env.now)) - float(env.now), 0.0))
        machine.settle()
        if device.poll(zone, float(env.now)):
            machine.set_rates(device.rates)
