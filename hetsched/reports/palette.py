"""Which colour a queue has. Colours are CSS classes; the style sheet has a light and a dark, colour-blind safe value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hetsched.costs import DMA
from hetsched.plans import Plan
from hetsched.socs import SoC

_SHADES = 3


def kind_of(queue: str, soc: SoC | None) -> str:
    """``cpu``, ``gpu``, ``npu`` or ``other``: from the SoC, else from the queue's own name."""
    name = queue.split(":")[0]
    if soc is not None:
        processor = soc.by_name.get(soc.queues.get(queue, name).split(":")[0])
        if processor is not None:
            return processor.kind
    lowered = queue.lower()
    return next((k for k in ("cpu", "gpu", "npu") if k in lowered), "other")


def colours(queues: Iterable[str], soc: SoC | None = None) -> dict[str, str]:
    """CSS class of every queue, and of every processor kind under its own name."""
    seen: dict[str, int] = {}
    out: dict[str, str] = {}
    for queue in dict.fromkeys(queues):
        kind = kind_of(queue, soc)
        out[queue] = f"c-{kind}{seen.get(kind, 0) % _SHADES}"
        seen[kind] = seen.get(kind, 0) + 1
    for kind in ("cpu", "gpu", "npu"):
        out.setdefault(kind, f"c-{kind}0")
    return out


def queues_of(plan: Plan, soc: SoC | None) -> list[str]:
    """Queues of a plan in a fixed order: the SoC's own, else CPU, GPU, NPU and then by first use."""
    used = dict.fromkeys([s.queue for s in plan.segments] + [p.queue for p in plan.placements])
    order = {q: i for i, q in enumerate(soc.queues)} if soc else {}
    rank: Mapping[str, int] = {"cpu": 0, "gpu": 1, "npu": 2, "other": 3}
    return sorted(used, key=lambda q: (rank[kind_of(q, soc)], order.get(q, len(order)), q))


def lanes_of(plan: Plan, soc: SoC | None) -> list[str]:
    """Rows of a plan's timeline: its queues, and the DMA engine where that copies something."""
    return [*queues_of(plan, soc), *([DMA] if plan.copies else [])]
