"""Micro-measurements of this machine: the caller takes the time, the kernel says how much it did."""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.arrays import InF32, InI64
from hetsched_kernels.compilation import kernel
from hetsched_kernels.lowlevel import alloca_once, alloca_once_value, for_range, intrinsic
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES

_CHAINS = 12 if target().registers > 16 else 8
#: Runs that are read side by side, and bytes by which each is asked for ahead: memory brings several streams faster than one.
_STREAMS, _AHEAD = 16, 2048


@intrinsic
def _fma_loop(tc: Any, count: Any, seed: Any) -> Any:
    """``count`` rounds of independent multiply-adds in registers."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        kind = v.vector(v.F32, LANES)
        acc = [alloca_once(b, kind) for _ in range(_CHAINS)]
        for i, slot in enumerate(acc):
            b.store(v.splat(b, b.fadd(args[1], v.F32(float(i))), LANES), slot)
        factor = v.splat(b, args[1], LANES)
        with for_range(b, args[0], intp=v.I64):
            for slot in acc:
                b.store(v.multiply_add(b, b.load(slot), factor, factor), slot)
        total = b.load(acc[0])
        for slot in acc[1:]:
            total = b.fadd(total, b.load(slot))
        return b.extract_element(total, v.I32(0))

    return types.float32(types.int64, types.float32), codegen


@intrinsic
def _dot_loop(tc: Any, count: Any, seed: Any) -> Any:
    """``count`` rounds of independent four-byte dot products in registers."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        kind = v.vector(v.I32, LANES)
        seed = b.trunc(args[1], v.I32)
        acc = [alloca_once(b, kind) for _ in range(_CHAINS)]
        for i, slot in enumerate(acc):
            b.store(v.splat(b, b.add(seed, v.I32(i)), LANES), slot)
        operand = v.splat(b, seed, LANES)
        with for_range(b, args[0], intp=v.I64):
            for slot in acc:
                b.store(v.dot4(b, b.load(slot), operand, operand), slot)
        total = b.load(acc[0])
        for slot in acc[1:]:
            total = b.add(total, b.load(slot))
        return b.sext(b.extract_element(total, v.I32(0)), v.I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def _sum_loop(tc: Any, data: Any, lines: Any) -> Any:
    """Exclusive or of :data:`_STREAMS` runs of ``lines`` cache lines, read side by side and asked for ahead."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        kind, words = v.vector(v.I64, 8), v.index(8)
        pointer = context.make_array(signature.args[0])(context, b, args[0]).data
        slots = [alloca_once_value(b, v.constant(kind, 0)) for _ in range(_STREAMS)]
        with for_range(b, args[1], intp=v.I64) as loop:
            for i, slot in enumerate(slots):
                line = b.gep(pointer, [b.mul(b.add(b.mul(args[1], v.index(i)), loop.index), words)])
                v.prefetch(b, b.gep(line, [v.index(_AHEAD // 8)]))
                b.store(b.xor(b.load(slot), v.load(b, line, kind, 8)), slot)
        total = b.load(slots[0])
        for slot in slots[1:]:
            total = b.xor(total, b.load(slot))
        word = b.extract_element(total, v.I32(0))
        for lane in range(1, 8):
            word = b.xor(word, b.extract_element(total, v.I32(lane)))
        return word

    return types.int64(data, types.int64), codegen


@kernel
def _fma(rounds: int, seed: float) -> Any:
    return _fma_loop(rounds, seed)


@kernel
def _dot(rounds: int, seed: int) -> Any:
    return _dot_loop(rounds, seed)


@kernel
def _read(data: InI64, lines: int) -> Any:
    return _sum_loop(data, lines)


def peak_f32(rounds: int) -> int:
    """Run ``rounds`` of float32 multiply-adds in registers; returns how many floating-point operations that was."""
    _fma(rounds, 0.5)
    return rounds * _CHAINS * LANES * 2


def peak_i8(rounds: int) -> int:
    """Run ``rounds`` of int8 dot products in registers; returns how many integer operations (multiply and add) that was."""
    _dot(rounds, 1)
    return rounds * _CHAINS * LANES * 8


def read_bandwidth(data: InF32) -> int:
    """Read an array (any dtype, contiguous) once; returns the bytes read. Make it larger than the last-level cache."""
    words = data.reshape(-1).view("int64")
    lines = words.shape[0] // (8 * _STREAMS)
    _read(words, lines)
    return int(lines * _STREAMS * 64)
