"""Operators on constants alone, computed once.

The ONNX loader folds while it binds shapes; this pass does the same for graphs of other formats and for what other
rewritings leave. Large weights are never crunched: planning must stay cheap and a weightless file has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError
from hetsched.graph import Graph, Op, Tensor
from hetsched.passes.rewriting import inline

#: They say what integers mean; ``fuse-quantization`` absorbs them.
_NEVER = frozenset({"DequantizeLinear", "QuantizeLinear"})


@dataclass(frozen=True)
class FoldConstants:
    """An operator whose inputs are all constants → constants, up to ``largest`` elements read or written."""

    largest: int = 1 << 16

    name: ClassVar[str] = "fold-constants"
    requires: ClassVar[tuple[str, ...]] = ()
    ensures: ClassVar[tuple[str, ...]] = ("constants-folded",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with constants folded; an operator that writes a graph output stays."""
        from hetsched.reference import supported_types

        tensors, kept, known = dict(graph.tensors), list[Op](), supported_types()
        for op in graph.ops:
            values = self._values(op, tensors) if op.type in known and not _writes(op, graph.output_set) else None
            if values is None:
                kept.append(op)
                continue
            tensors.update((t.name, t) for t in values)
        return graph if len(kept) == len(graph.ops) else graph.replace(ops=tuple(kept), tensors=tensors)

    def _values(self, op: Op, tensors: dict[str, Tensor]) -> list[Tensor] | None:
        """The constants that ``op`` writes; None if it must stay."""
        from hetsched.reference import run_op

        reads = [tensors[i] for i in op.inputs if i]
        writes = [tensors[o] for o in op.outputs if o]
        if op.type in _NEVER or op.domain or op.body or not reads:
            return None
        if any(t.data is None or t.quantization is not None or not t.data.is_present for t in reads):
            return None
        if sum(t.elements for t in (*reads, *writes)) > self.largest:
            return None
        try:
            with np.errstate(all="ignore"):
                values = run_op(op, [tensors[i].values() if i else None for i in op.inputs])
        except ExecutionError:
            return None
        return _constants(op, values, tensors)


def _constants(op: Op, values: list[npt.NDArray[Any]], tensors: dict[str, Tensor]) -> list[Tensor] | None:
    """The results under the names of the outputs, if they are what the graph says that they are."""
    made = [inline(o, np.ascontiguousarray(v)) for o, v in zip(op.outputs, values, strict=False) if o]
    fits = all(t.shape == tensors[t.name].shape and t.dtype is tensors[t.name].dtype for t in made)
    return made if fits and len(made) == sum(bool(o) for o in op.outputs) else None


def _writes(op: Op, outputs: frozenset[str]) -> bool:
    return any(o in outputs for o in op.outputs)
