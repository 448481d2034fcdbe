"""The work of the composites of language models: attention over a cache, experts, convolution and scan with states.

``docs/language_models.md`` says what they compute. Activations are matrices with a row per token. States are kept in place,
as runtimes do: an attention reads the cached positions once and writes those of the new tokens only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hetsched.graph import Graph, Op, Role


@dataclass(frozen=True, slots=True)
class LanguageWork:
    """``macs`` of class ``cls`` in products of ``m`` x ``n`` x ``k``; ``exponentials``: elements of exp, sigmoid or the like."""

    macs: float
    cls: str
    m: float
    n: float
    k: float
    exponentials: float = 0.0


def language_work(graph: Graph, op: Op) -> LanguageWork | None:
    """Multiply-accumulates and exponentials of a composite; None for any other operator."""
    rule = _RULES.get(op.type)
    return None if rule is None else rule(graph, op)


def visible_pairs(queries: int, past: int, window: int) -> int:
    """Pairs of a query and a key that it sees: query ``i`` of ``queries`` sees the ``past`` + i + 1 latest, at most ``window`` (0: all).

    Examples:
        >>> visible_pairs(3, 2, 0), visible_pairs(3, 2, 4), visible_pairs(1, 3, 4)
        (12, 11, 4)
    """
    growing = queries if window == 0 else min(queries, max(0, window - past))
    return growing * past + growing * (growing + 1) // 2 + (queries - growing) * window


def state_bytes(graph: Graph, op: Op) -> float:
    """Bytes of states that a composite reads and writes, as they are stored, whatever the precision."""
    if op.type not in STATEFUL:
        return 0.0
    read = sum(graph.tensors[n].nbytes for n in op.inputs if is_state(graph, op, n))
    written = sum(graph.tensors[n].nbytes * _share_written(graph, op, n) for n in op.outputs if is_state(graph, op, n))
    return float(read + written)


def is_state(graph: Graph, op: Op, name: str) -> bool:
    """Whether ``name`` is a state of a composite, counted by :func:`state_bytes` and not among the activations."""
    return bool(name) and op.type in STATEFUL and graph.tensors[name].role is Role.STATE


def weight_share(op: Op, stored: int) -> float:
    """Share of the ``stored`` bytes of its weights that an op reads: of a mixture only the experts that some token chooses."""
    if op.type != "MoE" or not stored:
        return 1.0
    return min(1.0, op.attr_float("active_weight_bytes", float(stored)) / stored)


def _share_written(graph: Graph, op: Op, name: str) -> float:
    """1, or the share of the new tokens of a cache."""
    if op.type != "GroupQueryAttention":
        return 1.0
    positions = graph.tensors[name].shape[2]
    return min(1.0, _tokens(graph, op) / positions) if positions else 0.0


def _tokens(graph: Graph, op: Op) -> int:
    """New tokens of each sequence."""
    return graph.tensors[op.inputs[0]].shape[0] // max(1, op.attr_int("batch", 1))


def _attention(graph: Graph, op: Op) -> LanguageWork:
    """Scores and weighted sums: ``2 · heads · head_dim`` for each pair of a query and a visible key; one exponential a score."""
    heads, shared, dim = op.attr_int("num_heads", 1), max(1, op.attr_int("kv_num_heads", 1)), op.attr_int("head_dim", 1)
    batch, tokens = op.attr_int("batch", 1), _tokens(graph, op)
    past = graph.tensors[op.inputs[3]].shape[2] if len(op.inputs) > 3 and op.inputs[3] else 0
    pairs = visible_pairs(tokens, past, op.attr_int("window", 0))
    capped = 2 if op.attr_float("softcap", 0.0) else 1
    scores = batch * heads * pairs
    return LanguageWork(2.0 * dim * scores, "matmul", tokens * heads / shared, pairs / max(1, tokens), dim, float(capped * scores))


def _mixture(graph: Graph, op: Op) -> LanguageWork:
    """Gate, up and down products of the chosen experts of every token."""
    rows, hidden = graph.tensors[op.inputs[0]].shape
    experts, chosen = max(1, op.attr_int("num_experts", 1)), op.attr_int("experts_per_token", 1)
    weights = sum(graph.tensors[n].elements for n in op.inputs[3:])
    ffn = weights / (3 * experts * max(1, hidden))
    each = rows * chosen / max(1.0, op.attr_float("active_experts", float(experts)))
    exponentials = 0.0 if op.attr_str("activation", "silu") == "relu" else rows * chosen * ffn
    return LanguageWork(float(rows * chosen * weights // experts), "gemm", each, ffn, float(hidden), exponentials)


def _convolution(graph: Graph, op: Op) -> LanguageWork:
    """Depthwise along the tokens; vectors are rows of channels."""
    rows, channels = graph.tensors[op.inputs[0]].shape
    kernel = graph.tensors[op.inputs[1]].elements // max(1, channels)
    return LanguageWork(float(rows * channels * kernel), "depthwise", float(channels), 1.0, float(kernel))


def _scan(graph: Graph, op: Op) -> LanguageWork:
    """``a h + (Δ x) B`` is two, ``C h`` one a state element, ``D x`` one a channel; exp(Δ A) and softplus are exponentials."""
    rows, channels = graph.tensors[op.inputs[0]].shape
    states = op.attr_int("state_size", 0) or graph.tensors[op.inputs[2]].shape[-1]
    k = 3.0 * states + 1.0
    return LanguageWork(rows * channels * k, "depthwise", float(channels), 1.0, k, float(rows * channels * (states + 1)))


_RULES: dict[str, Callable[[Graph, Op], LanguageWork]] = {
    "GroupQueryAttention": _attention,
    "MoE": _mixture,
    "CausalConv": _convolution,
    "SelectiveScan": _scan,
}
#: Composites whose past inputs and present outputs are states.
STATEFUL = frozenset({"GroupQueryAttention", "CausalConv", "SelectiveScan"})
