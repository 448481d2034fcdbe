"""The first layers of a decoder as a model of their own: what self-speculation drafts with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hetsched.errors import OptionError
from hetsched.graph import Graph, Role
from hetsched.passes.dead_code import live
from hetsched.passes.sampling import scores_of

_ATTENTION, _NORMS = "GroupQueryAttention", ("RMSNorm", "LayerNormalization")


@dataclass(frozen=True, slots=True)
class EarlyLayers:
    """Leave after the first ``layers`` layers: the last norm and the head follow them, with the same weights and names.

    Tokens are drafted so by the model itself, without training or weights of its own (Zhang et al., "Draft & Verify: Lossless Large
    Language Model Acceleration via Self-Speculative Decoding", 2024; there layers in between are left out).
    """

    layers: int

    name: ClassVar[str] = "early-layers"
    requires: ClassVar[tuple[str, ...]] = ()
    ensures: ClassVar[tuple[str, ...]] = ()

    def __call__(self, graph: Graph) -> Graph:
        """The shorter graph, with the caches of its layers only.

        Raises:
            OptionError: there are not so many layers, or what lies between two of them is more than one tensor.
        """
        attention = [i for i, op in enumerate(graph.ops) if op.type == _ATTENTION]
        if not 1 <= self.layers < len(attention):
            most = f"use 1 to {len(attention) - 1}" if len(attention) > 1 else "it cannot be cut"
            raise OptionError(f"--draft-layers {self.layers}: the model {graph.name!r} has {len(attention)} layers of attention: {most}")
        norm, between = _last_norm(graph), _boundary(graph, attention[self.layers])
        if norm is None or between is None:
            raise OptionError(f"the model {graph.name!r} cannot be left after layer {self.layers}: draft with another model, or by lookup")
        ops = list(graph.ops)
        ops[norm] = replace(ops[norm], inputs=(between, *ops[norm].inputs[1:]))
        early = {o for op in graph.ops[: attention[self.layers]] for o in op.outputs}
        outputs = tuple(n for n in graph.outputs if graph.tensors[n].role is not Role.STATE or n in early)
        kept = tuple(live(tuple(ops), outputs))
        used = {n for op in kept for n in (*op.inputs, *op.outputs) if n}
        return graph.replace(
            ops=kept, outputs=outputs, inputs=tuple(n for n in graph.inputs if n in used),
            tensors={n: t for n, t in graph.tensors.items() if n in used},
            states={present: past for present, past in graph.states.items() if present in outputs},
            first_values={n: v for n, v in graph.first_values.items() if n in used},
        )  # fmt: skip


def _last_norm(graph: Graph) -> int | None:
    """The norm before the scores; None: there is none."""
    at = graph.producer.get(scores_of(graph))
    while at is not None and graph.ops[at].type not in _NORMS:
        at = graph.producer.get(graph.ops[at].inputs[0])
    return at


def _boundary(graph: Graph, before: int) -> str | None:
    """The last tensor before an operator through which all that is computed of the tokens passes; None: there is none."""
    tokens = {n for n in graph.inputs if graph.tensors[n].role is not Role.STATE and not n.startswith("position")}
    waiting, found = set(tokens), None
    for index, op in enumerate(graph.ops[:before]):
        if not tokens.isdisjoint(op.inputs):
            results = {o for o in op.outputs if o and graph.tensors[o].role is not Role.STATE}
            tokens |= results
            waiting |= results
        waiting = {n for n in waiting if graph.consumers.get(n, (0,))[-1] > index}
        if len(waiting) == 1:
            found = next(iter(waiting))
    return found
