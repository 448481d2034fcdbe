"""The walk over the operators of another format's file: within bounds of its own, and under names that are unique."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.frontends.onnx_tensors import ModelFile
from hetsched.frontends.onnx_trace import Trace
from hetsched.graph import Op, Tensor

#: Operators are those of this ONNX opset (int16 quantization came with it).
OPSET = 21
#: Elements that folding may read or write, for one operator and in all: loading is not for crunching weights.
MAX_FOLDED_ELEMENTS, MAX_FOLDED_IN_ALL = 1 << 22, 1 << 26
#: Folded whatever they read: only the shape changes.
_FREE = frozenset({"Reshape", "Identity", "Expand"})
#: Never folded: their work is not in proportion to what they read.
_LABORIOUS = frozenset(
    {"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul", "Resize", "LRN", "TopK", "AveragePool", "MaxPool", "GlobalAveragePool",
     "GlobalMaxPool"}
)  # fmt: skip


class BoundedTrace(Trace):
    """The graph so far of a file that describes its operators in words of its own; the readers of such files extend it."""

    def __init__(self, model: ModelFile, tensors: Sequence[Tensor]) -> None:
        super().__init__(model, OPSET, tensors)
        self._op_names: dict[str, int] = {}
        self._folded = 0

    def op_name(self, label: str) -> str:
        """``label``, or a name like it if that is taken."""
        name = label
        while name in self._op_names:
            self._op_names[label] += 1
            name = f"{label}_{self._op_names[label]}"
        self._op_names[name] = 1
        return name

    def _fold(self, op: Op, outputs: list[Tensor]) -> bool:
        """As for any model, within :data:`MAX_FOLDED_IN_ALL`: a small file may describe constants of any size."""
        known = all(self.tensors[i].is_constant for i in op.inputs if i)
        elements = sum(self.tensors[i].elements for i in op.inputs if i) + sum(t.elements for t in outputs)
        if known and op.type not in _FREE:
            if op.type in _LABORIOUS or elements > min(MAX_FOLDED_ELEMENTS, MAX_FOLDED_IN_ALL - self._folded):
                return False
            self._folded += elements
        return super()._fold(op, outputs)
