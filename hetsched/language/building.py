"""Storage and kernel calls of a step while it is put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph
from hetsched.language.adapters import Adapter
from hetsched.language.host_values import value_of
from hetsched.language.pages import PagePool
from hetsched.language.precision import Precision
from hetsched.language.states import state_elements, state_places
from hetsched.language.step_values import FEW_TOKENS, SCORES, Part, parts_of
from hetsched.language.weights import PackedStore
from hetsched.reference.gguf_types import constant_value
from hetsched.runtime.arena import aligned_copy, aligned_empty
from hetsched_kernels.program import Call

Array = npt.NDArray[Any]
#: Parts of the rows for each thread, where there are many rows; few rows have one.
_PARTS = 2
#: Kernels may read so many elements beyond the last of a matrix.
_SLACK = 64


class Building:
    """Matrices of a step, with a row for each of up to ``capacity`` tokens, and the calls so far.

    A matrix's storage is used again once the operators that read it are done. Calls join the step before (the program's threads run
    them side by side) where neither touches what the other writes.

    Attributes:
        graph: the decode graph of one token.
        pool: the paged cache.
        store: packed weights.
        capacity: most new tokens.
        scores: most rows whose scores are computed.
        threads: threads that run the program.
        context: most tokens of a sequence.
        precision: how activations meet the weights.
        pages: int64, the page numbers of the sequence at work.
        states: float32, its states of a fixed size.
        adapter: what is added to products; None: nothing.
        tail: whether only rows that are scored are computed from here on.
        steps: the calls.
        scratches: storage that is written before it is read, or begins as zeros.
    """

    def __init__(
        self, graph: Graph, pool: PagePool, store: PackedStore, capacity: int, scores: int, threads: int, context: int, precision: Precision
    ) -> None:  # fmt: skip
        self.graph, self.pool, self.store, self.precision = graph, pool, store, precision
        self.capacity, self.scores, self.threads, self.context = capacity, scores, threads, context
        self.scratches: list[Array] = []
        self.pages: Array = np.zeros(-(-context // pool.shape.page) + 1, np.int64)
        self.states, self._places = self.scratch(state_elements(graph)), state_places(graph)
        self.tail = False
        self.adapter: Adapter | None = None
        self.steps: list[list[Call]] = []
        self.quantized: dict[tuple[str, int, int], str] = {}
        self.layers = 0
        self._all_rows = parts_of(threads if capacity <= FEW_TOKENS else _PARTS * threads)
        self._same = {op.outputs[0]: op.inputs[0] for op in graph.ops if op.type in ("Reshape", "Identity")}
        self._touched: set[str] = set()
        self._read: set[str] = set()
        self._arrays: dict[str, Array] = {}
        self._free: dict[int, list[Array]] = {}
        self._leaving: list[Array] = []
        self._kept: dict[str, Array] = {}
        self._turns: dict[str, int] = {}

    @property
    def parts(self) -> tuple[Part, ...]:
        """The rows that operators work on here, in parts."""
        return (SCORES,) if self.tail else self._all_rows

    @property
    def whole(self) -> Part:
        """All of them."""
        return SCORES if self.tail else Part("", "rows")

    @property
    def row_parts(self) -> int:
        """Parts that a step's rows have before the last norm."""
        return len(self._all_rows)

    @property
    def most(self) -> int:
        """Most rows here."""
        return self.scores if self.tail else self.capacity

    def source(self, name: str) -> str:
        """The tensor whose rows ``name`` has: a Reshape keeps rows as they are."""
        while name in self._same:
            name = self._same[name]
        return name

    def width(self, name: str) -> int:
        """Elements of a tensor's row."""
        return self.graph.tensors[name].elements

    def read(self, name: str) -> Array:
        """A tensor's rows, flat."""
        return self._arrays[self.source(name)]

    def write(self, name: str) -> Array:
        """Storage for a tensor's rows, flat."""
        size = self.most * self.width(name) + _SLACK
        free = self._free.get(size)
        self._arrays[name] = free.pop() if free else self.scratch(size)
        return self._arrays[name]

    def forget(self, name: str) -> None:
        """A tensor is read no more."""
        array = self._arrays.pop(self.source(name), None)
        if array is not None:
            self._leaving.append(array)

    def scratch(self, elements: int, dtype: npt.DTypeLike = np.float32) -> Array:
        """Storage of its own, zeroed."""
        out = aligned_empty((max(int(elements), 1),), dtype)
        out.fill(0)
        self.scratches.append(out)
        return out

    def keep(self, key: str, elements: int, dtype: npt.DTypeLike = np.float32) -> Array:
        """Storage that all who name ``key`` share."""
        if key not in self._kept or self._kept[key].size < elements:
            self._kept[key] = self.scratch(elements, dtype)
        return self._kept[key]

    def turn(self, key: str, elements: int, many: int) -> Array:
        """One of ``many`` pieces of scratch in turn: so many calls may have theirs at once."""
        self._turns[key] = (self._turns.get(key, -1) + 1) % many
        return self.keep(f"{key} {self._turns[key]}", elements)

    def constant(self, name: str, plus: float = 0.0) -> Array:
        """A small constant as float32, flat."""
        key = f"{name} plus {plus}"
        if key not in self._kept:
            self._kept[key] = aligned_copy(constant_value(self.graph.tensors[name]).astype(np.float32).reshape(-1) + np.float32(plus))
        return self._kept[key]

    def angles(self, name: str) -> Array:
        """Cosines or sines of every position up to the context limit, [positions · pairs]."""
        if name not in self._kept:
            positions = np.arange(self.context + self.capacity)
            self._kept[name] = aligned_copy(value_of(self.graph, name, "position_ids", positions).astype(np.float32).reshape(-1))
        return self._kept[name]

    def state(self, name: str) -> Array:
        """The state of a fixed size that is called ``name`` after a step."""
        return self.states[self._places[name]]

    def next_layer(self) -> int:
        """The number of the next layer with attention."""
        self.layers += 1
        return self.layers - 1

    def emit(self, calls: Sequence[Call], reads: Sequence[str], writes: Sequence[str]) -> None:
        """Add calls that do not depend on each other. ``reads`` and ``writes`` name tensors or other storage."""
        read, written = {self.source(n) for n in reads}, {self.source(n) for n in writes}
        if not self.steps or (read | written) & self._touched or written & self._read:
            self.steps.append([])
            self._touched, self._read = set(), set()
            for array in self._leaving:
                self._free.setdefault(array.size, []).append(array)
            self._leaving = []
        self.steps[-1].extend(calls)
        self._touched |= written
        self._read |= read
