"""Walking the operations of an ML program: arguments, constants (plain and compressed), states and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.frontends.coreml_mil import Operation, Type, Value
from hetsched.frontends.coreml_package import blob
from hetsched.frontends.coreml_wire import damaged
from hetsched.frontends.lowering import Attrs, Lowering
from hetsched.frontends.sparse import check_size, reference
from hetsched.graph import DType, Role, Tensor, WeightRef

#: Constants up to this size are arrays in memory.
INLINE_BYTES = 4096
_NOTHING = Operation("", "", {}, (), False)


class MilBuilder(Lowering):
    """The graph so far and the operation that is being lowered; arguments are asked for by the names that MIL gives them.

    ``constants`` holds the program's constants, of which those that are tensors join the graph when one is read.
    ``updated`` holds the new values of ``states``.
    """

    def __init__(self, path: Path, inputs: Sequence[Tensor], names: Sequence[str]) -> None:
        super().__init__(path, inputs, names)
        self.current = _NOTHING
        self.constants: dict[str, Value] = {}
        self.states: dict[str, None] = {}
        self.updated: dict[str, str] = {}
        self.values.update({t.name: t.name for t in inputs})

    def turn(self, operation: Operation) -> None:
        """Turn to ``operation``."""
        self.current = operation
        self.begin(operation.name, operation.kind)

    # Arguments

    def has(self, name: str) -> bool:
        """Whether the argument is given."""
        return bool(self.current.args.get(name))

    def _first(self, name: str) -> str | Value:
        if not self.has(name):
            raise self.bad(f"its argument {name!r} is missing")
        return self.current.args[name][0]

    def known(self, name: str) -> Value | None:
        """The constant that the argument is; None where it is computed."""
        first = self._first(name)
        return first if isinstance(first, Value) else self.constants.get(first)

    def tensor_of(self, name: str) -> str:
        """The tensor of the graph that the argument is."""
        return self._resolve(self._first(name), name)

    def tensors_of(self, name: str) -> list[str]:
        """The tensors of an argument that takes several."""
        return [self._resolve(item, f"{name}{k}") for k, item in enumerate(self.current.args.get(name, ()))]

    def maybe(self, name: str) -> str:
        """The tensor of an optional argument, or ``""``."""
        return self.tensor_of(name) if self.has(name) else ""

    def _resolve(self, item: str | Value, what: str) -> str:
        if isinstance(item, Value):
            return self.add(self.fresh(f"{self.node}/{what}"), item)
        if item not in self.values:
            if item not in self.constants:
                raise self.bad(f"it reads {item[:80]!r}, which is never computed")
            self.values[item] = self.add(item, self.constants[item])
        return self.values[item]

    def add(self, name: str, value: Value) -> str:
        """Add a constant of the program as a tensor."""
        if name in self.tensors:
            raise self.bad(f"the constant {name[:80]!r} is defined twice")
        if value.texts or value.type.dtype is DType.STRING:
            raise self.bad(f"its argument {name!r} is a text")
        self.tensors[name] = self.stored(name, value)
        return name

    def stored(self, name: str, value: Value) -> Tensor:
        """A constant with the place of its bytes.

        Raises:
            ModelError: its bytes do not lie in the file of weights, or are too few.
        """
        tensor = Tensor(name, tuple(d or 0 for d in value.type.shape), value.type.dtype, Role.WEIGHT, None, WeightRef(array=value.array))
        if value.blob is None:
            return tensor
        place = blob(self.model, *value.blob, name)
        if place is None:
            return replace(tensor, data=WeightRef())
        path, offset, length, _ = place
        needed = (tensor.elements * value.type.bits + 7) // 8
        if length < needed:
            raise damaged(f"the weights of {name!r} of shape {list(tensor.shape)} need {needed} bytes and have {length}")
        placed = replace(tensor, data=WeightRef(path, offset, needed))
        if needed > INLINE_BYTES or placed.is_packed or value.type.bits != value.type.dtype.bits:
            return placed
        return replace(placed, data=WeightRef(array=np.array(placed.numpy())))

    def array_of(self, name: str) -> npt.NDArray[np.generic]:
        """The value of a small argument that is known when the model is loaded."""
        value = self.known(name)
        if value is not None and value.array is not None:
            return value.array
        return self.value(self.tensor_of(name))

    def number_of(self, name: str, default: float | None = None) -> float:
        """A number."""
        if not self.has(name) and default is not None:
            return default
        array = self.array_of(name)
        if array.size != 1 or array.dtype.kind not in "fiub":
            raise self.bad(f"its argument {name!r} is not one number")
        return float(array.reshape(-1)[0])

    def int_of(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        value = self.number_of(name, default)
        if value != value or value not in {float(int(value)) if abs(value) < 1e18 else None}:
            raise self.bad(f"its argument {name!r} is {value}, not a whole number")
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        return bool(self.number_of(name, default))

    def ints_of(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """A list of whole numbers."""
        if not self.has(name) and default is not None:
            return list(default)
        items = self.current.args.get(name, ())
        if len(items) > 1:  # a list made of several values
            return [v for n in self.tensors_of(name) for v in self.integers(n)]
        array = self.array_of(name)
        if array.dtype.kind not in "iub" or array.size > 1 << 16:
            raise self.bad(f"its argument {name!r} is not a list of whole numbers")
        return [int(v) for v in array.reshape(-1)]

    def text_of(self, name: str, default: str) -> str:
        """A text."""
        if not self.has(name):
            return default
        value = self.known(name)
        if value is None or len(value.texts) != 1:
            raise self.bad(f"its argument {name!r} is not a text")
        return value.texts[0]

    # Results

    def result(self, k: int = 0) -> tuple[str, Type]:
        """Name and type of result ``k``."""
        if k >= len(self.current.outputs):
            raise self.bad(f"its result {k} is missing")
        return self.current.outputs[k]

    def put(self, kind: str, inputs: Sequence[str], attrs: Attrs | None = None, *, k: int = 0) -> None:
        """Add the operator that computes result ``k``."""
        name, _ = self.result(k)
        self.values[name] = self.emit(kind, inputs, attrs, out=name)

    def alias(self, tensor: str, k: int = 0) -> None:
        """Result ``k`` is the tensor ``tensor`` of the graph."""
        self.values[self.result(k)[0]] = tensor

    def check(self) -> None:
        """Compare what was lowered with what the file says of the results; whole numbers become those of the file's type.

        Raises:
            ModelError: a shape differs, or a type in kind.
        """
        for name, kind in self.current.outputs:
            if name not in self.values:
                continue
            tensor = self.tensor(self.values[name])
            same = len(tensor.shape) == len(kind.shape) and all(d is None or d == n for d, n in zip(kind.shape, tensor.shape, strict=True))
            if not same:
                raise self.bad(f"its result {name!r} has the shape {list(tensor.shape)}, and the file says {list(kind.shape)}")
            if tensor.dtype is not kind.dtype:
                if tensor.dtype.is_float is not kind.dtype.is_float:
                    raise self.bad(f"its result {name!r} is {tensor.dtype.value}, and the file says {kind.dtype.value}")
                self.values[name] = self.cast(tensor.name, kind.dtype, what=name)

    def compressed(self, nbytes: int, stored: Tensor, values: Callable[[], npt.NDArray[Any]]) -> None:
        """The first result is a constant that takes ``nbytes`` in the file, of which ``stored`` must be there to make ``values``."""
        name, kind = self.result()
        if name in self.tensors:
            raise self.bad(f"its result {name!r} already has a value")
        self.tensors[name] = compressed_constant(name, tuple(d or 0 for d in kind.shape), kind.dtype, nbytes, stored, values)
        self.alias(name)


def compressed_constant(
    name: str, shape: tuple[int, ...], dtype: DType, nbytes: int, stored: Tensor, values: Callable[[], npt.NDArray[Any]]
) -> Tensor:
    """A constant that takes ``nbytes`` in the file and is made by ``values`` when it is read; absent where ``stored`` is.

    What is packed in the file can be much smaller than the constant, so its size is checked before anything is made.
    """
    if stored.data is None or not stored.data.is_present:
        return Tensor(name, shape, dtype, Role.WEIGHT, None, WeightRef(sparse_bytes=max(nbytes, 1)))
    wanted = dtype.numpy

    def made() -> npt.NDArray[Any]:
        check_size(name, shape, max(wanted.itemsize, 1))
        return values().astype(wanted).reshape(shape)

    return Tensor(name, shape, dtype, Role.WEIGHT, None, reference(name, dtype, nbytes, made))
