"""The 80 % interval of a prediction, and operators that the fitted parameters never saw.

Calibrated half-widths exist for a fitted family (``make fit``); they apply where its processor can run nearly all of the
graph's arithmetic. Elsewhere the SoC file's interval holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf

import numpy as np

from hetsched.graph import Graph, Op
from hetsched.socs import SoC
from hetsched_cost_models.alike import Alike
from hetsched_cost_models.alternatives import Alternatives
from hetsched_cost_models.composites import parts_on
from hetsched_cost_models.operators import CONVOLUTIONS, ELEMENTWISE, KIND_OF_TYPE, PRODUCTS, VIEWS
from hetsched_cost_models.roofline import Rates
from hetsched_cost_models.work import BoolArray, FloatArray, Work

#: Share of the multiply-accumulates that the calibrated processor must be able to run.
_MOST = 0.9
#: The chip that the half-widths by precision were calibrated on; others have only published figures.
_CALIBRATED = "snapdragon-8-gen-3"
_NAMES = {"f16": "float"}
#: Precisions that no fit saw.
_UNSEEN = {"w4a16": "4-bit weights", "f8": "8-bit floats"}
_ALIKE = (VIEWS | ELEMENTWISE | CONVOLUTIONS | PRODUCTS) - {"LSTM", "GRU", "RNN", "DynamicQuantizeLSTM", "Einsum"} | {
    t for t, kind in KIND_OF_TYPE.items() if kind in ("compare", "convert")
}
#: How notes on operators that the fit did not see begin.
SLOW_PATH = "slow-path risk"
#: Operators on fewer elements take no time worth a note.
_FEW = 1024


def of(
    graph: Graph, soc: SoC, rates: Sequence[Rates], found: Alternatives, groups: Alike, work: Work
) -> tuple[tuple[float, float], tuple[str, ...]]:
    """The interval of a graph's latency as factors, and notes on what makes it wide.

    Args:
        graph: the graph.
        soc: the chip.
        rates: its queues.
        found: the alternatives.
        groups: its ops alike.
        work: of the ops.
    """
    q = _judged(rates, found, work)
    if q is None:
        return soc.interval, ()
    rate, here = rates[q], _runs(found, q, len(graph.ops))
    ops = [groups.example[k] for k in np.unique(groups.kind[here]).tolist()]
    known = rate.family.operators
    unseen = unseen_types(graph, parts_on(ops, rate.processor.fusions), known) if known else ()
    used = [(int((found.option == i).sum()), x.precision) for i, x in enumerate(found.options) if x.queue == q]
    precision = min(used, key=lambda counted: (-counted[0], counted[1]))[1]
    rare = {name for x in found.options if x.queue == q for name in (_UNSEEN.get(x.precision),) if name}
    return interval(soc, rate, precision, (*unseen, *sorted(rare))), (slow_path_note(unseen),) if unseen else ()


def _runs(found: Alternatives, queue: int, ops: int) -> BoolArray:
    """[ops] whether the queue can run an op."""
    here = np.zeros(ops, bool)
    here[found.owner[found.queue == queue]] = True
    return here


def _judged(rates: Sequence[Rates], found: Alternatives, work: Work) -> int | None:
    """The queue whose calibrated interval holds: an NPU that can run nearly all, else the least sure of the other processors that can.

    None where one of those is not calibrated.
    """
    able = [q for q in range(len(rates)) if _share(work.macs, _runs(found, q, len(work.macs))) >= _MOST]
    able = [q for q in able if rates[q].processor.kind == "npu"] or able
    widths = [rates[q].family.half_width.get("all", inf) for q in able]
    widest = max(widths, default=inf)
    return None if widest == inf else able[widths.index(widest)]


def interval(soc: SoC, rates: Rates, precision: str, unseen: Sequence[str]) -> tuple[float, float]:
    """Factors of a latency between which the measured one lies in 80 % of families.

    Args:
        soc: the chip; on others than the calibrated one the figures that only its file gives add to the error.
        rates: the calibrated queue.
        precision: of most of its operators (``f16, w8a8, w8a16``).
        unseen: operator types that the fit did not see.
    """
    widths = rates.family.half_width
    cases = [_NAMES.get(precision, precision), *(["unseen"] if unseen else []), *(["other_chip"] if soc.id != _CALIBRATED else [])]
    width = max(widths.get(case, widths["all"]) for case in cases)
    return exp(-width), exp(width)


def unseen_types(graph: Graph, ops: Sequence[Op], known: frozenset[str]) -> tuple[str, ...]:
    """Types among ``ops`` that the fit did not see and that are not like one that it saw; sorted.

    Plain arithmetic and comparisons are alike, so are integer forms of convolutions and products. Ops on a few numbers do not count.
    """
    like = known | _ALIKE
    found = {op.type for op in ops if op.type not in like and any(graph.tensors[o].elements > _FEW for o in op.outputs if o)}
    return tuple(sorted(found))


def slow_path_note(unseen: Sequence[str]) -> str:
    """What a plan says about operators that the fit did not see."""
    shown = ", ".join(unseen[:4]) + (f" and {len(unseen) - 4} more" if len(unseen) > 4 else "")
    return f"{SLOW_PATH}: no public latency of a graph with {shown} was at hand, so the interval is wider"


def _share(macs: FloatArray, here: BoolArray) -> float:
    """Share of the multiply-accumulates in ops that are ``here``; of a graph without any, of its ops."""
    total = float(macs.sum())
    return float(macs[here].sum()) / total if total > 0.0 else float(here.mean()) if len(here) else 0.0
