"""What a delegate is: four verbs, and what is passed to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph, Op
from hetsched.plans import PlanSegment
from hetsched.runtime.arena import Scratch
from hetsched.runtime.team import Team


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether the vendor runtime is here: its version, or the reason why not."""

    available: bool
    version: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SegmentJob:
    """A segment to compile.

    ``buffers`` are the arena's arrays by tensor name, ``precision`` and ``predicted_s`` (seconds) are per op name,
    ``packed`` holds the weights that were already packed for this plan, ``scratch`` belongs to the segment's queue.
    ``channels_last`` names the tensors whose buffers hold their channels last (:mod:`hetsched.channels_last`);
    ``team`` is the queue's threads, and a ``stop`` that is not 0 says that the run was given up.
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


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a submission is given.

    ``wait`` returns once every segment that feeds this one has signalled; ``signal`` must be called once, when all outputs
    are written. A time (``time.perf_counter_ns``) goes into ``stamps`` after ``wait`` and after each of
    :attr:`CompiledSegment.stamped`. ``observe`` (None on ordinary runs) is called with each op's name right after it; ``suspect``
    (None where nobody asked) says whether what an op wrote is not finite although what it read is. What was done about it goes
    into ``notes``.
    """

    wait: Callable[[], None]
    signal: Callable[[], None]
    stamps: list[int]
    observe: Callable[[str], None] | None = None
    suspect: Callable[[str], bool] | None = None
    notes: list[str] = field(default_factory=list)


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
