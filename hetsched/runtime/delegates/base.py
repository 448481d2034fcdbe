"""What a delegate is: four verbs, and what is passed to them.

**What happens in** ``submit``. The worker of a queue calls it for one segment after another, on the queue's own thread.
It does, in this order:

1. ``ticket.wait()``: returns once every segment that feeds this one has signalled. Then a time goes into ``ticket.stamps``.
2. The work. It may be done on this thread (kernels), or elsewhere: a runtime's threads, a device, an emulator. Work done elsewhere
   has a :class:`hetsched.runtime.fences.Completion`: whoever learns that the work has ended calls its ``done()``, from any thread
   (ONNX Runtime's and OpenVINO's callbacks, a WebGPU queue's *submitted work done*), and ``submit`` waits for it with
   ``completion.wait(ticket.check)``. That wait ends early, with an error, when the run is given up or its time is over.
3. Another time after each name of :attr:`CompiledSegment.stamped`, and ``ticket.observe(op)`` for each op, when its results are in
   the arena.
4. ``ticket.signal()``, once, when all outputs are in the arena. It is the only thing that other queues see.

So ``submit`` returns when its segment is done: queues overlap because each has a thread, not because a submission is left behind.
Inside a segment a delegate may queue as much as it likes before it waits once. Work that was given up may still be running and still
write to the arena: the delegate keeps its completion and waits for it (``settle``) before it starts that segment again.

**Copies.** ``buffers`` are host memory. A runtime that works on them directly (an ``OrtValue`` over the arena, memory that
both sides see) copies nothing. What is moved between the arena and a runtime's own memory is counted: ``ticket.copies.append(n)`` for
each tensor of ``n`` bytes, in or out. Tensors that only one segment uses and that stay on the device are no copies. The trace shows
the sum of each queue, and ``run --json`` the sum of all.

**Errors.** ``compile`` raises ``UnsupportedModelError`` for an op that the runtime does not take, and ``DelegateError`` for what is
wrong with the runtime, its device or a stored artefact (absent, damaged, for another SoC). ``submit`` raises ``ExecutionError``. All
name the user's nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph, Op

if TYPE_CHECKING:
    from hetsched.plans import PlanSegment
    from hetsched.runtime.arena import Scratch
    from hetsched.runtime.team import Team
    from hetsched.socs import SoC


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether the vendor runtime is here: its version, or the reason why not.

    ``devices`` are what it finds, ``runs`` says what it can run here and ``builds`` what it can only build, both in words.
    ``emulated`` names what stands in for the processor (an emulator, a software adapter): results count, times mean nothing.
    """

    available: bool
    version: str = ""
    reason: str = ""
    devices: tuple[str, ...] = ()
    runs: str = ""
    builds: str = ""
    emulated: str = ""


@dataclass(frozen=True, slots=True)
class SegmentJob:
    """A segment to compile.

    ``buffers`` are the arena's arrays by tensor name, ``precision`` and ``predicted_s`` (seconds) are per op name,
    ``packed`` holds the weights that were already packed for this plan, ``scratch`` belongs to the segment's queue.
    ``channels_last`` names the tensors whose buffers hold their channels last (:mod:`hetsched.channels_last`);
    ``team`` is the queue's threads, and a ``stop`` that is not 0 says that the run was given up; a delegate whose runtime can be
    interrupted adds to ``stoppers`` what does so. ``soc`` is what the plan was made for; None: not known. Results are computed in
    ``precision``; what a buffer holds is the graph's own type (float32 where the target would store float16).
    """

    graph: Graph
    segment: PlanSegment
    ops: tuple[Op, ...]
    precision: Mapping[str, str]
    predicted_s: Mapping[str, float]
    buffers: Mapping[str, npt.NDArray[Any]]
    packed: dict[tuple[str, str], Any]
    scratch: Scratch
    channels_last: frozenset[str] = frozenset()
    team: Team | None = None
    stop: npt.NDArray[np.int64] | None = None
    soc: SoC | None = None
    stoppers: list[Callable[[], None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a submission is given.

    ``wait`` returns once every segment that feeds this one has signalled; ``signal`` must be called once, when all outputs
    are written. A time (``time.perf_counter_ns``) goes into ``stamps`` after ``wait`` and after each of
    :attr:`CompiledSegment.stamped`. ``observe`` (None on ordinary runs) is called with each op's name right after it; ``suspect``
    (None where nobody asked) says whether what an op wrote is not finite although what it read is. What was done about it goes
    into ``notes``. ``check`` raises when the run was given up or its time is over; ``copies`` takes the bytes of each copy between the
    arena and a runtime's own memory.
    """

    wait: Callable[[], None]
    signal: Callable[[], None]
    stamps: list[int]
    observe: Callable[[str], None] | None = None
    suspect: Callable[[str], bool] | None = None
    notes: list[str] = field(default_factory=list)
    check: Callable[[], None] = lambda: None
    copies: list[int] = field(default_factory=list)


class CompiledSegment(Protocol):
    """What :meth:`Delegate.compile` returns; the rest of it is the delegate's own business."""

    @property
    def stamped(self) -> tuple[str, ...]:
        """Names of the spans that ``submit`` times, in order: op names, or one name for the whole segment."""
        ...


class Delegate(Protocol):
    """A way to execute segments: this machine's kernels, or a vendor's runtime."""

    name: str

    def probe(self) -> Probe:
        """Whether it can run here."""
        ...

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """None if it can run ``op`` at ``precision``, otherwise the reason why not."""
        ...

    def compile(self, job: SegmentJob) -> Any:
        """Prepare a segment; a :class:`CompiledSegment`. All allocation and packing happens here.

        Raises:
            UnsupportedModelError: an op is not supported; the message names it and says why.
        """
        ...

    def submit(self, compiled: Any, ticket: Ticket) -> None:
        """Run a segment once: wait, execute, signal.

        Raises:
            ExecutionError: an op failed; the message names the user's node.
        """
        ...
