"""Attention that is written out: scores, scale, mask, softmax, weighted sum of the values, with the caches before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hetsched.graph import AttrValue, Graph
from hetsched.passes.attention_cache import Memory, memory
from hetsched.passes.attention_core import Core, core_of
from hetsched.passes.attention_layout import Rows, Sizes, result, trace
from hetsched.passes.regions import is_convex
from hetsched.passes.rewriting import Fusion, apply, fused, sole_reader

_SOFTMAX = frozenset({"Softmax", "FusedSoftmax"})


@dataclass(frozen=True)
class FuseAttention:
    """``softmax(q · kᵀ · scale + mask) · v`` → Attention, with the reshapes, transpositions and caches around it."""

    name: ClassVar[str] = "fuse-attention"
    requires: ClassVar[tuple[str, ...]] = ("softmax-fused", "rotary-fused", "matmul-fused")
    ensures: ClassVar[tuple[str, ...]] = ("attention-fused",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with attention fused."""
        found = (_fusion(graph, i) for i, op in enumerate(graph.ops) if op.type in _SOFTMAX and not op.domain)
        return apply(graph, [f for f in found if f is not None])


def _fusion(graph: Graph, softmax: int) -> Fusion | None:
    core = core_of(graph, softmax)
    if core is None or _is_mask_of_matrices(graph, core):
        return None
    for sizes in _sizes(graph, core):
        found = _assemble(graph, core, *sizes)
        if found is not None:
            return found
    return None


def _is_mask_of_matrices(graph: Graph, core: Core) -> bool:
    """Whether the mask has a matrix for each of ``[batch · heads, …]``, which no mask of an Attention has."""
    shape = graph.tensors[core.mask].shape if core.mask else ()
    return len(shape) == 3 and shape[0] > 1


def _sizes(graph: Graph, core: Core) -> Iterator[tuple[Sizes, Sizes, Sizes, Sizes]]:
    """Sizes of queries, keys, values and result; the heads of a product of matrices ``[batch · heads, …]`` are tried."""
    scores, mixed = graph.ops[core.scores], graph.ops[core.mixed]
    q, k = (graph.tensors[n].shape for n in scores.inputs)
    v, y = (graph.tensors[n].shape for n in (core.values(graph), mixed.outputs[0]))
    if not len(q) == len(k) == len(v) == len(y) or any(s[:-2] != q[:-2] for s in (k, v, y)):
        return
    v, y = ((*s[:-2], s[-1], s[-2]) if core.swapped else s for s in (v, y))
    heads = [q[1]] if len(q) == 4 else [h for h in _possible_heads(graph, mixed.outputs[0]) if q[0] % h == 0]
    for h in heads:
        lead = q[:2] if len(q) == 4 else (q[0] // h, h)
        yield (*lead, q[-2], q[-1]), (*lead, k[-1], k[-2]), (*lead, v[-2], v[-1]), (*lead, y[-2], y[-1])


def _possible_heads(graph: Graph, mixed: str) -> list[int]:
    """How many heads matrices ``[batch · heads, tokens, dim]`` may have, from the widths of what is made of them; 1 last."""
    found: list[int] = []
    dim = graph.tensors[mixed].shape[-1]
    for _ in range(6):
        i = sole_reader(graph, mixed)
        if i is None:
            break
        mixed = graph.ops[i].outputs[0]
        width = graph.tensors[mixed].shape[-1:]
        if width and width[0] > dim and width[0] % dim == 0:
            found.append(width[0] // dim)
    return list(dict.fromkeys([*found, 1]))


def _assemble(graph: Graph, core: Core, q: Sizes, k: Sizes, v: Sizes, y: Sizes) -> Fusion | None:
    query, kept = trace(graph, graph.ops[core.scores].inputs[0], {core.scores}, q), memory(graph, core, k, v)
    if query is None or kept is None or kept.key.heads != kept.value.heads or query.heads != q[1]:
        return None
    mixed = graph.ops[core.mixed].outputs[0]
    out, tail = (mixed, ()) if core.swapped else result(graph, mixed, y)
    if len(graph.tensors[out].shape) == 3 and not tail and (y[1] > 1 or core.swapped):
        return None
    members = tuple(sorted({*core.members, *query.members, *kept.members, *tail}))
    if kept.present and not is_convex(graph, members):
        return None
    attrs = {**_attributes(core, query, kept, q), "y_shape": graph.tensors[out].shape}
    inputs = [query.source, kept.key.source, kept.value.source, core.mask, *kept.past]
    while not inputs[-1]:
        inputs.pop()
    op = fused([graph.ops[m] for m in members], "Attention", inputs, attrs, nested=True, outputs=(out, *kept.present))
    return Fusion(members, op)


def _attributes(core: Core, query: Rows, kept: Memory, sizes: Sizes) -> dict[str, AttrValue]:
    attrs: dict[str, AttrValue] = {
        "q_num_heads": sizes[1], "kv_num_heads": kept.key.heads, "scale": core.scale * query.scale * kept.key.scale, "is_causal": 0,
        "softcap": core.softcap, "batch": sizes[0],
    }  # fmt: skip
    turned = (("query", query.transposed), ("key", kept.key.transposed), ("value", kept.value.transposed), ("y", core.swapped))
    attrs.update((f"{name}_transposed", 1) for name, is_turned in turned if is_turned)
    if core.keeps:
        attrs |= {"mask_inverted": int(core.keeps < 0), "mask_fill": core.fill}
    return attrs
