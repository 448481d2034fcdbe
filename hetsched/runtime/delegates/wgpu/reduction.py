"""Normalisations, softmax, reductions and pools."""

from __future__ import annotations

import math

from hetsched.runtime.delegates.wgpu.lowering import GpuLowering
from hetsched.runtime.delegates.wgpu.map_kernel import REAL, MapKernel, Operand, index_code
from hetsched.runtime.delegates.wgpu.program import Slot, invocations
from hetsched.runtime.lower.convolution import plane, window_of
from hetsched.runtime.lower.reduction import reduced_axes

#: Reduce operator -> what it starts with, what becomes of an element, how two are joined, and what becomes of the result.
_REDUCTIONS = {
    "ReduceSum": ("0.0", "v", "a + b", "v"),
    "ReduceMean": ("0.0", "v", "a + b", "v / n"),
    "ReduceMax": ("-3.4028234e38", "v", "max(a, b)", "v"),
    "ReduceMin": ("3.4028234e38", "v", "min(a, b)", "v"),
    "ReduceProd": ("1.0", "v", "a * b", "v"),
    "ReduceL1": ("0.0", "abs(v)", "a + b", "v"),
    "ReduceL2": ("0.0", "v * v", "a + b", "sqrt(v)"),
    "ReduceSumSquare": ("0.0", "v * v", "a + b", "v"),
}


def normalization(low: GpuLowering) -> None:
    """LayerNormalization over the trailing axes, RMSNorm over the last ones."""
    shape, op = low.shape(0), low.op
    axis = op.attr_int("axis", -1) % len(shape)
    n = math.prod(shape[axis:])
    centred = op.type == "LayerNormalization"
    offset = op.attr_float("offset", 0.0)
    scale = low.vector(1, n, (lambda: low.constant_reals(1) + offset) if offset else None)
    _normalize(low, math.prod(shape[:axis]), n, 0, centred, scale, low.vector(2, n))


def instance_normalization(low: GpuLowering) -> None:
    """InstanceNormalization."""
    shape = low.shape(0)
    rows, channels = shape[0] * shape[1], shape[1]
    _normalize(low, rows, math.prod(shape[2:]), channels, True, low.vector(1, channels), low.vector(2, channels))


def _normalize(low: GpuLowering, rows: int, n: int, channels: int, centred: bool, scale: Slot, bias: Slot) -> None:
    out = low.float_target()
    bindings = {"x": low.floats(0), "scale": scale, "bias": bias, "y": out}
    low.program.call("normalization", bindings, [rows, n, channels, int(centred), low.op.attr_float("epsilon", 1e-5)], rows)
    low.store(out)


def softmax(low: GpuLowering) -> None:
    """Softmax, LogSoftmax and FusedSoftmax: ``softmax(X * scale + mask)`` along one axis."""
    op, shape = low.op, low.shape(0)
    x = low.floats(0)
    if op.type == "FusedSoftmax":
        x = _masked(low, x)
    lines, n, inner = low.lines(op.attr_int("axis", -1) % len(shape))
    out = low.float_target()
    low.program.call("softmax", {"x": x, "y": out}, [lines, n, inner, int(op.type == "LogSoftmax")], lines)
    low.store(out)


def _masked(low: GpuLowering, x: Slot) -> Slot:
    """``X * scale + mask`` in float32, or X where there is neither."""
    scale, shape = low.op.attr_float("scale", 1.0), low.shape(0)
    if scale == 1.0 and not low.has(1):
        return x
    out = low.program.scratch("f32", x.elements)
    kernel = MapKernel(low.program, Operand(out), REAL)
    value = f"{kernel.operand(Operand(x))}(i) * {kernel.real(scale)}"
    if not low.has(1):
        kernel.emit(f"return {value};")
        return out
    mask = kernel.operand(low.source(1))
    lines, (at,) = index_code(kernel, shape, [(low.repeated(1, shape), 0)])
    kernel.emit(f"{lines}\nreturn {value} + {mask}({at});")
    return out


def reduction(low: GpuLowering) -> None:
    """A Reduce operator over neighbouring axes."""
    shape, axes = low.shape(0), reduced_axes(low)
    if not axes:
        low.move(low.source(0), low.target())
        return
    n, inner = math.prod(shape[axes[0] : axes[-1] + 1]), math.prod(shape[axes[-1] + 1 :])
    _reduce(low, low.op.type, math.prod(shape[: axes[0]]) * inner, n, inner)


def global_pool(low: GpuLowering) -> None:
    """GlobalAveragePool and GlobalMaxPool."""
    shape = low.shape(0)
    kind = "ReduceMean" if low.op.type == "GlobalAveragePool" else "ReduceMax"
    _reduce(low, kind, shape[0] * shape[1], math.prod(shape[2:]), 1)


def _reduce(low: GpuLowering, kind: str, lines: int, n: int, inner: int) -> None:
    neutral, first, joined, last = _REDUCTIONS[kind]
    text = f"""const NEUTRAL = f32({neutral});
fn first(v: f32) -> f32 {{ return {first}; }}
fn joined(a: f32, b: f32) -> f32 {{ return {joined}; }}
fn last(v: f32, n: f32) -> f32 {{ return {last}; }}
"""
    out = low.float_target()
    low.program.call("reduction", {"x": low.floats(0), "y": out}, [lines, n, inner], lines, text=text)
    low.store(out)


def pooling(low: GpuLowering) -> None:
    """MaxPool and AveragePool, 1-D and 2-D."""
    op, shape, result = low.op, low.shape(0), low.output().shape
    window = window_of(op, op.attr_ints("kernel_shape", ()), shape[2:], result[2:])
    h, w = plane(shape)[2:]
    out = low.float_target()
    params = [
        out.elements, h, w, *plane(result)[2:], *window.kernel, *window.strides, *window.pads, *window.dilations, int(op.type == "MaxPool"),
        op.attr_int("count_include_pad", 0),
    ]  # fmt: skip
    low.program.call("pool", {"x": low.floats(0), "y": out}, params, invocations(out.elements))
    low.store(out)


def local_response(low: GpuLowering) -> None:
    """LRN: each element by a power of the sum of squares of a few channels around it."""
    op, shape = low.op, low.shape(0)
    size = op.attr_int("size", 1)
    kernel = MapKernel(low.program, low.target(), REAL)
    x, inner, channels = kernel.operand(low.source(0)), kernel.unsigned(math.prod(shape[2:])), kernel.signed(shape[1])
    factor, power = kernel.real(op.attr_float("alpha", 1e-4) / size), kernel.real(op.attr_float("beta", 0.75))
    bias, before, after = kernel.real(op.attr_float("bias", 1.0)), kernel.signed((size - 1) // 2), kernel.signed(size // 2)
    kernel.emit(f"""let channel = i32(i / {inner}) % {channels};
var sum = 0.0;
for (var c = max(channel - {before}, 0); c <= min(channel + {after}, {channels} - 1); c++) {{
    let near = {x}(u32(i32(i) + (c - channel) * i32({inner})));
    sum += near * near;
}}
return {x}(i) / pow({bias} + {factor} * sum, {power});""")


def extremum_index(low: GpuLowering) -> None:
    """ArgMax and ArgMin."""
    lines, n, inner = low.lines(low.op.attr_int("axis", 0) % len(low.shape(0)))
    params = [lines, n, inner, int(low.op.type == "ArgMax"), low.op.attr_int("select_last_index", 0)]
    low.program.call("arg_extremum", {"x": low.floats(0), "y": low.target().slot}, params, invocations(lines))
