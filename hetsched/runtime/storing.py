"""From a compiled plan to what a later process needs to run it: machine code, prepared arguments and packed weights.

Arguments of kernels are addresses. Each is kept as a place in a region of memory: the data (everything that was prepared when the plan
was compiled), the arena or the scratch of a queue. :mod:`hetsched.runtime.loading` is the way back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hetsched.errors import ExecutionError
from hetsched.runtime.arena import ALIGNMENT
from hetsched.runtime.delegates.programs import ProgramSegment
from hetsched.runtime.executable import Executable
from hetsched.runtime.executable_files import Array, Contents, Pieces
from hetsched.runtime.stored_code import image_about
from hetsched.runtime.worker import Job

#: Kernels may read so many bytes beyond the last array.
_SLACK = 4096
#: Beyond every address.
_FAR = 1 << 64
#: Regions: the data, the arena, then the scratch memory.
DATA, ARENA, SCRATCH = 0, 1, 2


class UnstorableError(ExecutionError):
    """An executable that cannot be stored; the message says why. It runs all the same."""


def contents_of(executable: Executable) -> Contents:
    """What a file of the executable holds.

    Raises:
        UnstorableError: it runs more than kernels, or this machine's kernels cannot be stored.
    """
    from hetsched_kernels import objects
    from hetsched_kernels.elf import UnlinkableError
    from hetsched_kernels.native import usable

    graph = executable.graph
    jobs = [(worker.queue, job) for worker in executable.workers for job in worker.jobs]
    if not usable() or any(not isinstance(job.compiled, ProgramSegment) or not job.compiled.native for _, job in jobs):
        raise UnstorableError("only plans whose every step is a kernel are stored, on x86-64 Linux")
    if any(graph.tensors[n].is_constant for n in graph.outputs):
        raise UnstorableError("an output is a constant")
    slabs = [slab for scratch in executable.scratch for slab in scratch.slabs]
    programs = [_calls(job) for _, job in jobs]
    prepared = (array for (_, job), calls in zip(jobs, programs, strict=True) for array in _prepared(job, calls))
    memory = Memory([executable.arena.whole, *slabs], prepared)
    keys = dict.fromkeys((call.kernel, call.dtypes) for calls in programs for call in calls)
    try:
        image = objects.link([*objects.OWN, *keys])
    except UnlinkableError as e:
        raise UnstorableError(f"its kernels cannot be stored: {e}") from e
    symbols = {key: objects.symbol_of(*key) for key in keys}
    arrays: dict[str, Array] = {"image": np.frombuffer(image.data, np.uint8)}
    segments = []
    for number, ((queue, job), calls) in enumerate(zip(jobs, programs, strict=True)):
        arrays |= {f"{number}.{name}": array for name, array in _program(job, calls, memory).items()}
        segments.append(
            {"index": job.index, "queue": queue, "stamped": job.compiled.stamped, "labels": job.compiled.labels,
             "refusals": [[n, call.refusal] for n, call in enumerate(calls) if call.refusal],
             "thunks": [symbols[call.kernel, call.dtypes] for call in calls]}
        )  # fmt: skip
    arrays["data.moves"] = np.array(memory.moves, np.int64).reshape(-1)
    ends = dict.fromkeys((*graph.inputs, *graph.outputs))
    manifest = {
        "name": graph.name, "soc": executable.soc, "inputs": graph.inputs, "outputs": graph.outputs,
        "arena_bytes": len(executable.arena.bytes),
        "tensors": {n: [graph.tensors[n].shape, graph.tensors[n].dtype.value, memory.place(executable.buffers[n])[1]] for n in ends},
        "scratch": [len(slab) for slab in slabs], "segments": segments,
        "placements": [[p.op, p.seconds] for p in executable.plan.placements],
        "fences": [[f.signal, f.wait, f.mode] for f in executable.plan.fences],
        "own": [objects.symbol_of(*key) for key in objects.OWN],
        "image": image_about(image),
    }  # fmt: skip
    return Contents(manifest, arrays, {"data": memory.data()})


def _calls(job: Job) -> list[Any]:
    from hetsched_kernels.program import Call

    return [kept for kept in job.compiled.program.kept if isinstance(kept, Call)]


def _prepared(job: Job, calls: Sequence[Any]) -> Iterator[Array]:
    """Every array that a segment's kernels know."""
    from hetsched_kernels.program import array_slots

    yield from job.compiled.kept
    for call in calls:
        yield from (call.args[position] for position in array_slots(call))


