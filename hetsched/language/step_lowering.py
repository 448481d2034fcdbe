"""From a decoder's graph to the program of its steps.

The graph of one new token (:mod:`hetsched.frontends`) is lowered operator by operator. Every activation is a matrix with a row per
token, so that the number of rows, the position and the length of the context are run-time values (:mod:`hetsched.language.run_values`)
and attention reads a paged cache. Products are split among the threads by columns, other operators by rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hetsched.graph import Graph
from hetsched.language.adapters import Adapter
from hetsched.language.building import Building
from hetsched.language.fusion import Fused, fuse, scores_of
from hetsched.language.host_values import derived_from
from hetsched.language.pages import PagePool
from hetsched.language.precision import Precision
from hetsched.language.program_words import Assembled, assemble
from hetsched.language.states import state_elements
from hetsched.language.step import Step
from hetsched.language.step_attention import attention
from hetsched.language.step_experts import mixture, router
from hetsched.language.step_products import gate, product
from hetsched.language.step_rows import arithmetic, function, layer_norm, norm, rotary, split
from hetsched.language.step_states import convolution, scan
from hetsched.language.step_values import newest_values, variables, window_values
from hetsched.language.weights import PackedStore

_LOWERINGS: Mapping[str, Callable[[Building, Fused], None]] = {
    "norm": norm, "layer_norm": layer_norm, "product": product, "gate": gate, "rotary": rotary, "attention": attention,
    "arithmetic": arithmetic, "function": function, "split": split, "router": router, "mixture": mixture,
    "convolution": convolution, "scan": scan,
}  # fmt: skip


class Lowered(NamedTuple):
    """A step, and what it was made of."""

    step: Step
    assembled: Assembled
    building: Building


def lower(
    graph: Graph, pool: PagePool, store: PackedStore, *, capacity: int, scores: int, threads: int, context: int, precision: Precision,
    adapter: Adapter | None = None,
) -> Lowered:  # fmt: skip
    """The step of ``graph``, the decode step of one token, with what an adapter adds to its products.

    Args:
        graph: the graph.
        pool: the paged cache.
        store: packed weights.
        capacity: most new tokens.
        scores: most rows, the last ones, whose scores are computed.
        threads: threads that run it.
        context: most tokens of a sequence.
        precision: how activations meet the weights.
        adapter: an adapter; None: none.

    Raises:
        UnsupportedModelError: an operator has no kernel here.
    """
    b = Building(graph, pool, store, capacity, scores, threads, context, precision)
    b.adapter = adapter
    early = derived_from(graph, "input_ids") | derived_from(graph, "position_ids")
    fused = fuse(graph, early, precision, frozenset(() if adapter is None else adapter.low))
    result, first, labels = b.source(scores_of(graph)), fused[0].reads[0], list[str]()
    embedded = b.write(first)[: capacity * b.width(first)].reshape(capacity, -1)
    uses = Counter(n for one in fused for n in one.reads)
    for one in fused:
        b.tail = b.tail or one.last
        _LOWERINGS[one.kind](b, one)
        labels += [one.op.name] * (len(b.steps) - len(labels))
        for name in one.reads:
            uses[name] -= 1
            if uses[name] == 0 and name != result:
                b.forget(name)
    logits = b.read(result)[: scores * b.width(result)].reshape(scores, -1)
    windows = tuple(sorted({op.attr_int("window", 0) for op in graph.ops if op.type == "GroupQueryAttention"}))
    names = (*variables(b.row_parts), *window_values(windows, 0), *newest_values(0, 0, 0, 0))
    made, states = assemble(b.steps, names), b.states[: state_elements(graph)]
    step = Step(first, embedded, logits, b.pages, states, made.program, labels, b.row_parts, windows, pool.shape.page)
    return Lowered(step, made, b)
