"""Symbolic sizes of an exported program: binding the symbols, and evaluating expressions of them.

PyTorch writes expressions as SymPy does, either readable (``2*s0 + 1``) or as constructor calls
(``Add(Mul(Integer(2), Symbol('s0', positive=True)), Integer(1))``). Both are read as Python syntax and evaluated by a table of
operators: nothing is ever run.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.frontends.onnx_dims import bind_inputs
from hetsched.frontends.torch_program import Program, Size, damaged, symbol_name
from hetsched.graph import Role, Tensor
from hetsched.reference.element_types import NUMBER_OF

Number = int | float
_LIMIT = 1 << 62


def evaluate(text: Size | float, symbols: Mapping[str, int], what: str) -> Number:
    """The value of an expression.

    Args:
        text: the expression; a number is returned as it is.
        symbols: values of the symbols.
        what: what it is the value of, for messages.

    Raises:
        UnsupportedModelError: it depends on data (a symbol that no input's shape has), or uses a function that is not handled.
        ModelError: it is no expression, or has no value.
    """
    if not isinstance(text, str):
        return text
    try:
        value = _Evaluator(symbols, what).of(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError, ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise damaged(f"{what} is {text[:60]!r}, which has no value") from error
    if not math.isfinite(value) or abs(value) > _LIMIT:
        raise damaged(f"{what} is {text[:60]!r}, which is out of range")
    return value


class _Evaluator:
    def __init__(self, symbols: Mapping[str, int], what: str) -> None:
        self.symbols, self.what = symbols, what

    def of(self, node: ast.expr) -> Number:
        """The value of one node of the syntax tree."""
        match node:
            case ast.Constant(value=int() | float() as value):
                return self._small(value)
            case ast.Name(id=name):
                return self._symbol(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.of(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._small(_BINARY[type(op)](self.of(left), self.of(right)))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return int(_COMPARE[type(op)](self.of(left), self.of(right)))
            case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))]):
                return self._symbol(name)
            case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
                count, function = FUNCTIONS[name]
                if (len(args) != count) if count else (not args):
                    raise ValueError(f"{name} has {len(args)} arguments")
                return self._small(function([self.of(a) for a in args]))
            case ast.Call(func=ast.Name(id=name)) | ast.Name(id=name):
                raise UnsupportedModelError(f"{self.what} is computed with {name[:40]!r}, which is not supported")
        raise ValueError(ast.dump(node)[:60])

    def _symbol(self, name: str) -> int:
        if name not in self.symbols:
            raise UnsupportedModelError(f"{self.what} depends on the data ({name[:40]!r}): such models cannot be planned ahead")
        return self.symbols[name]

    def _small(self, value: Number) -> Number:
        if abs(value) > _LIMIT:
            raise ValueError("out of range")
        return value


def _power(a: Number, b: Number) -> Number:
    if abs(b) > 64 or (a == 0 and b < 0):
        raise ValueError("out of range")
    value: Number = a**b
    return value


_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Div: operator.truediv, ast.Pow: _power,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Number, Number], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
#: How many arguments each takes (0: one or more), and its value.
FUNCTIONS: dict[str, tuple[int, Callable[[Sequence[Number]], Number]]] = {
    "Integer": (1, lambda v: int(v[0])),
    "Float": (1, lambda v: float(v[0])),
    "Rational": (2, lambda v: v[0] / v[1]),
    "Add": (0, sum),
    "Mul": (0, math.prod),
    "Pow": (2, lambda v: _power(v[0], v[1])),
    "PowByNatural": (2, lambda v: _power(v[0], v[1])),
    "Max": (0, max),
    "Min": (0, min),
    "Mod": (2, lambda v: v[0] % v[1]),
    "PythonMod": (2, lambda v: v[0] % v[1]),
    "FloorDiv": (2, lambda v: v[0] // v[1]),
    "CleanDiv": (2, lambda v: v[0] // v[1]),
    "CeilDiv": (2, lambda v: -(-v[0] // v[1])),
    "IntTrueDiv": (2, lambda v: v[0] / v[1]),
    "FloatTrueDiv": (2, lambda v: v[0] / v[1]),
    "ToFloat": (1, lambda v: float(v[0])),
    "TruncToInt": (1, lambda v: math.trunc(v[0])),
    "FloorToInt": (1, lambda v: math.floor(v[0])),
    "CeilToInt": (1, lambda v: math.ceil(v[0])),
    "RoundToInt": (1, lambda v: round(v[0])),
    "floor": (1, lambda v: math.floor(v[0])),
    "ceiling": (1, lambda v: math.ceil(v[0])),
    "Abs": (1, lambda v: abs(v[0])),
    "OpaqueUnaryFn_sqrt": (1, lambda v: math.sqrt(v[0])),
    "StrictLessThan": (2, lambda v: int(v[0] < v[1])),
    "StrictGreaterThan": (2, lambda v: int(v[0] > v[1])),
    "LessThan": (2, lambda v: int(v[0] <= v[1])),
    "GreaterThan": (2, lambda v: int(v[0] >= v[1])),
    "Equality": (2, lambda v: int(v[0] == v[1])),
    "Unequality": (2, lambda v: int(v[0] != v[1])),
    "Where": (3, lambda v: v[1] if v[0] else v[2]),
    "And": (0, lambda v: int(all(v))),
    "Or": (0, lambda v: int(any(v))),
    "Not": (1, lambda v: int(not v[0])),
    "BitwiseFn_bitwise_and": (0, lambda v: reduce(operator.and_, (int(i) for i in v))),
}


def bound_inputs(
    program: Program, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]], model: str
) -> tuple[list[Tensor], dict[str, int]]:
    """The program's own inputs with fixed shapes, and the value of every symbol.

    A symbol takes its value from ``dims`` (as ``s0`` or ``<input>.<axis>``) or ``shapes``; else 1 where it is axis 0 of some
    input, as for an ONNX model; else what it was when the program was exported, where the file says so.

    Raises:
        ModelError: a symbol stays free.
        OptionError: a value does not fit the program.
    """
    from onnx import helper

    names = [s.name for s in program.sources if s.kind == "user_input"]
    missing = next((n for n in names if n not in program.tensors), None)
    if missing is not None:
        raise damaged(f"its input {missing[:80]!r} has no shape")
    rows = {n: [s if isinstance(s, int) else symbol_name(s) or 1 for s in program.tensors[n].sizes] for n in names}
    infos = [helper.make_tensor_value_info(n, NUMBER_OF[program.tensors[n].dtype], row) for n, row in rows.items()]
    _, symbols = bind_inputs(infos, _with_hints(program, rows, dims, shapes), shapes, model)
    for name, value in symbols.items():
        low, high = program.ranges.get(name, (0, None))
        # Exporters write 2 where they only mean "not known to be 1": sizes 0 and 1 are specialised in PyTorch.
        if (high is not None and value > high) or (value < low and low > 2):
            raise OptionError(f"the dim {name!r} of the model {model!r} cannot be {value}: it was exported for {low} to {high or 'any'}")
    tensors = []
    for n in names:
        shape = tuple(int(evaluate(s, symbols, f"a size of the input {n!r}")) for s in program.tensors[n].sizes)
        tensors.append(Tensor(n, shape, program.tensors[n].dtype, Role.INPUT))
    return tensors, symbols


def _with_hints(
    program: Program, rows: Mapping[str, Sequence[int | str]], dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """``dims``, and what other symbols than a batch were when the program was exported."""
    places = [(s, n, k) for n, row in rows.items() for k, s in enumerate(row) if isinstance(s, str)]
    named = {s for s, n, k in places if k == 0 or s in dims or f"{n}.{k}" in dims or n in shapes}
    hints = {s: program.hints[s] for s, _, _ in places if s not in named and program.hints.get(s, 0) > 0}
    return {**dims, **hints}


def whole(value: Number, what: str) -> int:
    """``value``, which must be a whole number."""
    if value != int(value):
        raise ModelError(f"{what} is {value}, which is not a whole number: the exported program is damaged")
    return int(value)
