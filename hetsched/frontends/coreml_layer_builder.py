"""Walking the layers of a classic neural network: inputs, results, and weights that are ranges of the model file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hetsched.frontends.coreml_builder import INLINE_BYTES, MilBuilder, compressed_constant
from hetsched.frontends.coreml_decode import Array, unpacked
from hetsched.frontends.coreml_wire import Message
from hetsched.frontends.lowering import Attrs
from hetsched.graph import DType, Role, Tensor, WeightRef


class LayerBuilder(MilBuilder):
    """The graph so far and the layer that is being lowered.

    Without the exact mapping every value is an image ``[batch, channels, height, width]``; of those that come from a matrix,
    ``flat`` holds the matrix, so that products of them need no reshaping.
    """

    def __init__(self, path: Path, inputs: Sequence[Tensor], names: Sequence[str], exact: bool) -> None:
        super().__init__(path, inputs, names)
        self.exact = exact
        self.flat: dict[str, str] = {}
        self._inputs: list[str] = []
        self._outputs: list[str] = []

    def turn(self, node: str, kind: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:  # type: ignore[override]
        """Turn to a layer."""
        self.begin(node, kind)
        self._inputs, self._outputs = list(inputs), list(outputs)

    @property
    def count(self) -> int:
        """How many inputs the layer has."""
        return len(self._inputs)

    @property
    def results(self) -> int:
        """How many results the layer has."""
        return len(self._outputs)

    def value_named(self, name: str) -> str:
        """The tensor that holds a value of the network."""
        if name not in self.values:
            raise self.bad(f"it reads {name[:80]!r}, which is never computed")
        return self.values[name]

    def given(self, k: int = 0) -> str:
        """The tensor that is input ``k``."""
        if k >= len(self._inputs):
            raise self.bad(f"its input {k} is missing")
        return self.value_named(self._inputs[k])

    def given_all(self) -> list[str]:
        """The tensors of all inputs."""
        return [self.given(k) for k in range(len(self._inputs))]

    def out(self, k: int = 0) -> str:
        """The network's name of result ``k``."""
        if k >= len(self._outputs):
            raise self.bad(f"its result {k} is missing")
        return self._outputs[k]

    def give(self, kind: str, inputs: Sequence[str], attrs: Attrs | None = None) -> None:
        """Add the operator that computes the result (a layer may write its own input's name: then the result has another)."""
        name = self.out()
        self.values[name] = self.emit(kind, inputs, attrs, out=name if name not in self.tensors else self.fresh(name))

    def same(self, tensor: str, k: int = 0) -> None:
        """Result ``k`` is the tensor ``tensor``."""
        self.values[self.out(k)] = tensor

    def image(self, k: int = 0) -> str:
        """Input ``k``, which must be an image."""
        x = self.given(k)
        if len(self.shape(x)) != 4:
            raise self.unsupported(f"its input has the shape {list(self.shape(x))}, and an image has 4 axes")
        return x

    def rows(self, k: int = 0) -> str:
        """Input ``k`` as a matrix of one row for each image."""
        x = self.given(k)
        if self.exact and len(self.shape(x)) != 4:
            return x
        shape = self.shape(x)
        return self.flat.get(x) or self.reshape(x, (shape[0], math.prod(shape[1:])), what="rows")

    def give_rows(self, matrix: str) -> None:
        """The result is ``matrix``; without the exact mapping as images of one pixel."""
        if self.exact:
            self.same(matrix)
            return
        image = self.reshape(matrix, (*self.shape(matrix), 1, 1), what="image")
        self.flat[image] = matrix
        self.same(image)

    def weights(self, message: Message, what: str, shape: Sequence[int]) -> str:
        """The weights ``message`` in the shape ``shape``: a range of the file, or compressed and only described.

        Raises:
            ModelError: they are fewer or more than the shape needs.
        """
        name, count = self.fresh(f"{self.node}.{what}"), math.prod(shape)
        tensor = Tensor(name, tuple(int(d) for d in shape), DType.F32, Role.WEIGHT)
        for field, dtype in (("floatValue", DType.F32), ("float16Value", DType.F16)):
            if message.has(field):
                span = message.span(field)
                length = span[1] if span else 4 * len(message.reals(field))
                if length != count * dtype.bits // 8:
                    raise self.bad(f"its {what} of shape {list(shape)} need {count * dtype.bits // 8} bytes and have {length}")
                array = None if span else message.reals(field).reshape(tensor.shape)
                data = WeightRef(array=array) if span is None else WeightRef(self.model.path, span[0], span[1])
                return self._plain(replace(tensor, dtype=dtype, data=data))
        raw = next((f for f in ("rawValue", "int8RawValue") if message.has(f)), "")
        if not raw:
            raise self.bad(f"its {what} are missing")
        tensor, nbytes, values = self._quantized(message, raw, what, tensor)
        stored = Tensor("", (1,), DType.U8, Role.WEIGHT, None, WeightRef(self.model.path, 0, 1))
        self.tensors[name] = compressed_constant(name, tensor.shape, DType.F32, nbytes, stored, values)
        return name

    def _quantized(self, message: Message, raw: str, what: str, tensor: Tensor) -> tuple[Tensor, int, Callable[[], Array]]:
        """Weights of 1 to 8 bits with scales and biases of the first axis, or with a table: their bytes, and what makes them."""
        quantization, span, count = message.message("quantization"), message.span(raw), tensor.elements
        bits = quantization.integer("numberOfBits") or 8
        linear, table = (quantization.message(n) for n in ("linearQuantization", "lookupTableQuantization"))
        if span is None or not 1 <= bits <= 8 or span[1] < (count * bits + 7) // 8:
            raise self.bad(f"its {what} of shape {list(tensor.shape)} do not have {count} values of {bits} bits")
        scale, bias, entries = linear.reals("scale"), linear.reals("bias"), table.reals("floatValue")
        rows = tensor.shape[0] if tensor.shape else 1
        looked_up = quantization.has("lookupTableQuantization")
        if (looked_up and len(entries) < 1 << bits) or any(len(v) not in {0, 1, rows} for v in (scale, bias)):
            raise self.bad(f"its {what} have {len(scale)} scales, {len(bias)} biases and {len(entries)} entries")
        path, (offset, length) = self.model.path, span

        def values() -> Array:
            stored = np.memmap(path, np.uint8, "r", offset, (length,))
            numbers = unpacked(stored, count, bits, lowest_first=False)
            if looked_up:
                return np.asarray(entries[numbers])
            wide = numbers.astype(np.float32).reshape(rows, -1)
            with np.errstate(all="ignore"):
                return wide * (scale.reshape(-1, 1) if len(scale) else 1) + (bias.reshape(-1, 1) if len(bias) else 0)

        return tensor, length + scale.nbytes + bias.nbytes + entries.nbytes, values

    def _plain(self, tensor: Tensor) -> str:
        """Weights that are not quantized; float16 ones take half the bytes in the file, and layers compute in float32."""
        data, name = tensor.data, tensor.name
        assert data is not None
        if tensor.nbytes <= INLINE_BYTES:
            tensor = replace(tensor, dtype=DType.F32, data=WeightRef(array=np.array(tensor.numpy(), np.float32)))
        elif tensor.dtype is DType.F16:
            tensor = compressed_constant(name, tensor.shape, DType.F32, tensor.nbytes, tensor, tensor.numpy)
        self.tensors[name] = tensor
        return name
