"""Whether segments in less than float32 stay within the range of their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph, Op
from hetsched.lowering.onnx_segment import Ends, ends_of
from hetsched.plans import Plan, PlanSegment
from hetsched.runtime.failures import NotFiniteError

#: Larger constants become infinities in float16, as masks are meant to.
_LARGEST_HALF = float(np.finfo(np.float16).max)
#: Masks are small; the weights of a layer are not looked at.
_MAX_MASK = 1 << 20


class Inspection:
    """Looks at what segments in less than float32 read and write.

    What float32 gives is what the model computes, infinities too. In float16 or in integers they come from a range that is too small.

    Args:
        graph: the model.
        plan: as it runs here.
        buffers: by tensor name.
    """

    def __init__(self, graph: Graph, plan: Plan, buffers: Mapping[str, npt.NDArray[Any]]) -> None:
        self._graph, self._buffers = graph, buffers
        precision = {p.op: p.precision for p in plan.placements}
        ops = {s.index: tuple(graph.ops[graph.op_index[name]] for name in s.ops) for s in plan.segments}
        self._looked_at: dict[int, tuple[PlanSegment, tuple[Op, ...], Ends]] = {
            s.index: (s, ops[s.index], ends_of(graph, ops[s.index])) for s in plan.segments if any(precision[o] != "f32" for o in s.ops)
        }
        self._precision = precision
        self._was_finite: dict[int, bool] = {}

    def before(self, segment: int) -> None:
        """Once a segment's inputs are there."""
        if segment in self._looked_at:
            self._was_finite[segment] = not self._wrong(self._looked_at[segment][2].inputs)

    def after(self, segment: int) -> None:
        """Once its outputs are.

        Raises:
            NotFiniteError: they are not finite although the inputs are.
        """
        if segment not in self._looked_at or not self._was_finite.get(segment, False):
            return
        about, ops, ends = self._looked_at[segment]
        wrong = self._wrong(ends.outputs)
        if wrong and not any(self._is_mask(n) for op in ops for n in op.inputs if n):
            kinds = " and ".join(dict.fromkeys(self._precision[op.name] for op in ops))
            raise NotFiniteError(
                f"segment {segment} on {about.queue} wrote infinities or values that are no numbers into {wrong!r}, in {kinds} and from "
                "finite inputs: use --fallback cpu, which computes it in f32, or plan these ops in another precision"
            )

    def _wrong(self, names: tuple[str, ...]) -> str:
        """The first tensor that is not finite; empty: none."""
        arrays = ((n, self._buffers[n]) for n in names if n in self._buffers)
        return next((n for n, a in arrays if a.dtype.kind == "f" and not bool(np.isfinite(a).all())), "")

    def _is_mask(self, name: str) -> bool:
        """Whether a constant is, or becomes in float16, an infinity."""
        tensor = self._graph.tensors[name]
        if not tensor.is_constant or not tensor.dtype.is_float or tensor.elements > _MAX_MASK:
            return False
        return not bool((np.abs(tensor.numpy().astype(np.float64)) <= _LARGEST_HALF).all())
