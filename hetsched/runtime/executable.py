"""From a plan to something that runs: :func:`compile` and :class:`Executable`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hetsched.channels_last import channels_last, planar
from hetsched.errors import ExecutionError, ModelError, OptionError, PlanError
from hetsched.graph import Graph
from hetsched.passes.unfuse import parts
from hetsched.plan_rules import check_graph, check_memory
from hetsched.plans import Plan, PlanSegment
from hetsched.runtime.arena import Arena, Scratch, bind_buffers, own_buffers
from hetsched.runtime.delegates import load_delegate
from hetsched.runtime.delegates.base import Delegate, SegmentJob
from hetsched.runtime.delegates.mixed import MixedDelegate
from hetsched.runtime.fences import FenceBoard
from hetsched.runtime.inputs import validate_feeds
from hetsched.runtime.team import Team
from hetsched.runtime.timeline import Timeline
from hetsched.runtime.worker import Gate, Job, Worker
from hetsched.socs import HOST
from hetsched.trace import Trace

#: How long a failed or interrupted run waits for kernels that are still running.
_DRAIN_S = 10.0
#: How long all iterations of a run may take together, unless the caller says otherwise.
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run produced.

    ``outputs`` are copies, of the last iteration; ``latencies_s`` has one entry per iteration, from the release of the
    workers to the end of the last segment. ``observed`` holds every tensor an op wrote, if it was asked for.
    """

    outputs: dict[str, npt.NDArray[Any]]
    latencies_s: tuple[float, ...]
    trace: Trace
    observed: dict[str, npt.NDArray[Any]] = field(default_factory=dict)


def compile(graph: Graph, plan: Plan, *, soc: str = HOST, delegate: str | Delegate | None = None) -> Executable:
    """Prepare a plan for execution on this machine.

    Args:
        graph: the model after the same passes as when it was planned.
        plan: the plan; its buffers and fences are used as they are.
        soc: id of the SoC the plan was made for.
        delegate: run everything with this delegate (a name such as ``null`` or ``ort``, or an object) instead of the plan's.

    Raises:
        PlanError: the plan is for another machine or another graph, or names an unknown delegate.
        ModelError: the model's weights are absent.
        UnsupportedModelError: a delegate does not support an op; the message names the user's node and the reason.
    """
    _check_plan(graph, plan, soc, delegate)
    delegates = _delegates(plan, delegate)
    if delegate == "null":
        seconds = sum(s.launch_s + s.transfer_s for s in plan.segments) + sum(p.seconds for p in plan.placements)
        if seconds > _LIMIT_S:
            raise PlanError(f"the plan predicts {seconds:.3g} s of work, and the null delegate waits as long: at most {_LIMIT_S:g} s")
        # The plan's offsets are for what the target stores (often float16); nothing is computed, so only the ends are needed.
        arena, buffers = Arena(0), own_buffers(graph)
    else:
        _check_weights(graph)
        check_memory(plan, graph)
        arena = Arena(plan.arena_bytes)
        buffers = bind_buffers(graph, plan.buffers, arena)
    last = channels_last(graph, {p.op: p.precision for p in plan.placements}, _delegate_names(plan, delegate))
    board = FenceBoard(len(plan.segments))
    computing = dict.fromkeys(s.queue for s in plan.segments if delegates[s.index].name == "numba")
    teams = {queue: Team(queue, board.spins) for queue in computing}
    jobs = _compile_segments(graph, plan, buffers, delegates, last, teams, board.stop)
    gate = Gate(len(jobs))
    workers = tuple(Worker(queue, tuple(js), board, gate) for queue, js in jobs.items())
    return Executable(graph, plan, soc, arena, buffers, last, board, gate, workers, tuple(teams.values()))


def _check_weights(graph: Graph) -> None:
    """Refuse a model without its weights before kernels are compiled for the others."""
    read = dict.fromkeys(n for op in graph.ops for part in parts(op) for n in part.inputs if n)
    absent = [t.name for n in read if (t := graph.tensors.get(n)) is not None and t.data is not None and not t.data.is_present]
    if absent:
        raise ModelError(
            f"the weights of {graph.name!r} are absent ({len(absent)} tensors, the first is {absent[0]!r}): "
            "a weightless model can be planned but not run; fetch it with its weights, or give --delegate null"
        )


