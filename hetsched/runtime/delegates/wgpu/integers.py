"""Products of bytes with int8 weights: exact int32 sums by packed dot products, static scales on both sides."""

from __future__ import annotations

import math

import numpy as np

from hetsched.graph import DType
from hetsched.runtime.delegates.wgpu.convolution import bias_slot, geometry, window
from hetsched.runtime.delegates.wgpu.lowering import GpuLowering
from hetsched.runtime.delegates.wgpu.map_kernel import Operand
from hetsched.runtime.delegates.wgpu.program import ROW, Slot, invocations
from hetsched.runtime.lower.convolution import batch_norm_factor, plane
from hetsched.runtime.lower.lowering import Affine, Array, affine_of
from hetsched.runtime.lower.matrix import promoted

#: What turns four unsigned bytes into signed ones, 128 less each.
_FLIP = 0x80808080


def _is_unsigned(low: GpuLowering, slot: int) -> bool:
    return low.tensor(slot).dtype is DType.U8


def _flip(low: GpuLowering) -> int:
    return _FLIP if _is_unsigned(low, 0) else 0


def _zero(low: GpuLowering) -> int:
    """The activation's zero point, as a signed byte."""
    return affine_of(low.graph, low.tensor(0)).zero - (128 if _is_unsigned(low, 0) else 0)


def _weights(low: GpuLowering) -> tuple[Array, Affine]:
    """The weights as signed bytes, and what they stand for: scales, and zero points of the signed ones."""
    a = affine_of(low.graph, low.tensor(1))
    shift = 128 if _is_unsigned(low, 1) else 0
    return low.constant(1).astype(np.int32) - shift, Affine(a.scales, a.zeros - shift, a.outer, a.channels, a.inner)


def _centred(low: GpuLowering) -> Array:
    """The weights less their zero points: up to 9 bits and a sign."""
    values, a = _weights(low)
    grid: Array = values.reshape(a.outer, a.channels, a.inner) - a.zeros[:, None]
    return grid


def _words(rows: Array, words: int) -> Array:
    """Signed bytes ``[..., n]`` as words of four, filled up with zeros."""
    filled = np.zeros((*rows.shape[:-1], words * 4), np.int8)
    filled[..., : rows.shape[-1]] = rows
    return filled.view("<u4")


def _factor(low: GpuLowering, channels: int) -> Slot:
    """What an integer sum of each output channel stands for."""
    scale = affine_of(low.graph, low.tensor(0)).scale

    def make() -> Array:
        normalised = batch_norm_factor(low)[0] if low.op.attr_int("batch_norm", 0) else 1.0
        return np.broadcast_to(_weights(low)[1].scales * scale * normalised, (channels,))

    return low.program.weight(low.op.name, "factor", "f32", make)


