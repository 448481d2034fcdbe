"""Resize of the last two axes, by tables of what each row and column reads."""

from __future__ import annotations

from hetsched.runtime.delegates.wgpu.lowering import GpuLowering
from hetsched.runtime.delegates.wgpu.map_kernel import REAL, STORED, MapKernel, Operand
from hetsched.runtime.lower.lowering import Array
from hetsched.runtime.lower.resize import scales_of
from hetsched_kernels.resize import resize_axis


def resize(low: GpuLowering) -> None:
    """Nearest, linear and cubic; nearest moves stored elements where input and output are stored alike."""
    op, shape, out = low.op, low.shape(0), low.output().shape
    mode = op.attr_str("mode", "nearest")
    options = (op.attr_str("coordinate_transformation_mode", "half_pixel"), op.attr_str("nearest_mode", "round_prefer_floor"))
    cubic, exclude = op.attr_float("cubic_coeff_a", -0.75), bool(op.attr_int("exclude_outside", 0))
    taps = [
        resize_axis(n, m, s, mode, *options, cubic, exclude) for n, m, s in zip(shape[-2:], out[-2:], scales_of(low), strict=True)
    ]  # fmt: skip
    stored = mode == "nearest" and low.stored_alike()
    kernel = MapKernel(low.program, low.target(), STORED if stored else REAL)
    read = kernel.operand(low.source(0))
    tables = [_table(low, kernel, f"resize {axis}", t.index) for axis, t in zip("yx", taps, strict=True)]
    (h, w), (oh, ow) = ([kernel.unsigned(n) for n in dims[-2:]] for dims in (shape, out))
    start = f"let row = i / {ow} % {oh}; let column = i % {ow}; let plane = i / ({ow} * {oh}) * {h} * {w};"
    if stored:
        kernel.emit(f"{start}\nreturn {read}(plane + u32({tables[0]}(row)) * {w} + u32({tables[1]}(column)));")
        return
    weights = [_table(low, kernel, f"resize weights {axis}", t.weight) for axis, t in zip("yx", taps, strict=True)]
    count = kernel.unsigned(taps[0].index.size // out[-2])
    kernel.emit(f"""{start}
var sum = 0.0;
for (var a = 0u; a < {count}; a++) {{
    let line = plane + u32({tables[0]}(row * {count} + a)) * {w};
    for (var b = 0u; b < {count}; b++) {{
        let weight = {weights[0]}(row * {count} + a) * {weights[1]}(column * {count} + b);
        sum += weight * {read}(line + u32({tables[1]}(column * {count} + b)));
    }}
}}
return sum;""")


def _table(low: GpuLowering, kernel: MapKernel, name: str, values: Array) -> str:
    """The name of a function that reads a constant table of whole numbers or floats."""
    kind = "f32" if values.dtype.kind == "f" else "i32"
    return kernel.operand(Operand(low.program.weight(low.op.name, name, kind, lambda: values)), kind)
