"""Walking the nodes of an exported program: arguments, results, views and in-place operators, for the lowerings of each operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetsched.frontends.lowering import Attrs, Lowering
from hetsched.frontends.torch_dims import evaluate, whole
from hetsched.frontends.torch_program import Meta, Node, Program, as_list, as_map
from hetsched.graph import DType, Tensor

_INT_FLOOR = -(1 << 62)


@dataclass(frozen=True, slots=True)
class View:
    """A value that shares memory with ``base``: elements ``start`` to ``stop`` of ``axis``, without the axis if ``selects``."""

    base: str
    axis: int
    start: int
    stop: int
    selects: bool


class Builder(Lowering):
    """The graph so far and the node that is being lowered; arguments are asked for by the name that PyTorch's schema gives them.

    ``views`` says which values are slices of others, ``owners`` whose memory a value shares, ``initial`` what the buffers were first.
    """

    def __init__(self, path: Path, program: Program, inputs: Sequence[Tensor], symbols: Mapping[str, int]) -> None:
        super().__init__(path, inputs, program.tensors)
        self.program, self.symbols = program, symbols
        self.current = Node("", "", {}, ())
        self.views: dict[str, View] = {}
        self.owners: dict[str, str] = {}
        self.initial: dict[str, str] = {}
        self.values.update({t.name: t.name for t in inputs})

    def turn(self, node: Node) -> None:
        """Turn to ``node``."""
        self.current = node
        self.begin(node.name, node.target)

    # Arguments

    def has(self, name: str) -> bool:
        """Whether the argument is given and not None."""
        return name in self.current.args and "as_none" not in self.current.args[name] and not self._is_absent(name)

    def _is_absent(self, name: str) -> bool:
        inner = self.current.args[name].get("as_optional_tensor")
        return isinstance(inner, dict) and "as_none" in inner

    def is_tensor(self, name: str) -> bool:
        """Whether the argument is a tensor (not a number)."""
        return self.has(name) and ("as_tensor" in self.current.args[name] or "as_optional_tensor" in self.current.args[name])

    def tensor_of(self, name: str) -> str:
        """The tensor of the graph that a tensor argument is."""
        return self.resolve(self.file_name(name))

    def file_name(self, name: str) -> str:
        """The program's name of a tensor argument."""
        if not self.is_tensor(name):
            raise self.bad(f"its argument {name!r} is not a tensor")
        arg = self.current.args[name]
        return str(as_map(arg.get("as_tensor") or arg["as_optional_tensor"].get("as_tensor"), f"the argument {name!r}").get("name"))

    def resolve(self, file_name: str) -> str:
        """The tensor of the graph that holds a value of the program."""
        if file_name not in self.values:
            if file_name in self.owners or file_name in self.initial:
                raise self.unsupported(f"it reads {file_name!r}, whose memory was written through another tensor")
            raise self.bad(f"it reads {file_name[:80]!r}, which is never computed")
        return self.values[file_name]

    def maybe(self, name: str) -> str:
        """The tensor of an optional argument; ``""`` where it is left out."""
        return self.tensor_of(name) if self.has(name) else ""

    def tensors_of(self, name: str) -> list[str]:
        """The tensors of a list; ``""`` for None."""
        arg = self.current.args.get(name, {})
        out = []
        for item in as_list(arg.get("as_tensors", arg.get("as_optional_tensors")), f"the argument {name!r}"):
            part = as_map(item, f"the argument {name!r}")
            if "as_none" in part:
                out.append("")
                continue
            out.append(self.resolve(str(as_map(part.get("as_tensor", part), f"the argument {name!r}").get("name"))))
        return out

    def number_of(self, name: str, default: float | None = None) -> int | float:
        """A number, also one that is computed from shapes."""
        if not self.has(name):
            if default is None:
                raise self.bad(f"its argument {name!r} is missing")
            return default
        kind, value = next(iter(self.current.args[name].items()))
        if kind in {"as_int", "as_float", "as_bool"} and isinstance(value, int | float):
            return value
        if kind in {"as_string", "as_float"} and value in {"inf", "-inf", "nan", "Infinity", "-Infinity", "NaN"}:
            return float(value)
        if kind in {"as_sym_int", "as_sym_float", "as_sym_bool"}:
            return self._symbolic(value)
        raise self.bad(f"its argument {name!r} is not a number")

    def _symbolic(self, value: object) -> int | float:
        union = as_map(value, "an argument")
        if "as_name" in union:
            name = str(union["as_name"])
            if name not in self.program.integers:
                raise self.bad(f"it reads the number {name[:80]!r}, which is never computed")
            return evaluate(self.program.integers[name], self.symbols, f"the number {name!r} that node {self.node!r} reads")
        for key in ("as_int", "as_float", "as_bool"):
            if isinstance(union.get(key), int | float):
                number: int | float = union[key]
                return number
        raise self.bad("one of its arguments is not a number")

    def int_of(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        value = self.number_of(name, default)
        if value != value or abs(value) == float("inf"):
            raise self.bad(f"its argument {name!r} is {value}")
        return whole(value, f"the argument {name!r} of node {self.node!r}")

    def ints_of(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """A list of whole numbers; a single one is a list of one."""
        if not self.has(name):
            if default is None:
                raise self.bad(f"its argument {name!r} is missing")
            return list(default)
        kind, value = next(iter(self.current.args[name].items()))
        if kind in {"as_int", "as_sym_int"}:
            return [self.int_of(name)]
        if kind not in {"as_ints", "as_sym_ints", "as_bools", "as_floats"}:
            raise self.bad(f"its argument {name!r} is not a list of numbers")
        items = as_list(value, f"the argument {name!r}")
        numbers = [self._symbolic(i) if isinstance(i, dict) else i for i in items]
        if not all(isinstance(i, int) and abs(i) < -_INT_FLOOR * 2 for i in numbers):
            raise self.bad(f"its argument {name!r} is not a list of whole numbers")
        return [int(i) for i in numbers]

    def pair_of(self, name: str, count: int, default: Sequence[int]) -> list[int]:
        """A list with one number for each of ``count`` axes; a list of one is repeated."""
        values = self.ints_of(name, default) or list(default)
        values = values * count if len(values) == 1 else values
        if len(values) != count or any(not 0 <= abs(v) < 1 << 31 for v in values):
            raise self.bad(f"its argument {name!r} is {values[:8]}, and {count} numbers are expected")
        return values

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        return bool(self.number_of(name, default))

    def text_of(self, name: str, default: str) -> str:
        """A text."""
        value: Any = self.current.args[name].get("as_string") if self.has(name) else default
        if not isinstance(value, str):
            raise self.bad(f"its argument {name!r} is not a text")
        return value

    # Results

    def result_name(self, k: int = 0) -> str:
        """The program's name of result ``k``."""
        name = self.current.outputs[k] if k < len(self.current.outputs) else None
        if name is None:
            raise self.bad(f"its result {k} is not a tensor")
        return name

    def meta(self, k: int = 0) -> Meta:
        """What the file says of result ``k``."""
        name = self.result_name(k)
        if name not in self.program.tensors:
            raise self.bad(f"its result {name!r} has no shape")
        return self.program.tensors[name]

    def result_shape(self, k: int = 0) -> tuple[int, ...]:
        """Shape of result ``k`` as the file has it."""
        name = self.result_name(k)
        what = f"a size of {name!r}, written by node {self.node!r},"
        return tuple(whole(evaluate(s, self.symbols, what), what) for s in self.meta(k).sizes)

    def put(self, kind: str, inputs: Sequence[str], attrs: Attrs | None = None, *, k: int = 0) -> None:
        """Add the operator that computes result ``k``."""
        name = self.result_name(k)
        self.values[name] = self.emit(kind, inputs, attrs, out=name)

    def put_many(self, kind: str, inputs: Sequence[str], attrs: Attrs | None = None) -> None:
        """Add the operator that computes all results."""
        names = [self.result_name(k) for k in range(len(self.current.outputs))]
        self.emit_many(kind, inputs, len(names), attrs, outs=names)
        self.values.update({n: n for n in names})

    def alias(self, tensor: str, k: int = 0) -> None:
        """Result ``k`` is the tensor ``tensor`` of the graph."""
        self.values[self.result_name(k)] = tensor

    def check(self) -> None:
        """Compare what was lowered with what the file says of the results.

        Raises:
            ModelError: shape or type differ.
        """
        for k, name in enumerate(self.current.outputs):
            if name is None or name not in self.values:
                continue
            tensor, shape = self.tensor(self.values[name]), self.result_shape(k)
            if tensor.shape != shape or tensor.dtype is not self.meta(k).dtype:
                has, says = f"{tensor.dtype.value}{list(tensor.shape)}", f"{self.meta(k).dtype.value}{list(shape)}"
                raise self.bad(f"its result {name!r} is {has}, and the file says {says}")

    # Arithmetic between types

    def operand(self, name: str, dtype: DType) -> str:
        """A tensor or a number as a tensor of the type ``dtype``."""
        if self.is_tensor(name):
            return self.cast(self.tensor_of(name), dtype, what=f"{name}_cast")
        return self.number(self.number_of(name), dtype)

    def common(self, *names: str) -> DType:
        """The type that operands are compared in: of the tensors with the highest kind and rank; numbers only raise the kind."""
        full = [self.dtype(self.tensor_of(n)) for n in names if self.is_tensor(n) and self.shape(self.tensor_of(n))]
        scalars = [self.dtype(self.tensor_of(n)) for n in names if self.is_tensor(n) and not self.shape(self.tensor_of(n))]
        numbers = [self.number_of(n) for n in names if not self.is_tensor(n)]
        scalars += [DType.F32 if isinstance(v, float) else DType.BOOL if isinstance(v, bool) else DType.I64 for v in numbers]
        best = max(full, key=_order, default=None)
        wide = max(scalars, key=_order, default=None)
        if best is None or (wide is not None and _order(wide)[0] > _order(best)[0]):
            return wide or DType.F32
        return best


def _order(dtype: DType) -> tuple[int, int]:
    return (2 if dtype.is_float else 0 if dtype is DType.BOOL else 1), dtype.bits