def _program(job: Job, calls: Sequence[Any], memory: Memory) -> dict[str, Array]:
    """The arrays of a segment's program; ``moves`` are rows of slot, region and offset.

    Raises:
        UnstorableError: a kernel writes to what was prepared for it.
    """
    from hetsched_kernels.program import array_slots, slots_of

    slots, moves, starts = [], [], [0]
    for call in calls:
        words = slots_of(call)
        for position, slot in array_slots(call).items():
            array = call.args[position]
            region, offset = memory.place(array)
            if region == DATA and array.size and position in call.kernel.written_arguments:
                raise UnstorableError(f"the kernel {call.kernel.name} writes to what was prepared for it")
            moves.append((starts[-1] + slot, region, offset))
            words[slot] = 0
            if position in call.kernel.address_arguments:
                memory.move_addresses(array)
        slots.append(words)
        starts.append(starts[-1] + len(words))
    return {
        "slots": np.concatenate([*slots, np.zeros(0, np.int64)]),
        "starts": np.array(starts[:-1], np.int64),
        "moves": np.array(moves, np.int64).reshape(-1),
        "steps": job.compiled.program.steps,
        "ends": job.compiled.ends,
    }


class Memory:
    """Where arrays are: in a region that is there anyway (arena, scratch), or in the data, which holds all other ``arrays`` once."""

    def __init__(self, regions: Sequence[Array], arrays: Iterable[Array]) -> None:
        self.moves: list[tuple[int, int, int]] = []
        self._regions = [(_address(r), r.nbytes) for r in regions]
        self._arrays = {(_address(a), a.nbytes): a for a in arrays if a.size and self._region(_address(a)) is None}
        self._spans: list[tuple[int, int, int]] = []  # address, address of the end, place in the data
        at = 0
        for start, end in _merged((a, a + n) for a, n in self._arrays):
            at += (start - at) % ALIGNMENT  # arrays keep their alignment: the data begins on a page
            self._spans.append((start, end, at))
            at += end - start
        self._size = at + _SLACK

    def place(self, array: Array) -> tuple[int, int]:
        """Region and offset of an array."""
        return self._find(_address(array)) or (DATA, 0)  # nobody reads an empty array

    def move_addresses(self, array: Array) -> None:
        """Let an array of addresses hold them again when the data has been loaded.

        Raises:
            UnstorableError: an address is of an array that is not known.
        """
        _, start = self.place(array)
        for i, value in enumerate(array.tolist()):
            found = self._find(value)
            if found is None:
                raise UnstorableError("an argument is the address of an unknown array")
            self.moves.append((start + 8 * i, *found))

    def data(self) -> Pieces:
        """The data, with zeros where an address has to be put.

        Raises:
            UnstorableError: it holds addresses that no kernel declares (``InAddress``).
        """
        of_span: dict[int, list[tuple[int, Array]]] = {place: [] for _, _, place in self._spans}
        for (address, _), array in self._arrays.items():
            start, _, place = self._spans[self._span(address)]
            of_span[place].append((address - start, array.reshape(-1).view(np.uint8)))
        moved = sorted(place for place, _, _ in self.moves)
        parts = []
        for start, end, place in self._spans:
            own = moved[bisect_left(moved, place) : bisect_left(moved, place + end - start)]
            part = _joined(of_span[place], end - start, bool(own))
            for word in own:
                part[word - place : word - place + 8] = 0
            if self._holds_addresses(part[-start % 8 :]):
                raise UnstorableError("an array holds addresses, and no kernel says that it does")
            parts.append((place, part))
        return Pieces(self._size, tuple(parts))

    def _holds_addresses(self, data: Array) -> bool:
        words = data[: len(data) // 8 * 8].view(np.int64)
        ends = [*((a, a + n) for a, n in self._regions), *((a, e) for a, e, _ in self._spans)]
        low, high = min(a for a, _ in ends), max(e for _, e in ends)
        return any(self._find(value) is not None for value in words[(words >= low) & (words < high)].tolist())

    def _span(self, address: int) -> int:
        """Number of the last span that does not begin after an address; -1 if all do."""
        return bisect_right(self._spans, (address, _FAR, 0)) - 1

    def _region(self, address: int) -> tuple[int, int] | None:
        return next(((ARENA + i, address - a) for i, (a, n) in enumerate(self._regions) if 0 <= address - a < n), None)

    def _find(self, address: int) -> tuple[int, int] | None:
        """Region and offset of an address, None if it is in no array."""
        found = self._region(address)
        if found is None:
            start, end, place = self._spans[at] if (at := self._span(address)) >= 0 else (0, 0, 0)
            found = (DATA, place + address - start) if address < end else None
        return found


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Spans in order, those that overlap as one."""
    open_: tuple[int, int] | None = None
    for start, end in sorted(spans):
        if open_ is not None and start < open_[1]:
            open_ = open_[0], max(open_[1], end)
            continue
        if open_ is not None:
            yield open_
        open_ = start, end
    if open_ is not None:
        yield open_


def _joined(arrays: Sequence[tuple[int, Array]], nbytes: int, changed: bool) -> Array:
    """The bytes of a span that ``arrays`` cover together: themselves if it is one that will not be changed."""
    if len(arrays) == 1 and not changed:
        return arrays[0][1]
    out = np.zeros(nbytes, np.uint8)
    for at, array in arrays:
        out[at : at + array.nbytes] = array
    return out


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
