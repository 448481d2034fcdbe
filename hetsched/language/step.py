"""A decoder's step as one program: any number of new tokens up to a limit, after any number of cached ones.

The graph of one new token (:mod:`hetsched.frontends`) is lowered operator by operator. Every activation is a matrix with a row per
token, so that the number of rows, the position and the length of the context are run-time values (:mod:`hetsched.language.run_values`)
and attention reads a paged cache. Products are split among the threads by columns, other operators by rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

from hetsched.graph import Graph
from hetsched.language.adapters import Adapter
from hetsched.language.building import Building
from hetsched.language.fusion import Fused, fuse, scores_of
from hetsched.language.host_values import derived_from
from hetsched.language.pages import PagePool
from hetsched.language.precision import Precision
from hetsched.language.run_values import RunTimeProgram
from hetsched.language.states import state_elements
from hetsched.language.step_attention import attention
from hetsched.language.step_experts import mixture, router
from hetsched.language.step_products import gate, product
from hetsched.language.step_rows import arithmetic, function, layer_norm, norm, rotary, split
from hetsched.language.step_states import convolution, scan
from hetsched.language.step_values import newest_values, values, variables, window_values
from hetsched.language.weights import PackedStore

Array = npt.NDArray[Any]

_LOWERINGS: Mapping[str, Callable[[Building, Fused], None]] = {
    "norm": norm, "layer_norm": layer_norm, "product": product, "gate": gate, "rotary": rotary, "attention": attention,
    "arithmetic": arithmetic, "function": function, "split": split, "router": router, "mixture": mixture,
    "convolution": convolution, "scan": scan,
}  # fmt: skip


class Step:
    """The program of a step of up to ``capacity`` new tokens.

    Attributes:
        capacity: most new tokens.
        scores: most rows, the last ones, whose scores are computed.
        input: the tensor that ``embedded`` holds.
        embedded: float32 [capacity, hidden], the embedded tokens: written before a run.
        logits: float32 [scores, vocabulary], after a run.
        pages: int64, the page numbers of the sequence at work: written before a run.
        states: float32, its states of a fixed size: written before a run, new after it.
        program: the compiled program.
    """

    def __init__(
        self, graph: Graph, pool: PagePool, store: PackedStore, *, capacity: int, scores: int, threads: int, context: int,
        precision: Precision, adapter: Adapter | None = None,
    ) -> None:  # fmt: skip
        """Lower ``graph``, the decode step of one token, with what an adapter adds to its products.

        Raises:
            UnsupportedModelError: an operator has no kernel here.
        """
        building = Building(graph, pool, store, capacity, scores, threads, context, precision)
        building.adapter = adapter
        positions = derived_from(graph, "position_ids")
        fused = fuse(graph, derived_from(graph, "input_ids") | positions, precision, frozenset(() if adapter is None else adapter.low))
        uses = Counter(n for one in fused for n in one.reads)
        result = building.source(scores_of(graph))
        self.capacity, self.scores = capacity, scores
        self.input = fused[0].reads[0]
        self.embedded: Array = building.write(self.input)[: capacity * building.width(self.input)].reshape(capacity, -1)
        for one in fused:
            building.tail = building.tail or one.last
            _LOWERINGS[one.kind](building, one)
            for name in one.reads:
                uses[name] -= 1
                if uses[name] == 0 and name != result:
                    building.forget(name)
        self.logits: Array = building.read(result)[: scores * building.width(result)].reshape(scores, -1)
        self.pages, self.states = building.pages, building.states[: state_elements(graph)]
        windows = tuple(sorted({op.attr_int("window", 0) for op in graph.ops if op.type == "GroupQueryAttention"}))
        names = (*variables(building.row_parts), *window_values(windows, 0), *newest_values(0, 0, 0, 0))
        self.program = RunTimeProgram(building.steps, names)
        self._parts, self._windows, self._page = building.row_parts, windows, pool.shape.page

    def prepare(self, rows: int, position: int, scored: int, window: int = 0, fresh: int = 0) -> None:
        """Write the run-time values of the next run.

        Args:
            rows: new tokens.
            position: position of the first.
            scored: how many of the last rows' scores are wanted.
            window: tokens that each new one sees at most (0: all).
            fresh: tokens before them that are in float16, beside a cache of fewer bits.
        """
        newest = newest_values(rows, position, fresh, self._page)
        self.program.set(values(self._parts, rows, position, scored) | window_values(self._windows, window) | newest)
