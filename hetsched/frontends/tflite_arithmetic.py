"""Operators of two or more tensors that broadcast."""

from __future__ import annotations

from collections.abc import Callable

from hetsched.frontends.tflite_builder import Builder, Order

Lower = Callable[[Builder], None]


def operands(b: Builder) -> tuple[list[str], Order]:
    """The inputs as floats (or plain numbers) that broadcast as in the file, and the order in which their axes are."""
    names, order = stored_operands(b)
    return [b.dequantized(n) for n in names], order


def stored_operands(b: Builder) -> tuple[list[str], Order]:
    """The inputs as stored, in one order."""
    lead = b.leading()
    return [b.like(slot, lead) for slot in range(len(b.op.inputs))], lead.order


def arithmetic(kind: str, fused: bool = False) -> Lower:
    """The lowering of an operator of two tensors; ``fused``: it may have an activation built in."""

    def lower(b: Builder) -> None:
        names, order = operands(b)
        if len(names) != 2:
            raise b.bad(f"it has {len(names)} inputs")
        b.write(kind, names, order=order, activation=b.activation if fused else "")

    return lower


def _not_equal(b: Builder) -> None:
    names, order = operands(b)
    b.write("Not", (b.emit("Equal", names, "equal"),), order=order)


def _squared_difference(b: Builder) -> None:
    names, order = operands(b)
    difference = b.emit("Sub", names, "difference")
    b.write("Mul", (difference, difference), order=order)


def _floor_div(b: Builder) -> None:
    """``floor(a / b)``; for integers ``(a - a mod b) / b``, where the remainder has the sign of ``b`` and the division is exact."""
    (x, y), order = _two(b)
    if b.tensors[x].dtype.is_float:
        b.write("Floor", (b.emit("Div", (x, y), "quotient"),), order=order)
        return
    rest = b.emit("Mod", (x, y), "remainder")
    b.write("Div", (b.emit("Sub", (x, rest), "multiple"), y), order=order)


def _floor_mod(b: Builder) -> None:
    (x, y), order = _two(b)
    if not b.tensors[x].dtype.is_float:
        b.write("Mod", (x, y), order=order)
        return
    whole = b.emit("Floor", (b.emit("Div", (x, y), "quotient"),), "floor")
    b.write("Sub", (x, b.emit("Mul", (whole, y), "multiple")), order=order)


def _two(b: Builder) -> tuple[tuple[str, str], Order]:
    names, order = operands(b)
    if len(names) != 2:
        raise b.bad(f"it has {len(names)} inputs")
    return (names[0], names[1]), order


def _select(b: Builder) -> None:
    """SELECT picks whole rows where its condition is a vector; SELECT_V2 broadcasts."""
    if b.op.type == "SELECT" and b.rank(0) == 1 and b.rank(1) > 1:
        order = tuple(range(b.rank(1)))
        rows = b.reshaped(b.raw(b.value(0)), (*b.shape(0), *[1] * (b.rank(1) - 1)), "rows")
        b.write("Where", (rows, b.real(b.value(1)), b.real(b.value(2))), order=order)
        return
    names, order = operands(b)
    b.write("Where", names, order=order)


def _add_n(b: Builder) -> None:
    names, order = operands(b)
    b.write("Sum" if len(names) != 2 else "Add", names, order=order)


LOWERINGS: dict[str, Lower] = {
    "ADD": arithmetic("Add", fused=True),
    "SUB": arithmetic("Sub", fused=True),
    "MUL": arithmetic("Mul", fused=True),
    "DIV": arithmetic("Div", fused=True),
    "MAXIMUM": arithmetic("Max"),
    "MINIMUM": arithmetic("Min"),
    "POW": arithmetic("Pow"),
    "EQUAL": arithmetic("Equal"),
    "LESS": arithmetic("Less"),
    "LESS_EQUAL": arithmetic("LessOrEqual"),
    "GREATER": arithmetic("Greater"),
    "GREATER_EQUAL": arithmetic("GreaterOrEqual"),
    "LOGICAL_AND": arithmetic("And"),
    "LOGICAL_OR": arithmetic("Or"),
    "NOT_EQUAL": _not_equal,
    "SQUARED_DIFFERENCE": _squared_difference,
    "FLOOR_DIV": _floor_div,
    "FLOOR_MOD": _floor_mod,
    "SELECT": _select,
    "SELECT_V2": _select,
    "ADD_N": _add_n,
}
