"""Cost tables of language models on this machine: the roofline's numbers give way to what a session's steps were measured to take.

A session (``hetsched.language``) computes a step by one program on one team of cores. Its operators were timed in such programs, by
kind, size and number of rows (:class:`hetsched.step_times.StepTimes`); here every operator of a phase gets the seconds of its kind,
linear between the sizes and rows that were measured. A prompt is computed in pieces, as the session does, and takes their sum.
Operators of a kind that was not measured keep the roofline's numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan

import numpy as np

from hetsched.costs import CostTable, FloatArray
from hetsched.graph import Graph, Op, Role
from hetsched.socs import SoC
from hetsched.step_times import Points, StepTimes
from hetsched_cost_models import energy
from hetsched_cost_models.language import visible_pairs
from hetsched_cost_models.roofline import Rates

#: What a step takes beside its operators, and the choice of a token: kinds of their own.
AROUND, CHOICE = "around", "choice"
_TAIL = "tail "
_NORMS = ("RMSNorm", "LayerNormalization")
_PRODUCTS = ("Gemm", "FusedGemm")
_BEFORE = frozenset({"Gather", "Reshape", "Identity", "Cast", "Cos", "Sin", "Mul", "Div", "Add", "Sub"})
_VIEWS = frozenset({"Reshape", "Identity"})


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as a step computes it.

    Attributes:
        kind: what operators it is timed with; empty: nothing of it is left in a step.
        size: elements of a product's weight, of a row of other operators' results; of attention multiply-accumulates a visible pair.
        window: of attention, keys that a query sees at most (0: all); -1: no attention.
        tail: only rows whose scores are wanted are computed.
    """

    kind: str
    size: float = 0.0
    window: int = -1
    tail: bool = False

    def work(self, rows: int, position: int) -> float:
        """What its time goes with, of one row after ``position`` tokens."""
        return self.size if self.window < 0 else self.size * visible_pairs(rows, position, self.window) / rows


def operators_of(graph: Graph, wide: Sequence[str]) -> list[Operator]:
    """What each operator of a decoder's graph is to a step; weights that are ``wide`` meet 16 bits."""
    early = _early(graph)
    last = max((i for i, op in enumerate(graph.ops) if op.type in _NORMS), default=len(graph.ops))
    tokens = next((i for i, op in enumerate(graph.ops) if op.type == "Gather" and "input_ids" in op.inputs), -1)
    out = []
    for i, op in enumerate(graph.ops):
        if i == tokens:
            out.append(Operator(AROUND, 1.0))
        elif op.type == "Sample":
            out.append(Operator(CHOICE, float(graph.tensors[op.inputs[0]].shape[-1]), tail=True))
        elif op.outputs[0] in early or op.type in (*_VIEWS, "Gather"):
            out.append(Operator(""))
        else:
            out.append(_operator(graph, op, wide, i >= last))
    return out


def _operator(graph: Graph, op: Op, wide: Sequence[str], tail: bool) -> Operator:
    before = _TAIL if tail else ""
    if op.type in _PRODUCTS:
        weight = graph.tensors[op.inputs[1]]
        return Operator(f"{before}Gemm {weight.stored_as}{' wide' if op.inputs[1] in wide else ''}", float(weight.elements), tail=tail)
    if op.type == "GroupQueryAttention":
        return Operator(op.type, 2.0 * op.attr_int("num_heads", 1) * op.attr_int("head_dim", 1), op.attr_int("window", 0))
    return Operator(f"{before}{op.type}", float(graph.tensors[op.outputs[0]].shape[-1]), tail=tail)


def _early(graph: Graph) -> frozenset[str]:
    """Tensors that are known before a step starts: of tokens and positions, by look-ups and plain arithmetic."""
    known = {n for n in graph.inputs if graph.tensors[n].role is not Role.STATE}
    for op in graph.ops:
        if op.type in _BEFORE and all(n in known for n in op.inputs if n and not graph.tensors[n].is_constant):
            known.update(o for o in op.outputs if o)
    return frozenset(known)


def key_of(operator: Operator, few: bool) -> str:
    """The name of an operator's times in one of the two programs; a tail is the same in both."""
    return f"{'few' if few or operator.tail or operator.kind == CHOICE else 'many'} {operator.kind}"


def pieces(rows: int, position: int, few: int, most: int) -> Iterator[tuple[int, int, bool]]:
    """``(rows, position, whether few)`` of the steps that compute ``rows`` tokens after ``position``."""
    while rows > 0:
        now = min(rows, most)
        yield now, position, now <= few
        rows, position = rows - now, position + now


