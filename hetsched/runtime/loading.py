"""From a stored executable (:mod:`hetsched.runtime.storing`) to one that runs, without numba, the model file or any pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from hetsched.errors import ExecutionError
from hetsched.graph import DType, Graph, Op
from hetsched.runtime.arena import Arena, Scratch
from hetsched.runtime.code import linked_code
from hetsched.runtime.delegates.base import Delegate, Ticket
from hetsched.runtime.delegates.programs import ProgramSegment, submit
from hetsched.runtime.executable import Executable
from hetsched.runtime.executable_files import Array, Contents, StoredFence, StoredPlacement, StoredPlan
from hetsched.runtime.fences import FenceBoard
from hetsched.runtime.stored_code import native_of
from hetsched.runtime.team import Team
from hetsched.runtime.worker import Gate, Job, Worker
from hetsched.tensors import Tensor
from hetsched_kernels.native import Native
from hetsched_kernels.tables import Program, counters


class _Stored:
    """Runs the segments of a stored executable, which were compiled by the delegate *numba*."""

    name = "numba"

    def submit(self, compiled: ProgramSegment, ticket: Ticket) -> None:
        """Run a segment once."""
        if ticket.observe is not None or ticket.suspect is not None:
            raise ExecutionError("a stored executable cannot be observed op by op: compile the plan")
        submit(compiled, ticket)


def load(contents: Contents) -> Executable:
    """The executable that a file holds.

    Raises:
        OSError: this system does not let its code run.
    """
    manifest, arrays = contents.manifest, contents.arrays
    native = native_of(contents)
    code = linked_code(native, manifest["own"])
    tensors = {name: Tensor(name, tuple(shape), DType(kind)) for name, (shape, kind, _) in manifest["tensors"].items()}
    inputs, outputs = tuple(manifest["inputs"]), tuple(manifest["outputs"])
    whole = Op("whole", "Stored", inputs, tuple(n for n in dict.fromkeys(outputs) if n not in inputs))
    graph = Graph(manifest["name"], tensors, (whole,), inputs, outputs)
    arena, scratch = Arena(manifest["arena_bytes"]), Scratch()
    slabs = [scratch.slab(n) for n in manifest["scratch"]]
    bases = np.array([_address(a) for a in (arrays["data"], arena.whole, *slabs)], np.int64)
    moves = arrays["data.moves"].reshape(-1, 3)
    for place, region, offset in moves.tolist():
        arrays["data"][place : place + 8].view(np.int64)[0] = bases[region] + offset
    fences = tuple(StoredFence(*f) for f in manifest["fences"])
    plan = StoredPlan(manifest["arena_bytes"], tuple(StoredPlacement(*p) for p in manifest["placements"]), fences)
    board = FenceBoard(len(manifest["segments"]), code)
    teams = {queue: Team(queue, board.spins, code) for queue in dict.fromkeys(s["queue"] for s in manifest["segments"])}
    jobs: dict[str, list[Job]] = {queue: [] for queue in teams}
    for number, segment in enumerate(manifest["segments"]):
        own = {name: arrays[f"{number}.{name}"] for name in ("slots", "starts", "moves", "steps", "ends")}
        compiled = _segment(segment, own, bases, native, board, teams[segment["queue"]], (arrays["data"], arena, slabs))
        waits = tuple(f for f in fences if f.wait == segment["index"])
        jobs[segment["queue"]].append(Job(segment["index"], cast("Delegate", _Stored()), compiled, waits))
    gate = Gate(len(jobs))
    workers = tuple(Worker(queue, tuple(js), board, gate) for queue, js in jobs.items())
    buffers = {n: _view(arena, tensors[n], place) for n, (_, _, place) in manifest["tensors"].items()}
    return Executable(
        graph, plan, manifest["soc"], arena, buffers, frozenset(), board, gate, workers, tuple(teams.values()), (scratch,), None
    )  # fmt: skip


def _segment(
    about: Mapping[str, Any], own: Mapping[str, Array], bases: Array, native: Native, board: FenceBoard, team: Team, kept: tuple[Any, ...]
) -> ProgramSegment:
    """A segment whose arguments are addresses in this process."""
    slots, moves = own["slots"], own["moves"].reshape(-1, 3)
    slots[moves[:, 0]] = bases[moves[:, 1]] + moves[:, 2]
    thunks = np.array([native.pointer(s) for s in about["thunks"]], np.int64)
    table = np.stack([thunks, _address(slots) + 8 * own["starts"]], axis=1).reshape(-1)
    steps = len(own["steps"]) - 1
    program = Program(table, own["steps"], (slots, native))
    return ProgramSegment(
        tuple(about["stamped"]), tuple(about["labels"]), (), own["ends"], True, program, counters(steps), board.stop, team, kept,
        frozenset(), lambda _: (), dict(about["refusals"]), stamps=np.zeros(steps, np.int64),
    )  # fmt: skip


def _view(arena: Arena, tensor: Tensor, place: int) -> Array:
    view: Array = arena.bytes[place : place + tensor.nbytes].view(tensor.dtype.numpy).reshape(tensor.shape)
    return view


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
