"""Operators that move elements: views, transpositions, slices, concatenations, padding, gathering."""

from __future__ import annotations

import math

from hetsched.graph import Op
from hetsched.runtime.delegates.wgpu.lowering import GpuLowering
from hetsched.runtime.delegates.wgpu.map_kernel import INTEGER, REAL, STORED, MapKernel
from hetsched.runtime.lower.copying import contiguous
from hetsched.runtime.lower.movement import pad_begins, slice_bounds


def view(low: GpuLowering) -> None:
    """The same elements in another shape: no kernel where both stay in the segment and are stored alike."""
    name, program = low.op.outputs[0], low.program
    source = low.source(0)
    if not program.leaves(name) and source.slot.pool != "weight" and low.is_same_storage():
        program.slots[name] = source.slot
        return
    low.move(source, low.target())


def transpose(low: GpuLowering) -> None:
    """Transpose."""
    shape = low.shape(0)
    perm = low.op.attr_ints("perm", tuple(reversed(range(len(shape)))))
    strides = contiguous(shape)
    low.copy(low.source(0), low.target(), low.output().shape, [strides[p] for p in perm])


def cut(low: GpuLowering) -> None:
    """Slice with constant bounds; negative steps too."""
    bounds, strides = slice_bounds(low), contiguous(low.shape(0))
    offset = sum(start * s for (start, _), s in zip(bounds, strides, strict=True))
    low.copy(low.source(0), low.target(), low.output().shape, [step * s for (_, step), s in zip(bounds, strides, strict=True)], offset)


def split(low: GpuLowering) -> None:
    """Split: one kernel an output."""
    shape = low.shape(0)
    axis = low.op.attr_int("axis", 0) % len(shape)
    strides, at = contiguous(shape), 0
    for i, name in enumerate(low.op.outputs):
        if name:
            part = low.graph.tensors[name].shape
            low.copy(low.source(0), low.target(i), part, strides, at * strides[axis])
            at += part[axis]


def expand(low: GpuLowering) -> None:
    """Expand."""
    out = low.output().shape
    low.copy(low.source(0), low.target(), out, low.repeated(0, out))


