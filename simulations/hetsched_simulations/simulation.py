"""Simulate a placement: the entry point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from hetsched.costs import CostTable, FloatArray
from hetsched.errors import OptionError
from hetsched.socs import SoC
from hetsched.trace import Trace
from hetsched_simulations import meters
from hetsched_simulations.background import Background
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.clocks import Dvfs
from hetsched_simulations.conditions import Conditions
from hetsched_simulations.device import Device
from hetsched_simulations.engine import EventLog
from hetsched_simulations.flow import profile
from hetsched_simulations.full import run_full
from hetsched_simulations.history import Columns, write_counters, write_levels, write_peaks, write_points
from hetsched_simulations.job_trace import write_jobs
from hetsched_simulations.jobs import JobLog, Jobs
from hetsched_simulations.machine import Host
from hetsched_simulations.multirate import MultiRate
from hetsched_simulations.result import Simulation
from hetsched_simulations.serving import serve
from hetsched_simulations.serving_full import serve_full
from hetsched_simulations.status import thermal_status
from hetsched_simulations.surroundings import TABLE, surroundings
from hetsched_simulations.switching import LevelPlan, Levels, Switching
from hetsched_simulations.workload import commands_of

Path = Literal["auto", "full", "multirate"]
FULL_LIMIT = 3000
"""``auto`` takes the full path up to this many pieces of work."""
COMPILE_FROM = 50_000
"""Pieces of work from which on it is worth it to load the compiled machine."""
TRACED = 64
"""Inferences whose spans are kept."""


def latency(table: CostTable, soc: SoC, order: Sequence[int], alternative: Sequence[int], *, contention: bool = True) -> float:
    """Seconds of one inference at the top clocks, bandwidth shared: what a solver ranks plans by.

    Raises:
        PlanError: the placement breaks the rules of a plan.
    """
    bus = Bus.of_table(soc, table, contention)
    rates = [1.0] * len(table.lanes)
    return profile(bus, commands_of(table, order, alternative), rates, EventLog((), 0), Host()).latency_s


def simulate(
    table: CostTable,
    soc: SoC,
    order: Sequence[int],
    alternative: Sequence[int],
    *,
    duration_s: float | None = None,
    iterations: int = 1,
    ambient_c: float = 25.0,
    initial_c: float | Mapping[str, float] | None = None,
    contention: bool = True,
    thermal: bool = True,
    governor: Dvfs | None = None,
    case: str = TABLE,
    battery: float | None = None,
    charging_w: float = 0.0,
    loads_w: Mapping[str, float] | None = None,
    background: Background | None = None,
    clocks: Mapping[str, float] | None = None,
    levels: Levels | None = None,
    period_s: float | None = None,
    jobs: Jobs | None = None,
    op_spans: bool = True,
    path: Path = "auto",
    progress: Callable[[float], None] | None = None,
) -> Simulation:
    """Run a placement on a simulated SoC.

    Args:
        table: costs of the model on the SoC at its top operating points, or at ``clocks``.
        soc: the SoC that the table was made for.
        order: op indices in the plan's global order.
        alternative: per op, the index of its alternative.
        duration_s: repeat the inference for this long; None: ``iterations`` times.
        iterations: how many inferences, where ``duration_s`` is not given.
        ambient_c: temperature around the device, degrees Celsius.
        initial_c: temperatures at the start: None for ambient, one figure, or by thermal node.
        contention: whether processors share the bandwidth of the DRAM.
        thermal: whether temperatures change and the governor acts; off, everything stays at its initial temperature.
        governor: DVFS governor in place of the SoC's own.
        case: how the surface sees its surroundings: ``table``, ``hand``, ``pocket``, ..., or a file (:mod:`.surroundings`).
        battery: state of charge at the start, 0 to 1; the run ends when it is empty. None: without a battery.
        charging_w: what a cable can give.
        loads_w: what the device draws on top of the SoC file's ``base_w``, by name.
        background: another app, which takes its share of processors and bandwidth; the energy is that of both.
        clocks: processors held at fractions of their top clocks, if ``table`` is for such.
        levels: plans of other throttle levels and the policy that switches between them and this one; None: this one stays.
        period_s: an input arrives every so often; those that arrive during an inference are dropped. None: back to back.
        jobs: what comes in place of one inference after another (a chat, random arrivals), for ``duration_s``; ``order`` and
            ``alternative`` stand for it where a policy weighs levels.
        op_spans: keep spans of ops, launches and transfers, not only of segments and waits.
        path: ``full`` simulates every inference op by op, ``multirate`` one per operating state, ``auto`` chooses by length.
        progress: called now and then with the share that is done.

    Raises:
        PlanError: the placement breaks the rules of a plan.
        OptionError: an argument makes no sense, or no inference finishes within the duration.
        SoCError: the SoC lacks something, such as a processor of the table or a path to ambient.
    """
    _check(duration_s, iterations, period_s, path, ambient_c)
    commands = commands_of(table, order, alternative)
    bus = Bus.of_table(soc, table, contention)
    around = surroundings(case, ambient_c, soc)
    device = Device(
        soc, table, Conditions(ambient_c, initial_c, contention, thermal, governor, around, battery, charging_w, loads_w or {}, background)
    )  # fmt: skip
    device.hold(clocks or {})
    switching = Switching(levels, LevelPlan(table, order, alternative, clocks or {}), device, bus, period_s) if levels else None
    log = EventLog(tuple(q.name for q in table.lanes), TRACED, op_spans)
    work = sum(len(c.work) for c in commands)
    alone = max(sum(c.seconds for c in commands), 1e-9)
    inferences = iterations if duration_s is None else duration_s / max(alone / len(table.queues), period_s or 0.0)
    full = path == "full" or (path == "auto" and inferences * work <= FULL_LIMIT)
    if jobs is not None:
        serving = partial(serve_full, compiled=inferences * work > COMPILE_FROM) if full else serve
        return _served(serving, jobs, device, bus, log, duration_s or alone, switching, full, progress)
    if full:
        chunks = run_full(
            device, bus, commands, log, duration_s=duration_s, iterations=iterations, period_s=period_s, progress=progress,
            switching=switching, compiled=inferences * work > COMPILE_FROM,
        )  # fmt: skip
        _finish(progress)
        return result_of(device, log, chunks, np.array([v for _, v in chunks]), "full", len(chunks), duration_s, switching)
    run = MultiRate(device, bus, commands, log, period_s, switching)
    run.run(duration_s, iterations, progress)
    _finish(progress)
    chunks = [(t, v) for t, _, v in run.flow.chunks]
    return result_of(device, log, chunks, run.flow.latencies(), "multirate", run.states, duration_s, switching)


def _served(
    run: Callable[..., tuple[JobLog, int]], jobs: Jobs, device: Device, bus: Bus, log: EventLog, duration_s: float,
    switching: Switching | None, full: bool, progress: Callable[[float], None] | None,
) -> Simulation:  # fmt: skip
    found, states = run(device, bus, jobs, log, duration_s=duration_s, switching=switching, progress=progress)
    _finish(progress)
    path: Literal["full", "multirate"] = "full" if full else "multirate"
    done = result_of(device, log, found.points(), found.latencies_s(), path, states, duration_s, switching)
    write_jobs(done.trace, found, jobs, duration_s)
    return replace(done, jobs=found)


def _finish(progress: Callable[[float], None] | None) -> None:
    if progress is not None:
        progress(1.0)


def _check(duration_s: float | None, iterations: int, period_s: float | None, path: str, ambient_c: float) -> None:
    if duration_s is not None and not 0 < duration_s <= 7 * 86400:
        raise OptionError(f"a duration of {duration_s:g} s makes no sense: use more than 0 and at most a week")
    if duration_s is None and iterations < 1:
        raise OptionError(f"{iterations} iterations make no sense: use at least 1")
    if period_s is not None and not period_s > 0:
        raise OptionError(f"an arrival period of {period_s:g} s makes no sense: use more than 0, or None for back to back")
    if path not in ("auto", "full", "multirate"):
        raise OptionError(f"the simulation path {path!r} does not exist: use auto, full or multirate")
    if not -50 <= ambient_c <= 100:
        raise OptionError(f"an ambient temperature of {ambient_c:g} °C makes no sense: use -50 to 100")


def result_of(
    device: Device, log: EventLog, chunks: Sequence[tuple[float, float]], latencies: FloatArray,
    path: Literal["full", "multirate"], states: int, duration_s: float | None, switching: Switching | None,
) -> Simulation:  # fmt: skip
    """What a run has come to: ``chunks`` are (time of the first end, latency), ``latencies`` those of all inferences.

    Raises:
        OptionError: there are none.
    """
    if not len(latencies):
        if device.off:
            raise OptionError("the battery is empty before one inference is done: begin with more")
        raise OptionError(f"no inference finishes within {duration_s:g} s: simulate for longer")
    columns = device.history.columns()
    trace = _trace(device, log, columns)
    if chunks:
        write_points(trace, "latency/inference", "s", np.array([t for t, _ in chunks]), np.array([v for _, v in chunks]))
    elapsed = float(columns.seconds.sum())
    levelled = None
    if switching is not None:
        levelled = switching.levelled(elapsed)
        write_levels(trace, levelled, switching.levels.level, elapsed)
    status = thermal_status(device.soc, columns, device.node_c) if device.thermal else None
    if status is not None:
        status.write(trace)
    battery = None if device.supply is None else device.supply.use(columns)
    if device.supply is not None:
        device.supply.write(trace, columns)
    write_peaks(trace, device.labels.nodes if device.thermal else (), device.peak_s, device.peak_c)
    return Simulation(
        trace, latencies, elapsed, meters.energy(device, columns), float(columns.seconds @ columns.flow_bytes_s),
        meters.throttling(device, columns), device.by_node(device.initial_c), device.by_node(device.node_c), device.by_node(device.peak_c),
        path, states, levelled, status, battery, device.surroundings, device.background,
        meters.background_energy(device, columns),
    )  # fmt: skip


def _trace(device: Device, log: EventLog, columns: Columns) -> Trace:
    trace = Trace("simulated", device.table.model, device.table.soc, log.queues)
    trace.spans = sorted(log.spans, key=lambda s: (s.start_s, s.end_s))
    trace.instants = sorted([*log.fences, *device.instants.kept], key=lambda i: i.time_s)
    write_counters(trace, columns, device.labels, device.power.base_w, device.node_c if device.thermal else None)
    if device.instants.left_out:
        trace.notes.append(f"{device.instants.left_out} of {device.instants.seen} governor instants are left out of this trace")
    return trace
