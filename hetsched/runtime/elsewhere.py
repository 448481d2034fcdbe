"""A plan for another SoC as one that runs here: delegates that the user names for its processors, and buffers in the types of this machine.

Placement, order, segments and fences stay what they are. What changes is said in notes, which go into the trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from hetsched.errors import OptionError
from hetsched.graph import Graph
from hetsched.plans import Buffer, Placement, Plan
from hetsched.runtime.arena import ALIGNMENT
from hetsched.runtime.delegates import load_delegate
from hetsched.runtime.delegates.base import Delegate
from hetsched.socs import Kind


def named_for(queue: str, chosen: Mapping[str, str]) -> str | None:
    """The delegate that the user names for a queue (``cpu:0-3``) or its processor (``cpu``); the queue's own name comes first."""
    return chosen.get(queue, chosen.get(queue.partition(":")[0]))


def with_delegates(graph: Graph, plan: Plan, chosen: Mapping[str, str]) -> Plan:
    """The plan with the delegates of some queues replaced.

    Args:
        graph: its model.
        plan: any plan.
        chosen: queue or processor -> name of a delegate, or several with commas between: each op goes to the first that takes it.

    Raises:
        OptionError: there is no such queue or processor.
        PlanError: there is no such delegate.
    """
    queues = dict.fromkeys(p.queue for p in plan.placements)
    known = [*queues, *(q.partition(":")[0] for q in queues), *get_args(Kind)]
    stranger = next((name for name in chosen if name not in known), None)
    if stranger is not None:
        raise OptionError(f"--delegate {stranger}={chosen[stranger]}: the plan uses {', '.join(queues)}, and no {stranger!r}")
    loaded = {name: load_delegate(name) for names in chosen.values() for name in names.split(",")}
    placements = tuple(_chosen(graph, p, named_for(p.queue, chosen), loaded) for p in plan.placements)
    return plan.model_copy(update={"placements": placements})


def unused(plan: Plan, chosen: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each queue or processor that has a delegate by name and nothing to do."""
    queues = {p.queue for p in plan.placements}
    busy = queues | {q.partition(":")[0] for q in queues}
    return tuple(
        f"the plan puts nothing on {name}, so the delegate {chosen[name]} has nothing to do" for name in chosen if name not in busy
    )


def _chosen(graph: Graph, placed: Placement, names: str | None, loaded: Mapping[str, Delegate]) -> Placement:
    """Where an op goes: to the first of its queue's delegates that takes it, else to the first, which will say why not."""
    candidates = names.split(",") if names else [placed.delegate]
    if len(candidates) > 1 and placed.op in graph.op_index:
        op = graph.ops[graph.op_index[placed.op]]
        precisions = (placed.precision, "f32") if placed.precision == "f16" else (placed.precision,)
        able = (n for n in candidates if any(loaded[n].supports(op, graph, p) is None for p in precisions))
        return placed.model_copy(update={"delegate": next(able, candidates[0])})
    return placed.model_copy(update={"delegate": candidates[0]})


def adopted(graph: Graph, plan: Plan, delegates: Mapping[str, Delegate]) -> tuple[Plan, tuple[str, ...]]:
    """A plan for another SoC with precisions that its delegates have here, and with buffers for the graph's own types.

    An op planned in float16 whose delegate computes in float32 only becomes float32. Every tensor gets bytes of its own: the plan's
    offsets are for what the target stores.

    Args:
        graph: the model.
        plan: after :func:`with_delegates`.
        delegates: by name, all that the plan names.

    Returns:
        The plan, and what was changed in words.
    """
    placements = tuple(_here(graph, p, delegates[p.delegate]) for p in plan.placements)
    wider: dict[tuple[str, str], int] = {}
    for before, after in zip(plan.placements, placements, strict=True):
        if before.precision != after.precision:
            key = before.queue, after.delegate
            wider[key] = wider.get(key, 0) + 1
    notes = [
        f"{n} ops on {queue} are planned in f16 and run in f32: the delegate {name} has no f16 here" for (queue, name), n in wider.items()
    ]
    notes.append("every tensor has bytes of its own here: the plan's arena is laid out for what the target stores")
    buffers, end = _buffers(graph, len(plan.segments))
    return plan.model_copy(update={"placements": placements, "buffers": buffers, "arena_bytes": end}), tuple(notes)


def _here(graph: Graph, placed: Placement, delegate: Delegate) -> Placement:
    op = graph.ops[graph.op_index[placed.op]]
    if placed.precision != "f16" or delegate.supports(op, graph, "f16") is None or delegate.supports(op, graph, "f32") is not None:
        return placed
    return placed.model_copy(update={"precision": "f32"})


def _buffers(graph: Graph, segments: int) -> tuple[tuple[Buffer, ...], int]:
    """A place for each tensor that is no constant, one after another, and where the last one ends."""
    names = dict.fromkeys([*graph.inputs, *(o for op in graph.ops for o in op.outputs if o)])
    out, end = [], 0
    for name in names:
        if graph.tensors[name].is_constant:
            continue
        nbytes = graph.tensors[name].nbytes
        out.append(Buffer(tensor=name, offset=end, nbytes=nbytes, first=0, last=max(segments - 1, 0)))
        end += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return tuple(out), end


def refusal_here(plan: Plan, chosen: Mapping[str, str], soc: str) -> str | None:
    """Why a plan for another SoC cannot run here with these delegates: every processor that it uses needs one by name."""
    missing = [q for q in dict.fromkeys(p.queue for p in plan.placements) if named_for(q, chosen) is None]
    if not missing:
        return None
    flags = " ".join(f"--delegate {q}={next(p.delegate for p in plan.placements if p.queue == q)}" for q in missing)
    return f"this plan is for {soc}; run it there or plan for host (--soc host), try it with --delegate null, or say who stands in: {flags}"