def tile(low: GpuLowering) -> None:
    """Tile: every dim becomes (repeats, n), with a stride of zero along the repeats."""
    shape, box, strides = low.shape(0), [], []
    for n, m, s in zip(shape, low.output().shape, contiguous(shape), strict=True):
        box += [m // n if n else 0, n]
        strides += [0, s]
    low.copy(low.source(0), low.target(), tuple(box), strides)


def depth_to_space(low: GpuLowering) -> None:
    """DepthToSpace, both modes: a transposition of a 6-D view."""
    n, c, h, w = low.shape(0)
    b = low.op.attr_int("blocksize", 1)
    rows_first = low.op.attr_str("mode", "DCR") == "DCR"
    shape = (n, b, b, c // (b * b), h, w) if rows_first else (n, c // (b * b), b, b, h, w)
    _permuted(low, shape, (0, 3, 4, 1, 5, 2) if rows_first else (0, 1, 4, 2, 5, 3))


def space_to_depth(low: GpuLowering) -> None:
    """SpaceToDepth: a transposition of a 6-D view."""
    n, c, h, w = low.shape(0)
    b = low.op.attr_int("blocksize", 1)
    _permuted(low, (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4))


def _permuted(low: GpuLowering, shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    strides = contiguous(shape)
    low.copy(low.source(0), low.target(), tuple(shape[p] for p in perm), [strides[p] for p in perm])


def concatenate(low: GpuLowering) -> None:
    """Concat: one kernel that looks up which input an element comes from."""
    out = low.output().shape
    axis = low.op.attr_int("axis", 0) % len(out)
    inner = math.prod(out[axis + 1 :])
    kernel = MapKernel(low.program, low.target(), _values(low, range(len(low.op.inputs))))
    row = kernel.unsigned(out[axis] * inner)
    lines = [f"let outer = i / {row};", f"var at = i % {row};"]
    for slot in range(len(low.op.inputs)):
        size = low.shape(slot)[axis] * inner
        if size:
            read, width = kernel.operand(low.source(slot)), kernel.unsigned(size)
            lines.append(f"if (at < {width}) {{ return {read}(outer * {width} + at); }}\nat -= {width};")
    kernel.emit("\n".join([*lines, f"return {kernel.value_type}();"]))


def pad(low: GpuLowering) -> None:
    """Pad: constant, reflect, edge and wrap."""
    op, shape, out = low.op, low.shape(0), low.output().shape
    begins = pad_begins(low, op, len(shape))
    values = _values(low, range(1))
    kernel = MapKernel(low.program, low.target(), values)
    read, mode = kernel.operand(low.source(0)), op.attr_str("mode", "constant")
    lines = ["var rest = i;", "var index = 0;", "var inside = true;"]
    for d, stride in reversed(list(enumerate(contiguous(shape)))):
        size, n = kernel.unsigned(out[d]), kernel.signed(shape[d])
        lines.append(f"var c{d} = i32(rest % {size}) - {kernel.signed(begins[d])}; rest = rest / {size};")
        lines.append(_MODES[mode].format(c=f"c{d}", n=n))
        lines.append(f"index += c{d} * {kernel.signed(stride)};")
    if mode != "constant":
        kernel.emit("\n".join([*lines, f"return {read}(u32(index));"]))
        return
    fill = _fill(low, op, kernel, values)
    kernel.emit("\n".join([*lines, f"if (!inside) {{ return {fill}; }}", f"return {read}(u32(index));"]))


#: What a coordinate outside ``[0, n)`` becomes.
_MODES = {
    "constant": "inside = inside && {c} >= 0 && {c} < {n};",
    "edge": "{c} = clamp({c}, 0, {n} - 1);",
    "wrap": "{c} = ({c} % {n} + {n}) % {n};",
    "reflect": "{{ let period = max(2 * ({n} - 1), 1); let m = ({c} % period + period) % period; {c} = min(m, period - m); }}",
}


def _fill(low: GpuLowering, op: Op, kernel: MapKernel, values: str) -> str:
    """The value of a constant padding."""
    if values == REAL or kernel.value_type in ("f32", "f16"):
        number = float(low.constant_reals(2).reshape(-1)[0]) if low.has(2) else op.attr_float("value", 0.0)
        return f"{kernel.value_type}({kernel.real(number)})"
    value = int(low.constant(2).reshape(-1)[0]) if low.has(2) else 0
    if kernel.value_type == "vec2<i32>":
        return f"vec2<i32>({kernel.signed(value)}, {kernel.signed(value)} >> 31u)"
    return f"{kernel.value_type}({kernel.signed(value)})"


def gather(low: GpuLowering) -> None:
    """Gather along one axis; negative indices count from the end, and those outside are brought to the nearest end."""
    shape = low.shape(0)
    axis = low.op.attr_int("axis", 0) % len(shape)
    kernel = MapKernel(low.program, low.target(), _values(low, range(1)))
    read, indices = kernel.operand(low.source(0)), kernel.operand(low.source(1), INTEGER)
    inner, count = kernel.unsigned(math.prod(shape[axis + 1 :])), kernel.unsigned(low.tensor(1).elements)
    kernel.emit(f"""let at = {_index(kernel, indices, f"i / {inner} % {count}", shape[axis])}
return {read}((i / ({inner} * {count}) * {kernel.unsigned(shape[axis])} + at) * {inner} + i % {inner});""")


def gather_elements(low: GpuLowering) -> None:
    """GatherElements."""
    shape, out = low.shape(0), low.output().shape
    axis = low.op.attr_int("axis", 0) % len(shape)
    kernel = MapKernel(low.program, low.target(), _values(low, range(1)))
    read, indices = kernel.operand(low.source(0)), kernel.operand(low.source(1), INTEGER)
    lines = [f"let at = {_index(kernel, indices, 'i', shape[axis])}", "var rest = i;", "var index = 0u;"]
    for d, stride in reversed(list(enumerate(contiguous(shape)))):
        size = kernel.unsigned(out[d])
        coordinate = "at" if d == axis else f"(rest % {size})"
        lines.append(f"index += {coordinate} * {kernel.unsigned(stride)}; rest = rest / {size};")
    kernel.emit("\n".join([*lines, f"return {read}(index);"]))


def gather_tuples(low: GpuLowering) -> None:
    """GatherND without batches: the last axis of the indices holds a position along the first axes."""
    shape, count = low.shape(0), low.shape(1)[-1]
    strides = contiguous(shape)
    kernel = MapKernel(low.program, low.target(), _values(low, range(1)))
    read, indices = kernel.operand(low.source(0)), kernel.operand(low.source(1), INTEGER)
    inner = kernel.unsigned(math.prod(shape[count:]))
    lines = [f"let tuple = i / {inner} * {kernel.unsigned(count)};", f"var index = i % {inner};"]
    for axis in range(count):
        at = _index(kernel, indices, f"tuple + {axis}u", shape[axis])
        lines.append(f"let at{axis} = {at}\nindex += at{axis} * {kernel.unsigned(strides[axis])};")
    kernel.emit("\n".join([*lines, f"return {read}(index);"]))


def _index(kernel: MapKernel, indices: str, at: str, n: int) -> str:
    """An expression (u32, ends the statement) for an index along an axis of ``n``."""
    size = kernel.signed(n)
    raw = f"{indices}({at})"
    return f"u32(clamp(select({raw}, {raw} + {size}, {raw} < 0), 0, {size} - 1));"


def _values(low: GpuLowering, slots: range) -> str:
    """What elements are while they move: as stored where inputs and output are stored alike, else reals."""
    return STORED if all(low.stored_alike(slot) for slot in slots) else REAL
