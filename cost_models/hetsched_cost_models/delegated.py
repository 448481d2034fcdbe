"""What it costs that another delegate than the queue's own runs an operator on this machine's CPU.

ONNX Runtime runs what there is no kernel for. Nothing has been measured for such operators when a plan is made, so they are
priced to err on the dear side: twice the time that the cost model gives a kernel of this project, and the price of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hetsched.costs import FloatArray
from hetsched.graph import Graph, IntArray
from hetsched_cost_models.work import BoolArray

#: Time over that of a kernel. ONNX Runtime's own kernels are rarely slower; the doubt is in the work model of rare operators.
FACTOR = 2.0
#: Seconds of one call into ONNX Runtime, with arrays bound and results copied. Estimated, not measured.
CALL_S = 30e-6


def add(columns: Mapping[str, FloatArray], foreign: BoolArray) -> None:
    """Make the alternatives dearer that run by another delegate than their queue's own, in place.

    Args:
        columns: the cost table's columns by name, one entry an alternative.
        foreign: of each alternative, whether another delegate runs it.
    """
    columns["compute_s"][foreign] *= FACTOR
    columns["overhead_s"][foreign] += CALL_S


def notes(graph: Graph, ops: IntArray, delegates: Sequence[str], foreign: BoolArray) -> tuple[str, ...]:
    """One sentence for each delegate that runs operators in the place of their queue's own.

    Args:
        graph: the graph.
        ops: of each alternative, its op.
        delegates: of each alternative.
        foreign: of each alternative, whether another delegate than its queue's own runs it.
    """
    rows: dict[str, dict[int, None]] = {}
    for a in np.flatnonzero(foreign).tolist():
        rows.setdefault(delegates[a], {})[int(ops[a])] = None
    out = []
    for delegate, found in rows.items():
        shown = ", ".join(f"{graph.ops[i].name} ({graph.ops[i].type})" for i in list(found)[:3])
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        out.append(f"run by the delegate {delegate}, because there is no kernel for them: {shown}{more}")
    return tuple(out)
