"""Control flow that can never be planned is refused before the user is asked for dims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hetsched.errors import UnsupportedModelError
from hetsched.frontends.onnx_order import reads

if TYPE_CHECKING:
    import onnx

_SHAPE_ONLY = frozenset({"Shape", "Size"})


def refusal(kind: str, name: str) -> UnsupportedModelError:
    """The error for a node of control flow."""
    return UnsupportedModelError(
        f"node {name!r} is a nested {kind}, and which of its operators run depends on the data, so it cannot be planned ahead: "
        "export the model with the control flow unrolled or fixed"
    )


def refuse_data_dependent(nodes: Sequence[onnx.NodeProto], names: Sequence[str], order: Iterable[int], inputs: Iterable[str]) -> None:
    """Refuse loops, and branches whose condition is computed from the values (not only the shapes) of inputs.

    Raises:
        UnsupportedModelError: there is such a node; the message names it.
    """
    tainted = set(inputs)
    for i in order:
        node = nodes[i]
        if node.op_type in {"Loop", "Scan", "SequenceMap"}:
            raise refusal(node.op_type, names[i])
        if node.op_type == "If" and node.input and node.input[0] in tainted:
            raise refusal("If", names[i])
        if node.op_type not in _SHAPE_ONLY and any(name in tainted for name in reads(node)):
            tainted.update(node.output)
