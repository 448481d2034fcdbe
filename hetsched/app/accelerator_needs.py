"""What a plan asks of its accelerators: the operators that the NPU refuses, the bytes that it addresses, the first compilation."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.app.planned import Planned
from hetsched.socs import Processor

COMPILE_BASIS = "from the SoC files, of every accelerator that the plan uses: hetsched socs ID --figures has the sources"
Held = dict[str, dict[str, int]]
"""Processor -> weight tensor -> bytes that it holds of it."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """Operators of one type that the NPU refuses, and why (the first reason)."""

    type: str
    count: int
    reason: str


def fallbacks_of(planned: Planned) -> tuple[tuple[Fallback, ...], int]:
    """What the NPU refuses, most frequent type first, and the number of operators that it could run."""
    table = planned.table
    npu = {i for i, q in enumerate(table.queues) if q.kind == "npu"}
    found: dict[str, list[str]] = {}
    able = 0
    for i, op in enumerate(planned.graph.ops):
        if any(int(table.alt_queue[a]) in npu for a in table.alternatives(i)):
            able += 1
        elif npu:
            why = next((r.reason for r in reversed(table.refusals[i]) if r.queue in npu), "")
            found.setdefault(op.type, []).append(why)
    rows = [Fallback(kind, len(why), why[0]) for kind, why in found.items()]
    return tuple(sorted(rows, key=lambda f: (-f.count, f.type))), able


def held(planned: Planned) -> Held:
    """The weights of each processor that the plan uses, at their stored width."""
    from hetsched.partition.memory import held_weights

    out: Held = {q.processor: {} for p in planned.plan.placements for q in planned.table.queues if q.name == p.queue}
    for key, size in held_weights(planned.graph, planned.table, planned.placement[1]).items():
        if key[1] in out:
            out[key[1]][key[0]] = out[key[1]].get(key[0], 0) + size
    return out


def addressed(planned: Planned, weights: Held, npu: Processor) -> int:
    """Estimate of the bytes that the NPU must address: the weights that it holds and the whole arena; 0 if it is not used."""
    return sum(weights[npu.name].values()) + planned.plan.arena_bytes if npu.name in weights else 0


def first_compile_s(planned: Planned, weights: Held) -> float | None:
    """Seconds of the first compilation on the accelerators that the plan uses; None where nothing is known of one."""
    used = [p for p in planned.soc.processors if p.name in weights and p.kind != "cpu"]
    if any(p.compile_s is None for p in used):
        return None
    counts = {p.name: sum(planned.graph.tensors[n].elements for n in weights[p.name]) for p in used}
    return sum(float(p.compile_s or 0.0) + float(p.compile_s_per_weight or 0.0) * counts[p.name] for p in used)