def _finish(
    low: GpuLowering, shader: str, bindings: dict[str, Slot], params: list[int | float], out: Operand, around: tuple[int, int] | None = None
) -> None:  # fmt: skip
    """A kernel that writes four elements at once: its parameters, the activation's, and how the result is stored.

    One invocation for four elements; with ``around``, four planes at once, in workgroups that have the same weights.
    """
    activation, alpha, beta = low.activated()
    items = -(-out.slot.elements // 4) if around is None else int(params[0]) // 4
    stored: list[int | float] = [alpha, beta, out.scale or 1.0, float(out.zero), out.slot.elements]
    groups = invocations(items) if around is None else (-(-items // ROW), *around)
    low.program.call(shader, {**bindings, "y": out.slot}, [items, *params, *stored], groups, activation=activation)


def _in_words(low: GpuLowering, x: Slot, images: int, ins: int, groups: int, plane: int) -> Slot:
    """The activation as words of four neighbouring channels."""
    words = -(-ins // 4)
    if plane == 1 and ins % 4 == 0:
        return x
    out = low.program.scratch("u32", images * plane * groups * words)
    tail = 128 if _is_unsigned(low, 0) else 0
    low.program.call("pack_channels", {"x": x, "y": out}, [out.elements, plane, ins, groups, words, tail], invocations(out.elements))
    return out


def integer_convolution(low: GpuLowering) -> None:
    """Conv on bytes; weights have no zero point (:mod:`support` sees to it)."""
    groups = low.op.attr_int("group", 1)
    x, out, view = low.source(0).slot, low.target(), window(low)
    (n, _, h, w), (_, channels, oh, ow) = plane(low.shape(0)), plane(low.output().shape)
    ins, outs = low.tensor(1).shape[1], channels // groups
    factor, bias = _factor(low, channels), bias_slot(low, channels)
    if ins == 1 and groups > 1:
        weights = low.program.weight(low.op.name, "depthwise", "i32", lambda: _centred(low))
        params: list[int | float] = [oh * ow, channels, outs, h, w, ow, *view.kernel, *geometry(view), _flip(low), _zero(low)]
        _finish(low, "depthwise_i8", {"x": x, "w": weights, "factor": factor, "bias": bias}, params, out)
        return
    words = -(-ins // 4)

    def pack() -> Array:
        return _words(_weights(low)[0].reshape(channels, ins, *view.kernel).transpose(0, 2, 3, 1), words)

    def correction() -> Array:
        sums: Array = _weights(low)[0].reshape(channels, -1).sum(1, dtype=np.int64) * _zero(low)
        return sums

    zero_word = (_zero(low) & 0xFF) * 0x01010101
    bindings = {
        "x": _in_words(low, x, n, ins, groups, h * w), "w": low.program.weight(low.op.name, "words", "u32", pack), "factor": factor,
        "bias": bias, "correction": low.program.weight(low.op.name, "correction", "i32", correction),
    }  # fmt: skip
    params = [oh * ow, outs, groups, words, h, w, ow, *view.kernel, *geometry(view), _flip(low), zero_word]
    if oh * ow % 4:
        _finish(low, "convolution_i8", bindings, params, out)
    else:
        _finish(low, "convolution_i8_four", bindings, params, out, (groups * -(-outs // 4), n))


def integer_matmul(low: GpuLowering) -> None:
    """MatMul of bytes with a constant matrix."""
    a_shape, b_shape = promoted(low.shape(0), low.shape(1))
    k, n = b_shape[-2:]
    _integer_product(low, math.prod(a_shape[:-1]), k, n, low.vector(2, n), transposed=False, factor=1.0)


def integer_gemm(low: GpuLowering) -> None:
    """Gemm of bytes with a constant matrix."""
    (m, k), n = low.shape(0), low.output().shape[-1]
    beta = np.float32(low.op.attr_float("beta", 1.0))
    bias = low.vector(2, n, (lambda: np.broadcast_to(low.constant_reals(2).reshape(-1) * beta, (n,))) if low.has(2) else None)
    _integer_product(low, m, k, n, bias, bool(low.op.attr_int("transB", 0)), low.op.attr_float("alpha", 1.0))


def _integer_product(low: GpuLowering, rows: int, k: int, n: int, bias: Slot, transposed: bool, factor: float) -> None:
    words, zero, name = -(-k // 4), _zero(low), low.op.name

    def columns() -> tuple[Array, Array]:
        """The matrix ``[n, k]``, and each column's zero point."""
        matrix, a = _weights(low)
        return matrix.reshape(n, k) if transposed else matrix.reshape(k, n).T, np.broadcast_to(a.zeros, (n,))

    def correction() -> Array:
        matrix, zeros = columns()
        exact: Array = zero * (matrix.sum(1, dtype=np.int64) - k * zeros)
        return exact

    def scales() -> Array:
        a = affine_of(low.graph, low.tensor(0))
        return np.broadcast_to(_weights(low)[1].scales * np.float32(a.scale * factor), (n,))

    weight = low.program.weight
    bindings = {
        "x": _in_words(low, low.source(0).slot, rows, k, 1, 1), "w": weight(name, "words", "u32", lambda: _words(columns()[0], words)),
        "factor": weight(name, "factor", "f32", scales), "bias": bias, "zero": weight(name, "zero points", "i32", lambda: columns()[1]),
        "correction": weight(name, "correction", "i32", correction),
    }  # fmt: skip
    _finish(low, "matmul_i8", bindings, [n, words, _flip(low)], low.target())