def seconds_of(operator: Operator, times: dict[str, Points], few: bool, rows: int, position: int) -> float:
    """Seconds of an operator in one step; NaN where no such operator was measured."""
    if not operator.kind:
        return 0.0
    points = times.get(key_of(operator, few))
    if points is None:
        return nan
    if operator.window >= 0 and not few:
        return _between(sorted((n * work, s) for n, work, s in points), rows * operator.work(rows, position))
    work = operator.work(rows, position)
    return _between([(n, _between([(w, s) for m, w, s in points if m == n], work)) for n in sorted({p[0] for p in points})], rows)


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """The value at ``x``: on the line through the two points around it, or the nearest two; in proportion to a single one.

    Below the first never less than in proportion to it.
    """
    if len(points) == 1:
        at, value = points[0]
        return value * x / at if at else value
    k = min(max(sum(p[0] <= x for p in points), 1), len(points) - 1)
    (a, low), (b, high) = points[k - 1], points[k]
    value = low + (high - low) * (x - a) / (b - a)
    return max(value, low * x / a) if x < a else max(value, 0.0)


def phase_seconds(graph: Graph, steps: StepTimes, threads: int) -> FloatArray:
    """[n] seconds of every operator of a phase on a team; NaN where none of its kind was measured."""
    operators, times = operators_of(graph, steps.wide), steps.of(threads)
    rows, position, scored = _phase(graph)
    out = np.zeros(len(operators))
    for now, at, few in pieces(rows, position, steps.few, steps.most):
        wanted = scored if now == rows or at + now == position + rows else 1
        for i, o in enumerate(operators):
            if o.kind == CHOICE and at + now < position + rows:
                continue
            out[i] += seconds_of(o, times, few, wanted if o.tail else now, at)
    return out


def _phase(graph: Graph) -> tuple[int, int, int]:
    """New tokens, tokens before them, and rows of scores."""
    attention = [op for op in graph.ops if op.type == "GroupQueryAttention"]
    past = max((graph.tensors[op.inputs[3]].shape[2] for op in attention if len(op.inputs) > 3 and op.inputs[3]), default=0)
    tokens = graph.tensors["input_ids"].elements if "input_ids" in graph.tensors else 1
    head = next((op for op in reversed(graph.ops) if op.type in _PRODUCTS), None)
    return tokens, past, graph.tensors[head.outputs[0]].shape[0] if head is not None else 1


def with_steps(table: CostTable, graph: Graph, soc: SoC, rates: Sequence[Rates], steps: StepTimes) -> CostTable:
    """The table of a phase with measured times in the place of the roofline's, and the precision of products as a session has it.

    Args:
        table: from the roofline.
        graph: the phase.
        soc: this machine.
        rates: of its queues.
        steps: what was measured.
    """
    compute, overhead, dram = table.compute_s.copy(), table.overhead_s.copy(), table.dram_bytes.copy()
    owner, precision = np.repeat(np.arange(len(table.op_names)), np.diff(table.alt_start)), list(table.alt_precision)
    operators = operators_of(graph, steps.wide)
    for q, queue in enumerate(table.queues):
        mine = np.flatnonzero(table.alt_queue == q)
        seconds = phase_seconds(graph, steps, max(1, len(queue.cores)))[owner[mine]]
        known = np.isfinite(seconds)
        rows, seconds = mine[known], seconds[known]
        compute[rows], overhead[rows] = seconds, 0.0
        dram[rows] = np.minimum(dram[rows], seconds * table.bandwidth_bytes_s[q])
        for a in rows.tolist():
            if "gguf:" in operators[owner[a]].kind:
                precision[a] = "w4a16" if "wide" in operators[owner[a]].kind else steps.precision
    time = overhead + np.maximum(compute, dram / table.bandwidth_bytes_s[table.alt_queue])
    effort = energy.efforts(rates, table.alt_queue, compute, time)
    joules = time * energy.watts(rates, table.alt_queue, effort) + dram * soc.memory.energy_j_per_byte.value
    return replace(
        table, compute_s=compute, overhead_s=overhead, dram_bytes=dram, energy_j=joules, effort=effort, alt_precision=tuple(precision),
        notes=(*table.notes, "a step takes what its operators took when they were measured as text is generated here"),
    )  # fmt: skip