def _compile_segments(
    graph: Graph,
    plan: Plan,
    buffers: Mapping[str, npt.NDArray[Any]],
    delegates: Mapping[int, Delegate],
    last: frozenset[str],
    teams: Mapping[str, Team],
    stop: npt.NDArray[np.int64],
) -> dict[str, list[Job]]:
    """The jobs of each queue, in order."""
    placed = {p.op: p for p in plan.placements}
    precision = {name: p.precision for name, p in placed.items()}
    seconds = {name: p.seconds for name, p in placed.items()}
    packed: dict[tuple[str, str], Any] = {}
    scratch: dict[str, Scratch] = {}
    jobs: dict[str, list[Job]] = {}
    for segment in plan.segments:
        chosen = delegates[segment.index]
        ops = tuple(graph.ops[graph.op_index[name]] for name in segment.ops)
        own = scratch.setdefault(segment.queue, Scratch())
        compiled = chosen.compile(
            SegmentJob(graph, segment, ops, precision, seconds, buffers, packed, own, last, teams.get(segment.queue), stop)
        )
        waits = tuple(f for f in plan.fences if f.wait == segment.index)
        jobs.setdefault(segment.queue, []).append(Job(segment.index, chosen, compiled, waits))
    return jobs


def _check_plan(graph: Graph, plan: Plan, soc: str, delegate: str | Delegate | None) -> None:
    if soc != HOST and delegate != "null":
        raise PlanError(f"this plan is for {soc}; run it there or plan for host (--soc host), or try it with --delegate null")
    elsewhere = next((p for p in plan.placements if p.delegate in ("numba", "ort") and not p.queue.startswith("cpu")), None)
    if elsewhere is not None and delegate is None:
        raise PlanError(
            f"the plan uses the queue {elsewhere.queue!r}, which is not a CPU of this machine: plan for host, or try --delegate null"
        )
    check_graph(plan, graph)
    foreign = next((b.tensor for b in plan.buffers if b.tensor not in graph.tensors), None)
    if foreign is not None and delegate != "null":
        raise PlanError(
            f"the plan has a buffer for {foreign!r}, which graph {graph.name!r} does not have: a converted copy cannot be made here"
        )


def _delegates(plan: Plan, forced: str | Delegate | None) -> dict[int, Delegate]:
    """The delegate of each segment, by index; each one is probed."""
    if forced is not None:
        one = _available(forced) if isinstance(forced, str) else forced
        return dict.fromkeys((s.index for s in plan.segments), one)
    named = {p.op: p.delegate for p in plan.placements}
    loaded = {name: _available(name) for name in dict.fromkeys(named.values())}
    return {s.index: _delegate_of(s, named, loaded) for s in plan.segments}


def _delegate_names(plan: Plan, forced: str | Delegate | None) -> dict[str, str]:
    """The name of each op's delegate."""
    name = forced if isinstance(forced, str) or forced is None else forced.name
    return {p.op: p.delegate if name is None else name for p in plan.placements}


def _delegate_of(segment: PlanSegment, named: Mapping[str, str], loaded: Mapping[str, Delegate]) -> Delegate:
    """The delegate of all of a segment's ops, or one that hands each op to its own."""
    delegates = {op: loaded[named[op]] for op in segment.ops}
    names = dict.fromkeys(named[op] for op in segment.ops)
    return loaded[next(iter(names))] if len(names) == 1 else MixedDelegate(delegates)


def _available(name: str) -> Delegate:
    delegate = load_delegate(name)
    probe = delegate.probe()
    if not probe.available:
        raise PlanError(f"the delegate {name!r} cannot run here: {probe.reason}")
    return delegate


