"""Steps that are kept between processes: a later one needs no compiler and lowers nothing.

Kernels' arguments are addresses. Each is kept as a region of memory and an offset: in storage that every process has (the cache's pages,
the packed weights, scratch) or in the data, which holds all that was prepared for the step (:mod:`hetsched.runtime.storing`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph
from hetsched.language.decode_graph import weight_paths
from hetsched.language.pages import PagePool
from hetsched.language.precision import Precision
from hetsched.language.run_values import Bindings, RunTimeProgram
from hetsched.language.step import Step
from hetsched.language.weights import PackedStore
from hetsched.runtime import executable_cache as cache
from hetsched.runtime.arena import ALIGNMENT
from hetsched.runtime.executable_files import Contents
from hetsched.runtime.stored_code import image_about, native_of
from hetsched_kernels.tables import Program

if TYPE_CHECKING:
    from hetsched.language.adapters import Adapter
    from hetsched.language.step_lowering import Lowered
    from hetsched_kernels.program import Call

Array = npt.NDArray[Any]
#: A step that holds more of its own than this (weights that were decoded) is not kept.
_LIMIT_BYTES = 256 << 20
_ANY_TIME_NS = 1 << 62
#: What kernels may read beyond the last array.
_SLACK = 4096


class Wanted(NamedTuple):
    """Which step it is; all that its program depends on, beside the sources and the processor.

    Attributes:
        graph: the model's decode step.
        pool: the paged cache.
        precision: how activations meet the weights.
        capacity: most new tokens.
        scores: most rows whose scores are computed.
        threads: threads that run it.
        context: most tokens of a sequence.
    """

    graph: Graph
    pool: PagePool
    precision: Precision
    capacity: int
    scores: int
    threads: int
    context: int

    @property
    def key(self) -> str:
        """The name of its entry."""
        pool, precision = self.pool, self.precision
        return cache.key_for(
            {"step": self.graph.sha256, "files": [str(p.resolve()) for p in weight_paths(self.graph)],
             "operators": [op.name for op in self.graph.ops], "pages": pool.capacity, "geometry": pool.geometry.tolist(),
             "recent": pool.recent.memory.shape, "precision": [precision.name, *precision.protected], "capacity": self.capacity,
             "scores": self.scores, "threads": self.threads, "context": self.context}
        )  # fmt: skip


def step_of(wanted: Wanted, store: PackedStore, began_ns: int, adapter: Adapter | None = None) -> Step:
    """A step: as an earlier process kept it, or lowered, compiled and kept for the next. Those of an adapter are not kept.

    Args:
        wanted: which step it is.
        store: its packed weights; those that are new are saved.
        began_ns: a time (``time.time_ns``) before the model was read.
        adapter: what is added to its products; None: nothing.

    Raises:
        UnsupportedModelError: an operator has no kernel here.
    """
    if adapter is None and (found := _find(wanted, store)) is not None:
        return found
    from hetsched.language.step_lowering import lower

    lowered = lower(
        wanted.graph, wanted.pool, store, capacity=wanted.capacity, scores=wanted.scores, threads=wanted.threads, context=wanted.context,
        precision=wanted.precision, adapter=adapter,
    )  # fmt: skip
    store.save()
    if adapter is None:
        _keep(wanted, lowered, store, began_ns)
    return lowered.step


def _find(wanted: Wanted, store: PackedStore) -> Step | None:
    """The step that an earlier process kept, if its model and packed weights are what they were."""
    contents = cache.find(wanted.key)
    if contents is None or not store.adopt(Path(contents.manifest["weights"]), contents.manifest["decoded"]):
        return None
    try:
        return _loaded(contents, wanted.pool, store)
    except OSError:
        return None


def _keep(wanted: Wanted, lowered: Lowered, store: PackedStore, began_ns: int) -> None:
    """Keep a step, where that is possible: its weights are packed in a file, and its kernels can be linked."""
    from hetsched.runtime.storing import UnstorableError

    if not store.complete:
        return
    files = cache.identities(weight_paths(wanted.graph), began_ns)
    packed = cache.identities([store.path], _ANY_TIME_NS)  # it may be new: it is replaced, never changed
    if files is None or packed is None:
        return
    try:
        contents = _contents(wanted, lowered, store)
    except UnstorableError:
        return
    if contents.nbytes <= _LIMIT_BYTES:
        cache.store(wanted.key, contents._replace(manifest={**contents.manifest, "files": [*files, *packed]}))


def _contents(wanted: Wanted, lowered: Lowered, store: PackedStore) -> Contents:
    """What a file of a step holds.

    Raises:
        UnstorableError: a kernel writes to what was prepared for it, or cannot be linked.
    """
    from hetsched.runtime.storing import DATA, Memory, UnstorableError
    from hetsched_kernels import objects
    from hetsched_kernels.elf import UnlinkableError

    step, made, building = lowered
    mapped = store.regions()
    fixed = [*_of_process(wanted.pool, step.pages), step.program.words]
    memory = Memory([*fixed, *(a for a, _ in mapped), *building.scratches], (a for _, a in (*made.pointers, *made.bases)))
    known: dict[int, tuple[int, int]] = {}

    def place(array: Array) -> tuple[int, int]:
        if (address := _address(array)) not in known:
            known[address] = memory.place(array)
        return known[address]

    moves, written = [], _written(made.calls, made.starts)
    for at, array in made.pointers:
        region, offset = place(array) if array.size else (DATA, 0)
        if region == DATA and array.size and at in written:
            raise UnstorableError(f"the kernel {written[at]} writes to what was prepared for it")
        moves.append((at, region, offset))
    for array in _of_addresses(made.calls):
        memory.move_addresses(array)
    keys = {key: n for n, key in enumerate(dict.fromkeys((call.kernel, call.dtypes) for call in made.calls))}
    try:
        image = objects.link(keys)
    except (UnlinkableError, OSError) as e:
        raise UnstorableError(f"its kernels cannot be stored: {e}") from e
    manifest = {
        "input": step.input, "labels": list(step.labels), "parts": step.parts, "windows": step.windows, "page": step.page,
        "variables": step.program.variables, "pages": step.pages.size, "weights": str(store.path), "decoded": store.decoded_bytes,
        "embedded": [*place(step.embedded), step.embedded.shape], "logits": [*place(step.logits), step.logits.shape],
        "states": [*place(building.states), step.states.shape], "mapped": [offset for _, offset in mapped],
        "scratch": [a.nbytes for a in building.scratches], "image": image_about(image),
        "symbols": [objects.symbol_of(*key) for key in keys],
    }  # fmt: skip
    words, bound = step.program.words.copy(), step.program.bindings
    words[[move[0] for move in moves]] = 0
    plus = bound.plus.copy()
    for number, array in made.bases:
        plus[number] -= _address(array)
    arrays = {
        "words": words, "moves": _rows(moves), "thunks": np.array([keys[c.kernel, c.dtypes] for c in made.calls], np.int64),
        "starts": np.array(made.starts, np.int64), "steps": step.program.program.steps, "image": np.frombuffer(image.data, np.uint8),
        "bindings": np.concatenate([*bound[:3], plus]), "bases": _rows([(n, *place(a)) for n, a in made.bases]),
        "data.moves": _rows(memory.moves),
    }  # fmt: skip
    return Contents(manifest, arrays, {"data": memory.data()})


def _loaded(contents: Contents, pool: PagePool, store: PackedStore) -> Step:
    """The step of a file.

    Raises:
        OSError: this system does not let its code run.
    """
    manifest, arrays = contents.manifest, contents.arrays
    native, words, pages = native_of(contents), arrays["words"], np.zeros(manifest["pages"], np.int64)
    scratches = _scratches(manifest["scratch"])
    mapped = [store.whole[at:] for at in manifest["mapped"]]
    regions = [arrays["data"], *_of_process(pool, pages), words, *mapped, *scratches]
    start = np.array([_address(a) for a in regions], np.int64)
    for at, region, offset in arrays["data.moves"].reshape(-1, 3).tolist():
        arrays["data"][at : at + 8].view(np.int64)[0] = start[region] + offset
    moves, bases, bindings = arrays["moves"].reshape(-1, 3), arrays["bases"].reshape(-1, 3), Bindings(*arrays["bindings"].reshape(4, -1))
    words[moves[:, 0]] = start[moves[:, 1]] + moves[:, 2]
    bindings.plus[bases[:, 0]] += start[bases[:, 1]] + bases[:, 2]
    thunks = np.array([native.pointer(s) for s in manifest["symbols"]], np.int64)[arrays["thunks"]]
    table = np.stack([thunks, _address(words) + 8 * arrays["starts"]], axis=1).reshape(-1)
    program = RunTimeProgram(manifest["variables"], words, bindings, Program(table, arrays["steps"], (native, regions)))

    def view(name: str) -> Array:
        region, offset, shape = manifest[name]
        array: Array = regions[region][offset : offset + 4 * math.prod(shape)].view(np.float32).reshape(shape)
        return array

    return Step(
        manifest["input"], view("embedded"), view("logits"), pages, view("states"), program, manifest["labels"], manifest["parts"],
        tuple(manifest["windows"]), manifest["page"],
    )  # fmt: skip


def _of_process(pool: PagePool, pages: Array) -> list[Array]:
    """Memory that every process has for a step, in this order."""
    return [pool.memory, pool.geometry, pool.recent.memory, pool.recent.geometry, pages]


def _scratches(sizes: Sequence[int]) -> list[Array]:
    """Zeroed memory of so many bytes each, each on a cache line and with room behind."""
    places = [0, *accumulate(n + -n % ALIGNMENT for n in sizes)]
    whole = np.zeros(places[-1] + ALIGNMENT + _SLACK, np.uint8)
    begin = -_address(whole) % ALIGNMENT
    return [whole[begin + at : begin + at + n] for at, n in zip(places, sizes, strict=False)]


def _written(calls: Sequence[Call], starts: Sequence[int]) -> dict[int, str]:
    """Words that are addresses of what a kernel writes, and its name."""
    from hetsched_kernels.program import array_slots

    out: dict[int, str] = {}
    for call, start in zip(calls, starts, strict=True):
        slots = array_slots(call)
        out |= {start + slots[p]: call.kernel.name for p in call.kernel.written_arguments if p in slots}
    return out


def _of_addresses(calls: Sequence[Call]) -> list[Array]:
    """Arrays of addresses that kernels read, each once."""
    return list({id(call.args[p]): call.args[p] for call in calls for p in call.kernel.address_arguments}.values())


def _rows(rows: Sequence[tuple[int, int, int]]) -> Array:
    return np.array(rows, np.int64).reshape(-1)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
