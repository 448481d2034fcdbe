"""What a QuantizeLinear or DequantizeLinear with constant parameters for a whole tensor does, comparable by value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hetsched.graph import DType, Op, Quantization, Tensor

_CODES = {DType.I8: (-128, 127), DType.U8: (0, 255), DType.I16: (-(1 << 15), (1 << 15) - 1), DType.U16: (0, (1 << 16) - 1)}


@dataclass(frozen=True, slots=True)
class Parameters:
    """``real = scale * (stored - zero_point)``; ``names`` are the constants that say so, not part of the comparison."""

    scale: float
    zero_point: int
    stored: DType
    real: DType
    names: tuple[str, ...]

    def same(self, other: Parameters) -> bool:
        """Whether both mean the same by the same integers."""
        mine, theirs = ((p.scale, p.zero_point, p.stored, p.real) for p in (self, other))
        return mine == theirs

    @property
    def quantization(self) -> Quantization:
        """As :attr:`Tensor.quantization`."""
        return Quantization(self.names[0], self.names[1] if len(self.names) > 1 else None)

    def code(self, value: float) -> int:
        """The integer that ``value`` is stored as."""
        low, high = _CODES[self.stored]
        return int(np.clip(np.rint(np.float32(value) / np.float32(self.scale)) + self.zero_point, low, high))

    def value(self, code: int) -> float:
        """What the integer ``code`` stands for."""
        return float(np.float32(self.scale) * np.float32(code - self.zero_point))


def parameters(op: Op, tensors: Mapping[str, Tensor]) -> Parameters | None:
    """The parameters of a Q or DQ; None if they are computed, per channel or block, or of another type than 8 or 16 bits."""
    if op.type not in {"QuantizeLinear", "DequantizeLinear"} or op.domain or op.body or op.attr_int("block_size", 0):
        return None
    integers, reals = (op.outputs[0], op.inputs[0]) if op.type == "QuantizeLinear" else (op.inputs[0], op.outputs[0])
    names = tuple(n for n in op.inputs[1:3] if n)
    stored, real = tensors[integers].dtype, tensors[reals].dtype
    if stored not in _CODES or not all(_is_number(tensors[n]) for n in names):
        return None
    numbers = [tensors[n].numpy().reshape(()).item() for n in names]
    return Parameters(float(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0, stored, real, names)


def _is_number(t: Tensor) -> bool:
    return t.elements == 1 and t.data is not None and t.data.is_present
