"""Kernels written while compiling: each element of a result from elements of operands, by an expression.

An invocation computes one element, or the four that share a word where the result is bytes. Numbers that differ from model to
model (sizes, strides, scales) are parameters, so that ops of the same form share a compiled shader.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.runtime.delegates.wgpu.program import Program, Slot, invocations
from hetsched.runtime.delegates.wgpu.shaders import ELEMENT, RANGE, body

#: What values are between reading and writing: reals, 32-bit integers, or stored elements that are only moved.
REAL, INTEGER, STORED = "f32", "i32", "stored"


@dataclass(frozen=True, slots=True)
class Operand:
    """A slot, and what its bytes stand for where they are quantized reals: ``scale * (byte - zero)``."""

    slot: Slot
    scale: float = 0.0
    zero: int = 0

    @property
    def is_quantized(self) -> bool:
        """Whether its bytes stand for reals."""
        return self.scale != 0.0


def strides_of(shape: Sequence[int], out: Sequence[int]) -> list[int]:
    """Strides of an operand of ``shape`` along ``out``'s dims: 0 where it is repeated."""
    padded = (1,) * (len(out) - len(shape)) + tuple(shape)
    return [0 if n == 1 else math.prod(padded[i + 1 :]) for i, n in enumerate(padded)]


class MapKernel:
    """A kernel in the making. ``values`` says what kind of values its expressions are."""

    def __init__(self, program: Program, target: Operand, values: str) -> None:
        self._program = program
        self._target = target
        self._values = values
        self._params: list[int | float] = []
        self._slots: dict[str, Slot] = {}
        self._readers: dict[tuple[Slot, float, int, str], str] = {}
        self._functions: list[str] = []
        kind = target.slot.kind
        self._lanes = 4 if kind in RANGE else 1
        self._count = self.unsigned(target.slot.elements)

    @property
    def value_type(self) -> str:
        """WGSL's type of a value."""
        return ELEMENT[self._target.slot.kind] if self._values == STORED else self._values

    # -- parameters and operands -----------------------------------------------------------------------------------------

    def _parameter(self, value: int | float) -> str:
        self._params.append(value)
        at = len(self._params) - 1
        return f"p.v[{at // 4}][{at % 4}]"

    def unsigned(self, value: int) -> str:
        """An expression for a whole number that is not negative."""
        return self._parameter(value)

    def signed(self, value: int) -> str:
        """An expression for a whole number."""
        return f"bitcast<i32>({self._parameter(value)})"

    def real(self, value: float) -> str:
        """An expression for a float."""
        return f"bitcast<f32>({self._parameter(float(value))})"

    def operand(self, operand: Operand, values: str | None = None) -> str:
        """The name of a function ``(index: u32) -> value`` that reads an operand (``values``: other than the kernel's own kind)."""
        wanted = values or self._values
        key = (operand.slot, operand.scale, operand.zero, wanted)
        if key not in self._readers:
            self._readers[key] = self._reader(operand, wanted)
        return self._readers[key]

    def _reader(self, operand: Operand, wanted: str) -> str:
        name = f"x{len(self._slots)}"
        self._slots[name] = operand.slot
        result = ELEMENT[operand.slot.kind] if wanted == STORED else wanted
        self._functions.append(f"fn {name}_at(i: u32) -> {result} {{ {self._reading(name, operand, wanted)} }}")
        return f"{name}_at"

    def _reading(self, name: str, operand: Operand, wanted: str) -> str:
        kind = operand.slot.kind
        if kind in RANGE:
            word = f"{name}[i / 4u], i % 4u * 8u, 8u" if kind == "u8" else f"bitcast<i32>({name}[i / 4u]), i % 4u * 8u, 8u"
            if wanted == STORED:
                return f"return extractBits({name}[i / 4u], i % 4u * 8u, 8u);"
            if wanted == REAL and operand.is_quantized:
                return f"return (f32(extractBits({word})) - {self.real(operand.zero)}) * {self.real(operand.scale)};"
            return f"return {wanted}(extractBits({word}));"
        if wanted == STORED:
            return f"return {name}[i];"
        if kind == "i64" and wanted == INTEGER:
            return f"return {name}[i].x;"
        if kind == "i64":
            whole = f"f32({name}[i].y) * 4294967296.0 + f32(bitcast<u32>({name}[i].x))"
            return f"return select({whole}, f32({name}[i].x), {name}[i].y == {name}[i].x >> 31u);"
        return f"return {wanted}({name}[i]);"

    # -- writing ---------------------------------------------------------------------------------------------------------

    def _byte(self) -> str:
        """A ``u32`` with the byte of the value ``v``."""
        kind = self._target.slot.kind
        low, high = RANGE[kind]
        if self._values == STORED:
            return "v"
        if self._target.is_quantized:
            scale, zero = self.real(self._target.scale), self.real(self._target.zero)
            return f"bitcast<u32>(i32(clamp(round(v / {scale}) + {zero}, {low}.0, {high}.0))) & 255u"
        return "bitcast<u32>(i32(v)) & 255u"

    def _element(self) -> str:
        kind = self._target.slot.kind
        if self._values == STORED:
            return "v"
        return "vec2<i32>(i32(v), i32(v) >> 31u)" if kind == "i64" else f"{ELEMENT[kind]}(v)"

    def emit(self, code: str) -> None:
        """Add the dispatch. ``code`` is the body of ``fn value(i: u32)`` for element ``i`` of the result, which returns a value."""
        if self._lanes == 1:
            write = f"let v = value(item); y[item] = {self._element()};"
        else:
            write = f"""var word = 0u;
    for (var lane = 0u; lane < 4u && item * 4u + lane < {self._count}; lane++) {{
        let v = value(item * 4u + lane);
        word |= ({self._byte()}) << (lane * 8u);
    }}
    y[item] = word;"""
        items = -(-self._target.slot.elements // self._lanes)
        limit = self.unsigned(items)
        functions = "\n".join(self._functions)
        text = f"""struct Params {{ v: array<vec4<u32>, {-(-len(self._params) // 4)}> }}
{functions}
fn value(i: u32) -> {self.value_type} {{
{code}
}}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {{
    let item = g.x + g.y * n.x * 64u;
    if (item >= {limit}) {{ return; }}
    {write}
}}
"""
        if any(used in text for used in ("fn_", "op_", "mod_floor")):
            text = body("functions") + text
        self._program.call("", {**self._slots, "y": self._target.slot}, self._params, invocations(items), text=text)


def index_code(kernel: MapKernel, out: Sequence[int], operands: Sequence[tuple[Sequence[int], int]]) -> tuple[str, list[str]]:
    """Where operands with strides (and offsets) along ``out``'s dims have what element ``i`` reads.

    Returns:
        Statements, and an expression (``u32``) for each operand.
    """
    dims = _merged(out, [strides for strides, _ in operands])
    lines, named = ["let whole = i;"], []
    plain = len(dims) == 1
    if not plain:
        lines.append("var rest = i;")
        for d in range(len(dims) - 1, 0, -1):
            size = kernel.unsigned(dims[d][0])
            lines.append(f"let c{d} = i32(rest % {size}); rest = rest / {size};")
        lines.append("let c0 = i32(rest);")
    else:
        lines.append("let c0 = i32(i);")
    for o, (_, offset) in enumerate(operands):
        steps = [strides[o] for _, strides in dims]
        if plain and steps[0] == 1 and offset == 0:
            named.append("whole")
        elif not any(steps) and offset == 0:
            named.append("0u")
        else:
            terms = [f"c{d} * {kernel.signed(step)}" for d, step in enumerate(steps) if step]
            named.append(f"u32({' + '.join([kernel.signed(offset), *terms])})")
    return "\n".join(lines), named


def _merged(out: Sequence[int], strides: Sequence[Sequence[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Dims of ``out`` with each operand's stride, neighbours as one where every operand steps through them evenly."""
    dims: list[tuple[int, tuple[int, ...]]] = []
    for d, n in enumerate(out):
        steps = tuple(s[d] for s in strides)
        if n == 1:
            continue
        if dims and all(before == step * n for before, step in zip(dims[-1][1], steps, strict=True)):
            dims[-1] = (dims[-1][0] * n, steps)
        else:
            dims.append((n, steps))
    return dims or [(1, (0,) * len(strides))]