class Executable:
    """A compiled plan with its workers. Use it as a context manager, or call :meth:`close`.

    Workers start on the first run and serve every later one. After a failed run the executable can run again; after a
    worker got stuck it is closed.
    """

    def __init__(
        self, graph: Graph, plan: Plan, soc: str, arena: Arena, buffers: dict[str, npt.NDArray[Any]], last: frozenset[str],
        board: FenceBoard, gate: Gate, workers: tuple[Worker, ...], teams: tuple[Team, ...],
    ) -> None:  # fmt: skip
        self.graph = graph
        self.plan = plan
        self.soc = soc
        self._arena = arena
        self._buffers = buffers
        self._last = last
        self._board = board
        self._gate = gate
        self._workers = workers
        self._teams = teams
        self._started = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; the executable cannot run afterwards."""
        self._board.abort()
        self._gate.close()
        for team in self._teams:
            team.close()
        if self._started:
            for worker in self._workers:
                worker.join(_DRAIN_S)

    def run(
        self,
        feeds: Mapping[str, npt.NDArray[Any]],
        *,
        repeat: int = 1,
        trace: bool = True,
        observe: bool = False,
        guard: bool = False,
        timeout_s: float = _LIMIT_S,
    ) -> RunResult:
        """Run the plan ``repeat`` times on the same inputs.

        Args:
            feeds: every graph input by name, with the exact shape and type.
            repeat: number of inferences, one after another.
            trace: keep spans; latencies are measured either way.
            observe: copy each op's outputs right after it (slow; for checks).
            guard: look at each op's results right after it: an integer product that is not finite although what it read is, is
                computed again in float32, and the trace says so; so it does of a float op.
            timeout_s: time limit for all iterations together.

        Raises:
            OptionError: bad feeds or options.
            ExecutionError: an op failed (the message names the user's node), or the time is up.
        """
        if repeat < 1:
            raise OptionError(f"repeat is {repeat}: it must be at least 1")
        if self._gate.closed:
            raise ExecutionError("this executable is closed: compile the plan again")
        arrays = validate_feeds(self.graph, feeds)
        observed: dict[str, npt.NDArray[Any]] = {}
        self._start(observed if observe else None, guard)
        origin = time.perf_counter_ns()
        timeline = self._timeline(origin)
        deadline = time.monotonic() + timeout_s
        latencies: list[float] = []
        try:
            for iteration in range(repeat):
                latencies.append(self._iterate(arrays, iteration, deadline, timeline if trace else None))
        except BaseException:
            self._drain()
            raise
        timeline.trace.notes.extend(w.note for w in self._workers if w.note)
        timeline.trace.notes.extend(dict.fromkeys(note for w in self._workers for note in w.notes))
        if self._workers and any(job.delegate.name == "null" for w in self._workers for job in w.jobs):
            timeline.trace.notes.append("the null delegate computes nothing: outputs are zeros and times are the predicted ones")
        return RunResult(self._outputs(arrays), tuple(latencies), timeline.trace, observed)

    def _start(self, observed: dict[str, npt.NDArray[Any]] | None, guard: bool) -> None:
        if not self._started:
            self._started = True
            for worker in self._workers:
                worker.start()

        def observe(op: str) -> None:
            for name in self.graph.ops[self.graph.op_index[op]].outputs:
                if name in self._buffers and observed is not None:
                    stored = self._buffers[name]
                    observed[name] = planar(stored) if name in self._last else stored.copy()

        for worker in self._workers:
            worker.observe = None if observed is None else observe
            worker.suspect = self._suspect if guard else None
            worker.notes.clear()

    def _suspect(self, op: str) -> bool:
        """Whether an op wrote what is not finite although all that it read is."""
        found = self.graph.ops[self.graph.op_index[op]]
        return not self._finite(found.outputs) and self._finite(found.inputs)

    def _finite(self, names: Iterable[str]) -> bool:
        arrays = [self._buffers[n] for n in names if n in self._buffers]
        return all(bool(np.isfinite(a).all()) for a in arrays if a.dtype.kind == "f")

    def _timeline(self, origin: int) -> Timeline:
        trace = Trace("measured", self.graph.name, self.soc, tuple(w.queue for w in self._workers))
        trace.counter("memory/arena", "B").sample(0.0, float(self.plan.arena_bytes))
        predicted = {p.op: p.seconds for p in self.plan.placements}
        return Timeline(trace, origin, predicted, frozenset(f.signal for f in self.plan.fences))

    def _iterate(self, feeds: Mapping[str, npt.NDArray[Any]], iteration: int, deadline: float, timeline: Timeline | None) -> float:
        submitted = time.perf_counter_ns()
        # Inputs share the arena with later tensors, so they are gone after an iteration.
        for name, array in feeds.items():
            self._buffers[name][...] = array
        for worker in self._workers:
            worker.stamps.clear()
            worker.failure = None
        self._board.reset(deadline)
        released = time.perf_counter_ns()
        self._gate.open()
        if not self._gate.join(max(0.0, deadline - time.monotonic())):
            raise ExecutionError("the run took longer than its time limit: raise timeout_s, or look for a stuck kernel")
        for worker in self._workers:
            if worker.failure is not None:
                raise worker.failure
        if timeline is not None:
            timeline.add_submit(submitted, released, iteration)
            for worker in self._workers:
                timeline.add_queue(worker.queue, worker.jobs, worker.stamps, iteration)
        return max((w.stamps[-1] for w in self._workers), default=released) * 1e-9 - released * 1e-9

    def _drain(self) -> None:
        """After a failure: stop the workers at their next fence; close if one is stuck in a kernel."""
        self._board.abort()
        if not self._gate.join(_DRAIN_S):
            self._gate.close()

    def _outputs(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        out: dict[str, npt.NDArray[Any]] = {}
        for name in self.graph.outputs:
            tensor = self.graph.tensors[name]
            source = tensor.numpy() if tensor.is_constant else feeds[name] if name in feeds else self._buffers[name]
            out[name] = np.array(source)
        return out
