"""A branch that fails when it runs, in the place of one that does not accept the dims as they are bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hetsched.frontends.onnx_bodies import Body
from hetsched.graph import DType, Op, Tensor

if TYPE_CHECKING:
    from hetsched.frontends.onnx_trace import Trace

_INT64 = 7


def impossible(trace: Trace, node: str, key: str, condition: Tensor, results: Sequence[Tensor]) -> Body:
    """A branch with results like ``results`` whose run fails, and says its name.

    It reads element 1 or 2 of a list of one. The index depends on the condition, so that no optimiser can know it before.

    Args:
        trace: where its tensors go.
        node: the ``If`` node.
        key: which branch it is.
        condition: of the node.
        results: what the other branch returns.
    """
    prefix = f"{node}/{key}"
    label = f"the {key} of {node}, which does not accept the dims that were bound"
    ops: list[Op] = []

    def op(kind: str, inputs: tuple[str, ...], out: Tensor, **attrs: int) -> str:
        name = f"{label}: {out.name}" if kind == "Gather" else out.name
        ops.append(Op(name, kind, inputs, (out.name,), dict(attrs), "", (node,)))
        trace.add_inner(out, node)
        return out.name

    shape = trace.add_constant(f"{prefix}/no_dims", np.zeros(0, np.int64))
    one = trace.add_constant(f"{prefix}/one", np.array(1, np.int64))
    number = op("Cast", (condition.name,), Tensor(f"{prefix}/number", condition.shape, DType.I64), to=_INT64)
    scalar = op("Reshape", (number, shape), Tensor(f"{prefix}/scalar", (), DType.I64))
    index = op("Add", (scalar, one), Tensor(f"{prefix}/index", (), DType.I64))
    outputs = []
    for k, t in enumerate(results):
        single = trace.add_constant(f"{prefix}/single_{k}", np.zeros(1, t.dtype.numpy))
        size = trace.add_constant(f"{prefix}/size_{k}", np.array(t.shape, np.int64))
        taken = op("Gather", (single, index), Tensor(f"{prefix}/taken_{k}", (), t.dtype), axis=0)
        outputs.append(op("Expand", (taken, size), Tensor(f"{prefix}/result_{k}", t.shape, t.dtype)))
    return Body(prefix, tuple(ops), (), tuple(outputs))
