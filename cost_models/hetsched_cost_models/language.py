"""The work of the composites of language models: attention over a cache, experts, convolution and scan with states.

``docs/language_models.md`` says what they compute. Activations are matrices with a row per token. States are kept in place,
as runtimes do: an attention reads the cached positions once and writes those of the new tokens only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hetsched.graph import DType, Graph, Op, Role, Tensor


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


def state_bytes(graph: Graph, op: Op, *, widened: bool = False) -> float:
    """Bytes of states that a composite reads and writes, whatever the precision: as they are stored, or ``widened`` to 16 bits."""
    if op.type not in STATEFUL:
        return 0.0
    read = sum(_size(graph.tensors[n], widened) * _share_read(graph, op, n) for n in op.inputs if is_state(graph, op, n))
    written = sum(_size(graph.tensors[n], widened) * _share_written(graph, op, n) for n in op.outputs if is_state(graph, op, n))
    return float(read + written)


def _size(tensor: Tensor, widened: bool) -> int:
    return max(tensor.nbytes, 2 * tensor.elements) if widened else tensor.nbytes


def is_state(graph: Graph, op: Op, name: str) -> bool:
    """Whether ``name`` is a state of a composite, counted by :func:`state_bytes` and not among the activations.

    The float32 caches that a file declares are activations: an accelerator holds them as it holds all floats.
    """
    if not name or op.type not in STATEFUL or graph.tensors[name].role is not Role.STATE:
        return False
    return op.type != "Attention" or graph.tensors[name].dtype is not DType.F32


def weight_share(op: Op, stored: int) -> float:
    """Share of the ``stored`` bytes of its weights that an op reads: of a mixture only the experts that some token chooses."""
    if op.type not in _MIXTURES or not stored:
        return 1.0
    return min(1.0, op.attr_float("active_weight_bytes", float(stored)) / stored)


_MIXTURES = frozenset({"MoE", "QMoE"})


def _share_read(graph: Graph, op: Op, name: str) -> float:
    """1, or the share of a cache that a sliding window sees: all but the latest ``window - 1`` positions are out of sight."""
    window = op.attr_int("window", 0) if op.type == "GroupQueryAttention" else 0
    return min(1.0, (window - 1) / max(1, graph.tensors[name].shape[2])) if window else 1.0


def _share_written(graph: Graph, op: Op, name: str) -> float:
    """1, or the share of the new tokens of a cache."""
    if op.type == "Attention":
        return share_appended(graph, op, name)
    if op.type != "GroupQueryAttention":
        return 1.0
    positions = graph.tensors[name].shape[2]
    return min(1.0, _tokens(graph, op) / positions) if positions else 0.0


def share_appended(graph: Graph, op: Op, name: str) -> float:
    """Share of an output that an op writes: of a cache that Attention continues in place only what is new, else 1."""
    past = graph.states.get(name, "")
    if op.type != "Attention" or not past or past not in op.inputs:
        return 1.0
    before, after = graph.tensors[past].elements, graph.tensors[name].elements
    return (after - before) / after if after > before else 1.0


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


def _plain_attention(graph: Graph, op: Op) -> LanguageWork:
    """Every query with every key, as the products that it stands for: dims of keys and values MACs and one exponential a score."""
    q, k, v = (graph.tensors[n] for n in op.inputs[:3])
    heads, shared = max(1, op.attr_int("q_num_heads", 1)), max(1, op.attr_int("kv_num_heads", 1))
    batch = op.attr_int("batch", 0) or q.shape[0]
    dim = q.shape[-2 if op.attr_int("query_transposed", 0) else -1] if len(q.shape) == 4 else q.shape[-1] // heads
    new = k.elements // max(1, batch * shared * dim)
    past = graph.tensors[op.inputs[4]].shape[2] if len(op.inputs) > 4 and op.inputs[4] else 0
    queries = q.elements // max(1, batch * heads * dim)
    scores = float(batch * heads * queries * (past + new))
    summed = v.elements // max(1, batch * shared * new)
    capped = 2 if op.attr_float("softcap", 0.0) else 1
    return LanguageWork(scores * (dim + summed), "matmul", queries * heads / shared, past + new, dim, capped * scores)


def _mixture(graph: Graph, op: Op) -> LanguageWork:
    """Gate, up and down products of the chosen experts of every token."""
    if "macs_per_token" in op.attrs:
        return _packed_mixture(graph, op)
    rows, hidden = graph.tensors[op.inputs[0]].shape
    experts, chosen = max(1, op.attr_int("num_experts", 1)), op.attr_int("experts_per_token", 1)
    weights = sum(graph.tensors[n].elements for n in op.inputs[3:])
    ffn = weights / (3 * experts * max(1, hidden))
    each = rows * chosen / max(1.0, op.attr_float("active_experts", float(experts)))
    exponentials = 0.0 if op.attr_str("activation", "silu") == "relu" else rows * chosen * ffn
    return LanguageWork(float(rows * chosen * weights // experts), "gemm", each, ffn, float(hidden), exponentials)


def _packed_mixture(graph: Graph, op: Op) -> LanguageWork:
    """The products of ONNX Runtime's MoE and QMoE, whose weights the loader has counted."""
    x = graph.tensors[op.inputs[0]]
    hidden = max(1, x.shape[-1])
    rows, chosen, each = x.elements // hidden, op.attr_int("experts_per_token", 1), op.attr_float("macs_per_token", 0.0)
    width = each / (chosen * hidden)
    m = rows * chosen / max(1.0, op.attr_float("active_experts", 1.0))
    return LanguageWork(rows * each, "gemm", m, width, float(hidden), rows * chosen * width)


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
    "Attention": _plain_attention,
    "GroupQueryAttention": _attention,
    "MoE": _mixture,
    "QMoE": _mixture,
    "CausalConv": _convolution,
    "SelectiveScan": _scan,
}
#: Composites whose past inputs and present outputs are states.
STATEFUL = frozenset({"Attention", "GroupQueryAttention", "CausalConv", "SelectiveScan"})
