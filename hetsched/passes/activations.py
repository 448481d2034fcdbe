"""Which operators can be the activation of a fused one, and with what parameters (see ``docs/operators.md``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsched.graph import AttrValue, Graph, Op
from hetsched.passes.rewriting import is_float, scalar, sole_reader

_PLAIN = frozenset({"Relu", "HardSwish", "Sigmoid", "Silu", "Tanh"})
#: Every kind of activation that a fused operator may have.
ACTIVATIONS = ("Relu", "HardSwish", "Sigmoid", "Silu", "Tanh", "LeakyRelu", "HardSigmoid", "Gelu", "Clip")


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation: its kind and parameters (Clip: bounds; HardSigmoid: alpha, beta; LeakyRelu: alpha; Gelu: 1 = tanh)."""

    kind: str = ""
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def attrs(self) -> dict[str, AttrValue]:
        """As attributes of a fused operator."""
        return {"activation": self.kind, "activation_alpha": self.alpha, "activation_beta": self.beta}


def activation_of(graph: Graph, op: Op) -> Activation | None:
    """The activation that ``op`` is, or None."""
    if op.domain or not op.inputs or not is_float(graph, op.inputs[0], op.outputs[0]):
        return None
    if op.type in _PLAIN:
        return Activation(op.type)
    match op.type:
        case "LeakyRelu":
            return Activation(op.type, op.attr_float("alpha", 0.01))
        case "HardSigmoid":
            return Activation(op.type, op.attr_float("alpha", 0.2), op.attr_float("beta", 0.5))
        case "Gelu":
            return Activation(op.type, 1.0 if op.attr_str("approximate", "none") == "tanh" else 0.0)
        case "Clip":
            return _clip(graph, op)
    return None


def _clip(graph: Graph, op: Op) -> Activation | None:
    limit = float(np.finfo(np.float32).max)
    bounds = [-limit, limit]
    for k in (1, 2):
        if len(op.inputs) > k and op.inputs[k]:
            value = scalar(graph, op.inputs[k])
            if value is None:
                return None
            bounds[k - 1] = min(max(value, -limit), limit)
    return Activation("Clip", bounds[0], bounds[1])


def following(graph: Graph, tensor: str, kinds: tuple[str, ...] = ACTIVATIONS) -> tuple[int, Activation] | None:
    """The activation of one of ``kinds`` that alone reads ``tensor``: its index and what it is."""
    i = sole_reader(graph, tensor)
    if i is None or graph.ops[i].inputs[0] != tensor or graph.ops[i].inputs.count(tensor) != 1:
        return None
    found = activation_of(graph, graph.ops[i])
    return None if found is None or found.kind not in kinds else (i, found)
