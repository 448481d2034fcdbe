"""Walking TFLite's operators: layouts, quantization and names, for the lowerings of each operator.

TFLite keeps images as NHWC, this project's operators are those of ONNX, on NCHW. A tensor of the file is a :class:`Value`:
a tensor of the graph, and in which order that has the file's axes. A convolution asks for its input as NCHW and leaves
its output so; operators that do not care about the order take their input as it is; a TRANSPOSE only changes the order and
moves nothing. So transpositions are left where the layouts really meet: at inputs, outputs and flattening.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from hetsched.frontends.tflite_constants import WeightFile
from hetsched.frontends.tflite_model import Stored, Subgraph
from hetsched.frontends.tflite_reader import NCHW, Reader
from hetsched.frontends.tflite_scope import Attrs, Order, Value
from hetsched.graph import Tensor

__all__ = ["NCHW", "Attrs", "Builder", "Order", "Stage", "Value"]

#: An operator that follows another: type, inputs after the first, attributes.
Stage = tuple[str, tuple[str, ...], Attrs]


#: Operators with which the passes join an activation, so that it costs nothing.
_FUSING = frozenset({"Conv", "ConvTranspose", "Gemm"})


class Builder(Reader):
    """A scope that writes: the result of an operator with its activation, its quantization and the file's name.

    ``padded`` says of the results of plain zero padding what was padded and how much: a convolution pads itself.
    """

    def __init__(self, weights: WeightFile, graph: Subgraph, inputs: Sequence[Tensor]) -> None:
        super().__init__(weights, graph, inputs)
        self.padded: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}
        self._ends = frozenset(graph.outputs)

    def write(self, kind: str, inputs: Sequence[str], attrs: Attrs | None = None, *, order: Order | None = None,
              activation: str = "", k: int = 0, raw: bool = False, shape: Sequence[int] | None = None) -> None:  # fmt: skip
        """Add the operator that computes output ``k``, then its activation, its quantization and its reshaping.

        Args:
            kind: ONNX operator.
            inputs: tensor names.
            attrs: attributes.
            order: in which order of the file's axes the result is; the file's own where none is given.
            activation: TFLite operator of the built-in activation.
            k: which output.
            raw: the result is the stored integers already.
            shape: the final shape, where the operator computes another one.
        """
        from hetsched.frontends.tflite_activations import is_implied, stages

        stored = self.result(k)
        quantization = self.quantization(stored)
        linear = quantization is not None and not raw
        if linear and kind not in _FUSING and is_implied(activation, stored):
            activation = ""
        final = self.new_name(stored, order)
        name = final if shape is None else self._unique(f"{final}/{kind.lower()}")
        chain: list[Stage] = [(kind, tuple(inputs), attrs or {}), *stages(self, activation)]
        current: tuple[str, ...] = ()
        for i, (part, given, settings) in enumerate(chain):
            last = i == len(chain) - 1
            label = self.node if last else f"{self.node}/{part.lower()}"
            out = name if last and not linear else self._unique(f"{name}/{part.lower()}")
            self._add(part, (*current, *given), (out,), settings, label)
            current = (out,)
        if linear and quantization is not None:
            self._linear("QuantizeLinear", current[0], name, quantization, f"{self.node}/quantize", (self.node,))
        self._mean(name, quantization)
        if shape is not None:
            self._reshape(name, tuple(shape), final)
        self.define(stored, final, order)

    def write_value(self, array: npt.NDArray[Any]) -> None:
        """Make output 0 a constant that is known now."""
        stored = self.result()
        name = self.add_constant(stored.name, array.astype(stored.element_type().numpy))
        self.define(stored, name)

    def write_reshaped(self, name: str, shape: tuple[int, ...], *, order: Order | None = None, k: int = 0) -> None:
        """Make output ``k`` the tensor ``name`` with another shape; its integers keep their meaning."""
        stored = self.result(k)
        out = self.new_name(stored, order)
        self._reshape(name, shape, out)
        self.define(stored, self.same_meaning(out, stored), order)

    def quantize(self, name: str, stored: Stored, order: Order | None = None) -> None:
        """Make ``stored`` the quantized form of the float tensor ``name``."""
        quantization = self.quantization(stored)
        if quantization is None:
            raise self.bad(f"its result {stored.name!r} has no scale")
        out = self.new_name(stored, order)
        self._linear("QuantizeLinear", name, out, quantization, self.node, (self.node,))
        self._mean(out, quantization)
        self.define(stored, out, order)

    def reshaped(self, name: str, shape: tuple[int, ...], what: str) -> str:
        """The tensor ``name`` with another shape."""
        return name if self.tensors[name].shape == shape else self._reshape(name, shape, self._unique(f"{self.node}/{what}"))

    def split(self, x: Value, axis: int, sizes: Sequence[int], names: Sequence[str]) -> list[str]:
        """``x``, as stored, cut along ``axis`` of its tensor; the parts, under names like ``names``."""
        outs = [self._unique(n, own=True) for n in names]
        self._add("Split", (x.name, self.ints("parts", sizes)), tuple(outs), {"axis": axis}, self.node)
        quantization = self.tensors[x.name].quantization
        if quantization is not None and quantization.axis is not None:
            raise self.unsupported(f"it cuts {x.name!r}, which is quantized per channel")
        for name in outs:
            self._mean(name, quantization)
        return outs

    def new_name(self, stored: Stored, order: Order | None = None) -> str:
        """The name for the tensor that stands for ``stored``: the file's, unless an output needs that in another order."""
        plain = order is None or order == tuple(range(len(order)))
        return self._unique(stored.name if plain or stored.index not in self._ends else f"{stored.name}/nchw", own=True)

    def define(self, stored: Stored, name: str, order: Order | None = None) -> None:
        """Say that the tensor ``name`` is ``stored``, with its axes in ``order``."""
        if stored.index in self.values:
            raise self.bad(f"it writes {stored.name!r}, which already has a value")
        rank = len(self.tensors[name].shape)
        if order is not None and len(order) != rank:
            raise self.bad(f"its result {stored.name!r} has {rank} dimensions where {len(order)} are needed")
        self.values[stored.index] = Value(name, tuple(range(rank)) if order is None else order)

    def keep_meaning(self, name: str, source: str) -> str:
        """``name``, whose integers were moved from ``source`` and mean the same."""
        self._mean(name, self.tensors[source].quantization)
        return name

    def quantized_like(self, name: str, source: str, what: str) -> str:
        """The floats ``name`` stored as the integers of ``source`` are; ``name`` itself where those are floats."""
        quantization = self.tensors[source].quantization
        if quantization is None:
            return name
        out = self._unique(f"{self.node}/{what}")
        self._linear("QuantizeLinear", name, out, quantization, f"{self.node}/{what}", (self.node,))
        self._mean(out, quantization)
        return out

    def same_meaning(self, name: str, stored: Stored) -> str:
        """``name``, or a requantized copy where its integers do not mean what those of ``stored`` should."""
        have, want = self.tensors[name].quantization, self.quantization(stored)
        if have == want or want is None:
            return name
        if have is None:
            raise self.bad(f"its result {stored.name!r} is quantized and its input is not")
        out = self._unique(f"{stored.name}/requantized")
        self._linear("QuantizeLinear", self.dequantized(name), out, want, f"{self.node}/quantize", (self.node,))
        self._mean(out, want)
        return out
