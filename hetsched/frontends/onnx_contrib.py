"""Operators of ONNX Runtime's ``com.microsoft`` domain, as its ContribOperators.md defines them.

Those that are standard operators by another name are renamed, the others are written as standard operators or as composites
of this project's vocabulary whose body says what they compute; what is in no table here is refused by name.
"""

from __future__ import annotations

from dataclasses import replace

from hetsched.errors import UnsupportedModelError
from hetsched.frontends.onnx_contrib_attention import ATTENTION
from hetsched.frontends.onnx_contrib_experts import EXPERTS
from hetsched.frontends.onnx_contrib_grouped import GROUPED
from hetsched.frontends.onnx_contrib_norms import NORMS
from hetsched.frontends.onnx_contrib_products import PRODUCTS
from hetsched.frontends.onnx_contrib_vision import VISION
from hetsched.frontends.onnx_expansion import Expansion, Tracer
from hetsched.graph import Op

CONTRIB_DOMAIN = "com.microsoft"
_RULES = {**ATTENTION, **EXPERTS, **GROUPED, **NORMS, **PRODUCTS, **VISION}
#: Operators that ONNX Runtime's own optimiser writes in the standard domain, though ONNX does not have them.
_OF_RUNTIME = frozenset({"SimplifiedLayerNormalization"})


def standard_form(op: Op) -> Op:
    """The standard operator that does the same, where there is one; else ``op``."""
    if op.domain == CONTRIB_DOMAIN and op.type in {"QuantizeLinear", "DequantizeLinear"}:
        return replace(op, domain="")
    return op


def expand_contrib(op: Op, trace: Tracer) -> bool:
    """Hand the operators that ``op``, if it is of this domain, stands for to ``trace``; says whether it was.

    Raises:
        UnsupportedModelError: the operator, or the form that this node has, is not handled.
    """
    if op.domain != CONTRIB_DOMAIN and not (op.type in _OF_RUNTIME and op.domain == ""):
        return False
    rule = _RULES.get(op.type)
    if rule is None:
        raise UnsupportedModelError(f"node {op.name!r} uses the operator {op.type!r} of domain {CONTRIB_DOMAIN!r}, which is not supported")
    rule(Expansion(op, trace))
    return True
