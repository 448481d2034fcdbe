"""Vectors in LLVM IR: the few operations that microkernels are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.ir as ir

from hetsched_kernels.target import target

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32, F16 = ir.FloatType(), ir.HalfType()


class _BFloat(ir.Type):  # type: ignore[misc, unused-ignore]
    """LLVM's ``bfloat``, which llvmlite does not name; values are only ever bitcast to it."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


BF16 = _BFloat()


def vector(element: Any, lanes: int) -> Any:
    """The type <lanes x element>."""
    return ir.VectorType(element, lanes)


def index(value: int) -> Any:
    """An int64 constant."""
    return ir.Constant(I64, value)


def splat(builder: Any, scalar: Any, lanes: int) -> Any:
    """The scalar in every lane."""
    kind = ir.VectorType(scalar.type, lanes)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def constant(kind: Any, value: float) -> Any:
    """A constant in every lane of a vector type."""
    return ir.Constant(kind, [value] * kind.count)


def lanes(order: Sequence[int]) -> Any:
    """The mask of a shuffle."""
    return ir.Constant(vector(I32, len(order)), list(order))


def load(builder: Any, pointer: Any, kind: Any, align: int) -> Any:
    """Load a value of type ``kind``; unaligned unless ``align`` says more (wrong alignment faults)."""
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=align)


def store(builder: Any, value: Any, pointer: Any, align: int) -> None:
    """Store a value."""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=align)


def call(builder: Any, name: str, result: Any, args: Sequence[Any]) -> Any:
    """Call an LLVM intrinsic by its full name."""
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [a.type for a in args]), name)
    return builder.call(function, args)


def prefetch(builder: Any, pointer: Any, level: int = 1) -> None:
    """Ask for a cache line that will be read soon, into cache ``level``; an address that is nobody's does no harm."""
    name = "llvm.prefetch.p0"
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [pointer, ir.Constant(I32, 0), ir.Constant(I32, 4 - level), ir.Constant(I32, 1)])


def masked_store(builder: Any, name: str, value: Any, pointer: Any, mask: Any, mask_type: Any) -> None:
    """Store the lanes whose mask bit is set."""
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(ir.VoidType(), [value.type, pointer.type, I32, mask_type])
        function = ir.Function(builder.module, kind, name)
    builder.call(function, [value, pointer, ir.Constant(I32, 4), mask])


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c, fused where the target fuses."""
    return call(builder, f"llvm.fmuladd.v{a.type.count}f32", a.type, [a, b, c])


def half_to_float(builder: Any, halves: Any) -> Any:
    """Float16, given as <lanes x i16> bits, as float32: an instruction, or integer arithmetic where there is none."""
    lanes = halves.type.count
    floats, words = vector(F32, lanes), vector(I32, lanes)
    if target().half:
        return builder.fpext(builder.bitcast(halves, vector(F16, lanes)), floats)
    bits = builder.zext(halves, words)
    magnitude = builder.shl(builder.and_(bits, constant(words, 0x7FFF)), constant(words, 13))
    value = builder.fmul(builder.bitcast(magnitude, floats), constant(floats, 2.0**112))
    special = builder.bitcast(builder.or_(magnitude, constant(words, 0x7F800000)), floats)
    value = builder.select(builder.icmp_unsigned(">=", magnitude, constant(words, 0x7C00 << 13)), special, value)
    sign = builder.shl(builder.and_(bits, constant(words, 0x8000)), constant(words, 16))
    return builder.bitcast(builder.or_(builder.bitcast(value, words), sign), floats)


def dot4(builder: Any, acc: Any, unsigned: Any, signed: Any, small: bool = False) -> Any:
    """acc[i] + Σ of four products u8·s8 per 32-bit lane, exact (no saturation) on every target.

    Args:
        builder: IR builder.
        acc: <lanes x i32>.
        unsigned: <lanes x i32>, each lane four u8.
        signed: <lanes x i32>, each lane four s8.
        small: the unsigned bytes are all below 128.
    """
    lanes, t = acc.type.count, target()
    if (t.vnni and lanes == 16) or (t.avx_vnni and lanes == 8):
        operands = [unsigned, signed]
        if t.byte_operands:
            operands = [builder.bitcast(v, vector(I8, 4 * lanes)) for v in operands]
        return call(builder, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", acc.type, [acc, *operands])
    if t.x86:
        return _dot4_pairs(builder, acc, unsigned, signed)
    if t.dotprod or t.i8mm:
        return _dot4_neon(builder, acc, unsigned, signed, small)
    return _dot4_words(builder, acc, unsigned, signed)


def _dot4_neon(builder: Any, acc: Any, unsigned: Any, signed: Any, small: bool) -> Any:
    """``usdot``, or ``sdot`` of the unsigned bytes minus 128 and twice that of 64."""
    u, s = (builder.bitcast(v, vector(I8, 16)) for v in (unsigned, signed))
    if target().i8mm and not small:
        return call(builder, "llvm.aarch64.neon.usdot.v4i32.v16i8", acc.type, [acc, u, s])
    dot = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    if small:
        return call(builder, dot, acc.type, [acc, u, s])
    acc = call(builder, dot, acc.type, [acc, builder.xor(u, constant(u.type, -128)), s])
    for _ in range(2):
        acc = call(builder, dot, acc.type, [acc, constant(u.type, 64), s])
    return acc


_PAIR_SUMS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}


def _dot4_pairs(builder: Any, acc: Any, unsigned: Any, signed: Any) -> Any:
    """Even and odd bytes as 16-bit words, each pair multiplied and added by ``pmaddwd``."""
    lanes = acc.type.count
    words = vector(I16, 2 * lanes)
    eight = constant(words, 8)
    u, s = builder.bitcast(unsigned, words), builder.bitcast(signed, words)
    pairs = [
        (builder.and_(u, constant(words, 255)), builder.ashr(builder.shl(s, eight), eight)),
        (builder.lshr(u, eight), builder.ashr(s, eight)),
    ]
    for a, b in pairs:
        acc = builder.add(acc, call(builder, _PAIR_SUMS[lanes], acc.type, [a, b]))
    return acc


def _dot4_words(builder: Any, acc: Any, unsigned: Any, signed: Any) -> Any:
    """Plain 32-bit arithmetic: works everywhere."""
    kind = acc.type
    for byte in range(4):
        u = builder.and_(builder.lshr(unsigned, constant(kind, 8 * byte)), constant(kind, 255))
        s = builder.ashr(builder.shl(signed, constant(kind, 24 - 8 * byte)), constant(kind, 24))
        acc = builder.add(acc, builder.mul(u, s))
    return acc
