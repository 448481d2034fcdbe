"""A compiled plan that runs: :class:`Executable`. Nothing here needs the plan file's schema, the passes or numba."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, OptionError
from hetsched.graph import Graph
from hetsched.runtime.arena import Arena, Scratch
from hetsched.runtime.fences import FenceBoard
from hetsched.runtime.inputs import validate_feeds
from hetsched.runtime.team import Team
from hetsched.runtime.timeline import Timeline
from hetsched.runtime.worker import Gate, Inspector, Worker
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched.plans import Plan
    from hetsched.runtime.assignment import Assignment
    from hetsched.runtime.executable_files import StoredPlan

#: How long a failed or interrupted run waits for kernels that are still running.
_DRAIN_S = 10.0
#: How long all iterations of a run may take together, unless the caller says otherwise.
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run produced.

    ``outputs`` are copies, of the last iteration; ``latencies_s`` has one entry per iteration, from the release of the
    workers to the end of the last segment. ``observed`` holds every tensor an op wrote, if it was asked for; ``copied_bytes`` is what the
    last iteration copied between the arena and the memory of vendors' runtimes.
    """

    outputs: dict[str, npt.NDArray[Any]]
    latencies_s: tuple[float, ...]
    trace: Trace
    observed: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    copied_bytes: int = 0


