"""Where the queries, keys and values of an attention come from, and where its result goes, through reshapes and transpositions.

Inside an attention tensors are ``[batch, heads, tokens, dim]``. Files make them from rows, one a token with the heads side by
side, in several ways (with the batch or the tokens first, joined with a transposition for the product, repeated for groups
of query heads, scaled before or after); the strides of the view say whether it is that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hetsched.graph import Graph, Op
from hetsched.passes.rewriting import other_input, scalar, sole_reader
from hetsched.passes.views import LAYOUT, View

#: Sizes inside an attention: batch, heads, tokens, dim.
Sizes = tuple[int, int, int, int]
_LONGEST = 12


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor that an attention reads: ``source`` is ``[…, heads · dim]`` rows, or ``[batch, heads, tokens, dim]``.

    ``members`` are the operators between it and the product, ``scale`` what they multiply by, ``heads`` how many of
    them are different; ``transposed``: the source is ``[batch, heads, dim, tokens]``.
    """

    source: str
    members: tuple[int, ...]
    scale: float
    heads: int
    transposed: bool = False


def absorbed(graph: Graph, tensor: str, readers: Collection[int]) -> Rows | None:
    """The rows that a ``[batch, heads, tokens, dim]`` tensor is made of, if ``readers`` alone read it; None if it is not."""
    b, h, t, d = graph.tensors[tensor].shape
    found = trace(graph, tensor, readers, (b, h, t, d), scaled=False)
    return None if found is None or not found.members or len(graph.tensors[found.source].shape) > 3 else found


def trace(graph: Graph, tensor: str, readers: Collection[int], sizes: Sizes, *, swapped: bool = False, scaled: bool = True) -> Rows | None:
    """The furthest source of an operand of ``sizes``, through operators that only its ``readers`` depend on.

    ``swapped``: the operand is ``[…, dim, tokens]``, as the second one of the product of queries and keys. ``scaled``:
    multiplications by one number and casts between float types are gone through too.
    """
    best: Rows | None = None
    chain: list[int] = []
    scale, source = 1.0, tensor
    while True:
        candidate = heads_of(graph, source, chain, sizes, swapped)
        if candidate is not None:
            best = Rows(source, tuple(chain), scale, *candidate)
        step = step_back(graph, source, {*readers, *chain}, scaled)
        if step is None or len(chain) == _LONGEST:
            return best
        i, source, factor = step
        chain.insert(0, i)
        scale *= factor


def step_back(graph: Graph, tensor: str, readers: Collection[int], scaled: bool) -> tuple[int, str, float] | None:
    """The operator that writes ``tensor`` if it may be gone through: its index, what it reads, what it multiplies by."""
    i = graph.producer.get(tensor)
    if i is None or tensor in graph.outputs or any(c not in readers for c in graph.consumers.get(tensor, ())):
        return None
    op = graph.ops[i]
    if op.domain or op.body:
        return None
    if op.type in LAYOUT:
        return i, op.inputs[0], 1.0
    if scaled and op.type == "Cast" and all(graph.tensors[n].dtype.is_float for n in (op.inputs[0], tensor)):
        return i, op.inputs[0], 1.0
    factor = factor_of(graph, op) if scaled else None
    return None if factor is None else (i, *factor)


def factor_of(graph: Graph, op: Op) -> tuple[str, float] | None:
    """What a multiplication or division by one constant reads, and the factor."""
    if op.type not in {"Mul", "Div"} or op.domain:
        return None
    for k, x in enumerate(op.inputs):
        other = other_input(op, x)
        value = None if other is None else scalar(graph, other)
        if value is None or graph.tensors[x].is_constant or graph.tensors[x].shape != graph.tensors[op.outputs[0]].shape:
            continue
        if op.type == "Mul":
            return x, value
        if k == 0 and value != 0:
            return x, 1 / value
    return None


def heads_of(graph: Graph, source: str, chain: Sequence[int], sizes: Sizes, swapped: bool) -> tuple[int, bool] | None:
    """How many different heads ``source`` holds if the operand is its rows or heads, and whether it is transposed.

    ``chain``: the operators in between; those that move nothing are passed over.
    """
    shape = graph.tensors[source].shape
    view: View | None = View.of(shape)
    for i in chain:
        if view is not None and graph.ops[i].type in LAYOUT:
            view = view.through(graph, graph.ops[i])
    if view is not None and swapped:
        view = view.transposed((*range(len(view.axes) - 2), len(view.axes) - 1, len(view.axes) - 2))
    view = None if view is None else view.reshaped(sizes)
    if view is None or view.offset:
        return None
    b, h, t, d = sizes
    heads = h // _repeats(view)
    if len(shape) <= 3 and shape[-1:] == (heads * d,) and view.is_like(_expected(sizes, heads, (t * heads * d, d, heads * d, 1))):
        return heads, False
    if shape == (b, heads, t, d) and view.is_like(_expected(sizes, heads, (heads * t * d, t * d, d, 1))):
        return heads, False
    if shape == (b, heads, d, t) and view.is_like(_expected(sizes, heads, (heads * t * d, t * d, 1, t))):
        return heads, True
    return None


def _repeats(view: View) -> int:
    """How often the heads' axis repeats each head."""
    last = view.axes[1][-1:]
    return last[0][0] if last and last[0][1] == 0 else 1


def _expected(sizes: Sizes, heads: int, strides: tuple[int, int, int, int]) -> View:
    b, h, t, d = sizes
    plain = View.strided(zip((b, heads, t, d), strides, strict=True)).axes
    repeated = ((h // heads, 0),) if h > heads else ()
    return View((plain[0], plain[1] + repeated, *plain[2:]))


def result(graph: Graph, tensor: str, sizes: Sizes) -> tuple[str, tuple[int, ...]]:
    """Where the rows of an attention's result first lie as ``[…, heads · dim]``, and the operators up to there.

    ``tensor`` itself, and none, where that is nowhere or others read what lies between.
    """
    view: View | None = View.of(graph.tensors[tensor].shape)
    members: list[int] = []
    current = tensor
    while len(members) < _LONGEST:
        i = sole_reader(graph, current)
        if i is None or graph.ops[i].type not in LAYOUT - {"Expand", "Tile"} or graph.ops[i].domain or graph.ops[i].body or view is None:
            break
        view = view.through(graph, graph.ops[i])
        members.append(i)
        current = graph.ops[i].outputs[0]
        rows = graph.tensors[current].shape
        wanted = View.of(sizes).transposed((0, 2, 1, 3)).reshaped(rows)
        if view is not None and wanted is not None and len(rows) <= 3 and rows[-1] == sizes[1] * sizes[3] and view.is_like(wanted):
            return current, tuple(members)
    return tensor, ()
