"""Control flow: what is known once the dims are bound is inlined or unrolled, the rest stays one operator.

- ``If``: inlined where its condition is a constant.
- ``Loop`` with a constant number of trips and a constant condition, and ``Scan``: unrolled if that stays small.
- Everything else becomes one operator (:mod:`hetsched.frontends.onnx_opaque`) that runs on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.onnx_opaque import keep
from hetsched.frontends.onnx_subgraphs import inlined, subgraph
from hetsched.frontends.onnx_tensors import constant
from hetsched.frontends.onnx_unroll import unroll
from hetsched.graph import Op

if TYPE_CHECKING:
    import onnx

    from hetsched.frontends.onnx_trace import Trace

#: Subgraphs within subgraphs: real exports have up to five levels.
MAX_NESTING = 12


def refuse_sequences(nodes: Sequence[onnx.NodeProto], names: Sequence[str]) -> None:
    """Refuse what no binding of dims can help, before the user is asked for dims.

    Raises:
        UnsupportedModelError: a node works on a sequence; the message names it.
    """
    for node, name in zip(nodes, names, strict=True):
        if node.op_type == "SequenceMap" and node.domain in {"", "ai.onnx"}:
            raise UnsupportedModelError(
                f"node {name!r} is a SequenceMap, and sequences cannot be planned: export the model with tensors of fixed number"
            )


def expand(trace: Trace, node: onnx.NodeProto, name: str) -> None:
    """Add what an ``If``, ``Loop`` or ``Scan`` comes to.

    Raises:
        ModelError: it is damaged, nested too deeply, or never ends.
        UnsupportedModelError: the shape of an output depends on the data; the message names the node.
    """
    if trace.depth >= MAX_NESTING:
        raise ModelError(
            f"node {name!r} ({node.op_type}) is nested {trace.depth + 1} levels deep in control flow, and at most {MAX_NESTING} are read: "
            "export the model with flatter control flow"
        )
    if node.op_type == "If" and len(node.input) != 1:
        raise ModelError(f"the If node {name!r} has {len(node.input)} inputs instead of one condition: the model file is damaged")
    if node.op_type == "If" and trace.is_known(node.input[0]):
        _branch(trace, node, name)
    elif node.op_type == "If" or not unroll(trace, node, name):
        keep(trace, node, name)


def _branch(trace: Trace, node: onnx.NodeProto, name: str) -> None:
    """Inline the branch of an ``If`` whose condition is known."""
    key = "then_branch" if trace.truth(node.input[0], name) else "else_branch"
    label = trace.unfolding.label(node.op_type, name)
    nodes, initializers, outputs = inlined(trace.unfolding, subgraph(node, name, key, 0, len(node.output)), label)
    for proto, new in initializers:
        trace.add_inner(constant(proto, new, trace.model), name)
    trace.nested(nodes, f"{label}/")
    for source, target in zip(outputs, node.output, strict=True):
        if target:
            trace.add_op(Op(f"{label}/{target}", "Identity", (source,), (target,), {}, "", (name,)))
