"""Which tensors may lie in the same bytes: what an operator may write over, and what only names bytes anew.

The planner shares bytes by these rules and :mod:`hetsched.plan_rules` accepts no other sharing. They rest on the kernels'
contract (``docs/kernels.md``, "in-place"): same memory for input and output, never a part of it.
"""

from __future__ import annotations

from hetsched.graph import Graph, Op
from hetsched.tensors import Tensor

#: Each element of the output depends on the elements at its own place only, on every processor.
ELEMENTWISE = frozenset({
    "Abs", "Add", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "FusedElementwise", "Gelu", "HardSigmoid",
    "HardSwish", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mod", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Round",
    "Sigmoid", "Sign", "Silu", "Sin", "Softplus", "Sqrt", "Sub", "Tanh",
})  # fmt: skip
#: The CPU kernels read their first input a row at a time before they write that row.
ROWWISE = frozenset({"BatchNormalization", "FusedSoftmax", "InstanceNormalization", "LayerNormalization", "Softmax"})
#: Operators of two operands; with more, all but the first two are combined with what has been written already.
_FOLDED = frozenset({"Max", "Min"})
#: Operators whose output is their first input, element after element.
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def overwritable(graph: Graph, op: Op, cpu: bool) -> tuple[str, ...]:
    """The inputs whose bytes the first output of ``op`` may take, if nobody else needs them any more.

    Args:
        graph: of the operator.
        op: the operator.
        cpu: whether it runs on a CPU: accelerators promise less.
    """
    if op.domain or not op.outputs or not op.outputs[0]:
        return ()
    if op.type in ELEMENTWISE and not (op.type in _FOLDED and len(op.inputs) > 2):
        candidates = op.inputs
    elif cpu and op.type in ROWWISE and op.inputs.count(op.inputs[0]) == 1:
        candidates = op.inputs[:1]
    else:
        return ()
    out = graph.tensors[op.outputs[0]]
    return tuple(dict.fromkeys(n for n in candidates if n and _fits(graph.tensors[n], out)))


def _fits(x: Tensor, out: Tensor) -> bool:
    return not x.is_constant and x.elements == out.elements > 0 and x.dtype.bits == out.dtype.bits


def view_of(graph: Graph, op: Op) -> str:
    """The input whose bytes the output of ``op`` is, unchanged; empty where it has bytes of its own."""
    if op.type not in VIEWS or op.domain or op.body or len(op.outputs) != 1:
        return ""
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    alike = x.dtype is y.dtype and x.elements == y.elements > 0 and x.quantization == y.quantization
    return x.name if alike and not x.is_constant else ""
