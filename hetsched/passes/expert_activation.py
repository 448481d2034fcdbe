"""How often each expert of a mixture is used: it decides how many of them a step reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hetsched.errors import OptionError
from hetsched.graph import Graph, Op

#: A row may differ from ``experts_per_token`` by this share of it: figures in a file are rounded.
TOLERANCE = 0.01
_MIXTURES = ("MoE", "QMoE")


@dataclass(frozen=True, slots=True)
class ExpertActivation:
    """Count the experts that are expected to be read from how likely a token uses each.

    Of ``n`` tokens that choose independently, expert ``e`` is used by at least one with probability ``1 − (1 − p_e)^n``; a step
    reads the bytes of each expert times that.

    Attributes:
        profile: one row for every mixture in the graph's order, or one for all: the probability that a token uses an expert.
            Rows add up to the experts per token. An empty row: all experts are equally likely.
    """

    profile: tuple[tuple[float, ...], ...] = ((),)

    name: ClassVar[str] = "expert-activation"
    requires: ClassVar[tuple[str, ...]] = ()
    ensures: ClassVar[tuple[str, ...]] = ("experts-counted",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with ``active_experts`` and ``active_weight_bytes`` of every mixture set.

        Raises:
            OptionError: the graph has no mixture, or the profile does not fit.
        """
        mixtures = [op for op in graph.ops if op.type in _MIXTURES]
        if not mixtures:
            raise OptionError(f"the model {graph.name!r} has no mixture of experts: leave --experts out")
        if len(self.profile) not in (1, len(mixtures)):
            raise OptionError(
                f"the profile has {len(self.profile)} layers of experts and the model {graph.name!r} has {len(mixtures)}: "
                "give a row for each, or one for all"
            )
        rows = dict(zip((op.name for op in mixtures), self._rows(mixtures), strict=True))
        return graph.replace(ops=tuple(_counted(graph, op, rows[op.name]) if op.name in rows else op for op in graph.ops))

    def _rows(self, mixtures: Sequence[Op]) -> list[Sequence[float]]:
        given = self.profile if len(self.profile) > 1 else self.profile * len(mixtures)
        rows = [row or _uniform(op) for op, row in zip(mixtures, given, strict=True)]
        for k, (op, row) in enumerate(zip(mixtures, rows, strict=True)):
            _check(op, row, k)
        return rows


def expected_distinct(chances: Sequence[float], tokens: int) -> list[float]:
    """For each expert the probability that at least one of ``tokens`` uses it.

    Examples:
        >>> expected_distinct([1.0, 0.5, 0.0], 2)
        [1.0, 0.75, 0.0]
    """
    return [1.0 - (1.0 - p) ** tokens for p in chances]


def _uniform(op: Op) -> Sequence[float]:
    count = max(1, op.attr_int("num_experts", 1))
    return [op.attr_int("experts_per_token", 1) / count] * count


def _check(op: Op, row: Sequence[float], layer: int) -> None:
    count, chosen = op.attr_int("num_experts", 1), op.attr_int("experts_per_token", 1)
    if len(row) != count:
        raise OptionError(f"layer {layer} of the profile has {len(row)} experts and {op.name!r} has {count}")
    bad = next((p for p in row if not 0.0 <= p <= 1.0), None)
    if bad is not None:
        raise OptionError(f"layer {layer} of the profile gives an expert of {op.name!r} the probability {bad:g}: use 0 to 1")
    total = math.fsum(row)
    if abs(total - chosen) > TOLERANCE * chosen:
        raise OptionError(
            f"layer {layer} of the profile adds up to {total:g}, and each token of {op.name!r} uses {chosen}: "
            "give the probability that a token uses each expert"
        )


def _counted(graph: Graph, op: Op, chances: Sequence[float]) -> Op:
    x = graph.tensors[op.inputs[0]]
    share = expected_distinct(chances, x.elements // max(1, x.shape[-1]))
    weights = [graph.tensors[n].nbytes for n in graph.constants(op)]
    if op.attr_int("stacked", 1):
        active = sum(weights) * math.fsum(share) / len(share)
    else:  # gates, then ups, then downs, each with one matrix an expert
        active = math.fsum(w * share[i % len(share)] for i, w in enumerate(weights))
    return replace(op, attrs={**op.attrs, "active_experts": math.fsum(share), "active_weight_bytes": round(active)})