class Executable:
    """A compiled plan with its workers. Use it as a context manager, or call :meth:`close`.

    Workers start on the first run and serve every later one. After a failed run the executable can run again; after a
    worker got stuck it is closed.
    """

    def __init__(
        self, graph: Graph, plan: Plan | StoredPlan, soc: str, arena: Arena, buffers: dict[str, npt.NDArray[Any]], last: frozenset[str],
        board: FenceBoard, gate: Gate, workers: tuple[Worker, ...], teams: tuple[Team, ...], scratch: tuple[Scratch, ...],
        assigned: Assignment | None,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.plan = plan
        self.soc = soc
        self.arena = arena
        self.scratch = scratch
        self.buffers = buffers
        self._last = last
        self._board = board
        self._gate = gate
        self.workers = workers
        self._teams = teams
        self.assigned = assigned
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
            for worker in self.workers:
                worker.join(_DRAIN_S)

    def run(
        self,
        feeds: Mapping[str, npt.NDArray[Any]],
        *,
        repeat: int = 1,
        trace: bool = True,
        observe: bool = False,
        guard: bool = False,
        finite: bool = False,
        timeout_s: float = LIMIT_S,
    ) -> RunResult:
        """Run the plan ``repeat`` times on the same inputs.

        Args:
            feeds: every graph input by name, with the exact shape and type.
            repeat: number of inferences, one after another.
            trace: keep spans; latencies are measured either way.
            observe: copy each op's outputs right after it (slow; for checks).
            guard: look at each op's results right after it: an integer product that is not finite although what it read is, is
                computed again in float32, and the trace says so; so it does of a float op.
            finite: refuse results of segments in less than float32 that are not finite although what they read is.
            timeout_s: time limit for all iterations together.

        Raises:
            OptionError: bad feeds or options.
            ExecutionError: an op failed (the message names the user's node), or the time is up. It names the segments.
        """
        if repeat < 1:
            raise OptionError(f"repeat is {repeat}: it must be at least 1")
        if self._gate.closed:
            raise ExecutionError("this executable is closed: compile the plan again")
        arrays = validate_feeds(self.graph, feeds)
        observed: dict[str, npt.NDArray[Any]] = {}
        self._start(observed if observe else None, guard, finite)
        origin = time.perf_counter_ns()
        timeline = self._timeline(origin)
        deadline = time.monotonic() + timeout_s
        latencies: list[float] = []
        try:
            for iteration in range(repeat):
                latencies.append(self._iterate(arrays, iteration, deadline, timeline if trace else None))
        except BaseException as e:
            running = [w.running for w in self.workers if w.running is not None]
            if isinstance(e, ExecutionError) and time.monotonic() > deadline and running:  # whoever waits is not to blame
                e.segments, e.delegate = tuple(j.index for j in running), running[0].delegate.name if len(running) == 1 else ""
            self._drain()
            raise
        timeline.trace.notes.extend(w.note for w in self.workers if w.note)
        timeline.trace.notes.extend(dict.fromkeys(note for w in self.workers for note in w.notes))
        if self.assigned is not None:
            self.assigned.label(timeline.trace)
        if self.workers and any(job.delegate.name == "null" for w in self.workers for job in w.jobs):
            timeline.trace.notes.append("the null delegate computes nothing: outputs are zeros and times are the predicted ones")
        copied = sum(sum(w.copies) for w in self.workers)
        return RunResult(self._outputs(arrays), tuple(latencies), timeline.trace, observed, copied)

    def _start(self, observed: dict[str, npt.NDArray[Any]] | None, guard: bool, finite: bool) -> None:
        if not self._started:
            self._started = True
            for worker in self.workers:
                worker.start()

        def observe(op: str) -> None:
            from hetsched.channels_last import planar

            for name in self.graph.ops[self.graph.op_index[op]].outputs:
                if name in self.buffers and observed is not None:
                    stored = self.buffers[name]
                    observed[name] = planar(stored) if name in self._last else stored.copy()

        for worker in self.workers:
            worker.observe = None if observed is None else observe
            worker.suspect = self._suspect if guard else None
            worker.inspection = self._inspection() if finite and self.assigned is not None else None
            worker.notes.clear()

    def _inspection(self) -> Inspector:
        from hetsched.runtime.finite import Inspection

        return Inspection(self.graph, self.assigned.plan, self.buffers)  # type: ignore[union-attr]

    def _suspect(self, op: str) -> bool:
        """Whether an op wrote what is not finite although all that it read is."""
        found = self.graph.ops[self.graph.op_index[op]]
        return not self._finite(found.outputs) and self._finite(found.inputs)

    def _finite(self, names: Iterable[str]) -> bool:
        arrays = [self.buffers[n] for n in names if n in self.buffers]
        return all(bool(np.isfinite(a).all()) for a in arrays if a.dtype.kind == "f")

    def _timeline(self, origin: int) -> Timeline:
        trace = Trace("measured", self.graph.name, self.soc, tuple(w.queue for w in self.workers))
        trace.counter("memory/arena", "B").sample(0.0, float(self.plan.arena_bytes))
        adopted = self.assigned is not None and self.assigned.is_adopted  # for another SoC: its predictions are not about this run
        predicted = {} if adopted else {p.op: p.seconds for p in self.plan.placements}
        return Timeline(trace, origin, predicted, frozenset(f.signal for f in self.plan.fences))

    def _iterate(self, feeds: Mapping[str, npt.NDArray[Any]], iteration: int, deadline: float, timeline: Timeline | None) -> float:
        submitted = time.perf_counter_ns()
        # Inputs share the arena with later tensors, so they are gone after an iteration.
        for name, array in feeds.items():
            self.buffers[name][...] = array
        for worker in self.workers:
            worker.stamps.clear()
            worker.copies.clear()
            worker.failure = None
        self._board.reset(deadline)
        released = time.perf_counter_ns()
        self._gate.open()
        if not self._gate.join(max(0.0, deadline - time.monotonic())):
            raise ExecutionError("the run took longer than its time limit: raise --timeout (timeout_s), or look for a stuck kernel")
        for worker in self.workers:
            if worker.failure is not None:
                raise worker.failure
        if timeline is not None:
            timeline.add_submit(submitted, released, iteration)
            for worker in self.workers:
                timeline.add_queue(worker.queue, worker.jobs, worker.stamps, iteration, sum(worker.copies))
        return max((w.stamps[-1] for w in self.workers), default=released) * 1e-9 - released * 1e-9

    def _drain(self) -> None:
        """After a failure: stop the workers at their next fence; close if one is stuck in a kernel."""
        self._board.abort()
        if not self._gate.join(_DRAIN_S):
            self._gate.close()

    def _outputs(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        out: dict[str, npt.NDArray[Any]] = {}
        for name in self.graph.outputs:
            tensor = self.graph.tensors[name]
            source = tensor.numpy() if tensor.is_constant else feeds[name] if name in feeds else self.buffers[name]
            out[name] = np.array(source)
        return out
