"""A plan's segments as a bundle sees them: what crosses their edges, and what each waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hetsched.export.bundle import BundleSegment, BundleTensor
from hetsched.graph import Graph, Op
from hetsched.lowering.onnx_segment import Ends, ends_of
from hetsched.plans import Plan, PlanSegment
from hetsched.socs import Processor, SoC


@dataclass(frozen=True)
class Source:
    """What is exported."""

    graph: Graph
    plan: Plan
    soc: SoC

    def ops(self, segment: PlanSegment) -> tuple[Op, ...]:
        """A segment's operators, in order."""
        return tuple(self.graph.ops[self.graph.op_index[name]] for name in segment.ops)

    def ends(self, segment: PlanSegment) -> Ends:
        """What crosses a segment's edge."""
        return ends_of(self.graph, self.ops(segment))

    def processor(self, segment: PlanSegment) -> Processor:
        """What a segment runs on."""
        return self.soc.by_name[self.soc.queues[segment.queue].partition(":")[0]]

    def precisions(self, segment: PlanSegment) -> frozenset[str]:
        """Precisions of a segment's operators."""
        of = {p.op: p.precision for p in self.plan.placements}
        return frozenset(of[name] for name in segment.ops)

    def tensors(self, names: tuple[str, ...], called: Callable[[str], str] = str) -> tuple[BundleTensor, ...]:
        """Types and shapes of tensors; ``called`` gives a name's name in the file."""
        found = (self.graph.tensors[n] for n in names)
        return tuple(BundleTensor(name=t.name, file_name=called(t.name), dtype=t.dtype.value, shape=t.shape) for t in found)

    def described(self, segment: PlanSegment, file: str, settings: Mapping[str, str], called: Callable[[str], str] = str) -> BundleSegment:
        """A segment as the manifest has it."""
        ends, ops = self.ends(segment), self.ops(segment)
        return BundleSegment(
            index=segment.index, queue=segment.queue, processor=self.processor(segment).kind, file=file,
            inputs=self.tensors(ends.inputs, called), outputs=self.tensors(ends.outputs, called),
            waits=tuple(sorted(f.signal for f in self.plan.fences if f.wait == segment.index)), settings=dict(settings),
            ops=tuple(n for op in ops for n in (op.origin or (op.name,))),
        )  # fmt: skip


def file_name(segment: PlanSegment, suffix: str) -> str:
    """``segments/003-npu.onnx``."""
    return str(Path("segments") / f"{segment.index:03d}-{segment.queue.replace(':', '-').replace(',', '-')}{suffix}")
