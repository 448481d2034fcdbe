"""Operators that move data: reshapes, slices, joins, pads, gathers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hetsched.frontends.tflite_builder import NCHW, Builder, Order, Value
from hetsched.graph import AttrValue

Lower = Callable[[Builder], None]


def _reshape(b: Builder) -> None:
    if b.has(1):
        wanted = b.integers(1)
    else:
        shape = b.op.options.get("shape", ())
        wanted = list(shape) if isinstance(shape, tuple) else []
    x = b.raw(b.value(0))
    elements = b.tensors[x].elements
    known = math.prod(d for d in wanted if d != -1)
    if wanted.count(-1) > 1 or any(d < -1 for d in wanted) or (-1 in wanted and (known == 0 or elements % known)):
        raise b.bad(f"it reshapes {list(b.shape(0))} to {wanted}")
    target = tuple(elements // known if d == -1 else d for d in wanted)
    if math.prod(target) != elements:
        raise b.bad(f"it reshapes {list(b.shape(0))} to {list(target)}")
    b.write_reshaped(x, target)


def with_axis(b: Builder, x: Value, axis: int) -> tuple[tuple[int, ...], Order]:
    """Shape and order of ``x`` with a new axis of length 1 that is the file's ``axis``: next to its neighbour in the file."""
    shape, order = list(b.tensors[x.name].shape), [k + (k >= axis) for k in x.order]
    if not order or axis == 0:
        place = 0
    elif axis + 1 in order:
        place = order.index(axis + 1)
    else:
        place = order.index(axis - 1) + 1
    return (*shape[:place], 1, *shape[place:]), (*order[:place], axis, *order[place:])


def without_axes(b: Builder, x: Value, axes: Sequence[int]) -> tuple[tuple[int, ...], Order]:
    """Shape and order of ``x`` without the file's ``axes``."""
    shape = b.tensors[x.name].shape
    kept = [(k, n) for k, n in zip(x.order, shape, strict=True) if k not in axes]
    return tuple(n for _, n in kept), tuple(k - sum(a < k for a in axes) for k, _ in kept)


def _expand_dims(b: Builder) -> None:
    axes, rank = b.integers(1), b.rank(0)
    if len(axes) != 1:
        raise b.bad(f"its axis is {axes}")
    x = b.value(0)
    shape, order = with_axis(b, x, b.axis(axes[0], rank + 1))
    b.write_reshaped(b.raw(x, x.order), shape, order=order)


def _squeeze(b: Builder) -> None:
    shape = b.shape(0)
    given = b.op.options.get("axes", ())
    axes = [b.axis(a, len(shape)) for a in given] if isinstance(given, tuple) else []
    axes = axes or [k for k, n in enumerate(shape) if n == 1]
    if any(shape[k] != 1 for k in axes):
        raise b.bad(f"it squeezes the axes {axes} of {list(shape)}")
    x = b.value(0)
    target, order = without_axes(b, x, axes)
    b.write_reshaped(b.raw(x, x.order), target, order=order)


def _transpose(b: Builder) -> None:
    """Only the order changes: whoever needs the data in another one moves them."""
    perm, x = b.integers(1), b.value(0)
    if sorted(perm) != list(range(len(x.order))):
        raise b.bad(f"its permutation is {perm}")
    inverse = {k: i for i, k in enumerate(perm)}
    b.define(b.result(), b.same_meaning(x.name, b.result()), tuple(inverse[k] for k in x.order))


def _concatenation(b: Builder) -> None:
    slots = range(len(b.op.inputs))
    lead = b.leading()
    if not lead.order or any(b.rank(s) != len(lead.order) for s in slots):
        raise b.bad("its inputs have different numbers of dimensions")
    read, raw = b.carrier(slots)
    raw = raw and not b.activation
    read = read if raw else b.real
    axis = lead.axis(b.axis(b.option("axis"), len(lead.order)))
    b.write("Concat", [read(b.value(s), lead.order) for s in slots], {"axis": axis}, order=lead.order, activation=b.activation, raw=raw)


def _pack(b: Builder) -> None:
    slots = range(len(b.op.inputs))
    if any(b.shape(s) != b.shape(0) for s in slots):
        raise b.bad("its inputs have different shapes")
    axis = b.axis(b.option("axis"), b.rank(0) + 1)
    read, raw = b.carrier(slots)
    lead = b.leading()
    parts, order = [], lead.order
    for s in slots:
        value = Value(read(b.value(s), lead.order), lead.order)
        shape, order = with_axis(b, value, axis)
        parts.append(b.reshaped(value.name, shape, f"part{s}"))
    b.write("Concat", parts, {"axis": order.index(axis)}, order=order, raw=raw)


def _check_parts(b: Builder, size: int, sizes: Sequence[int]) -> None:
    if sum(sizes) != size or any(n < 0 for n in sizes):
        raise b.bad(f"it cuts an axis of {size} elements into {list(sizes[:16])}")
    if len(sizes) != len(b.op.outputs):
        raise b.bad(f"it has {len(b.op.outputs)} outputs for {len(sizes)} parts")


def _unpack(b: Builder) -> None:
    x = b.value(0)
    axis = b.axis(b.option("axis"), len(x.order))
    size = b.shape(0)[axis]
    if size != len(b.op.outputs):
        raise b.bad(f"it has {len(b.op.outputs)} outputs for {size} parts")
    names = [f"{b.node}/part{k}" for k in range(size)]
    for k, name in enumerate(b.split(x, x.axis(axis), [1] * size, names)):
        shape, order = without_axes(b, Value(name, x.order), [axis])
        b.write_reshaped(name, shape, order=order, k=k)


def _split(b: Builder) -> None:
    """SPLIT has the axis first and cuts equal parts; SPLIT_V has the sizes of the parts, then the axis."""
    variable = b.op.type == "SPLIT_V"
    slot = 0 if variable else 1
    x, axes = b.value(slot), b.integers(2 if variable else 0)
    if len(axes) != 1:
        raise b.bad(f"its axis is {axes}")
    axis = b.axis(axes[0], len(x.order))
    size, count = b.shape(slot)[axis], max(len(b.op.outputs), 1)
    sizes = b.integers(1) if variable else [size // count] * count
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = size - sum(n for n in sizes if n != -1)
    _check_parts(b, size, sizes)
    outputs = [b.result(k) for k in range(len(sizes))]
    for stored, name in zip(outputs, b.split(x, x.axis(axis), sizes, [b.new_name(s, x.order) for s in outputs]), strict=True):
        b.define(stored, b.same_meaning(name, stored), x.order)


def slice_inputs(b: Builder, x: Value, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> tuple[str, ...]:
    """The inputs of the Slice that cuts ``x`` along the file's axes (ends as ONNX has them); none where nothing is cut."""
    shape = [b.tensors[x.name].shape[k] for k in x.back]
    axes = [k for k, n in enumerate(shape) if (starts[k], ends[k], steps[k]) != (0, n, 1)]
    if not axes:
        return ()
    columns = {"starts": starts, "ends": ends}
    inputs = [b.ints(name, [row[k] for k in axes]) for name, row in columns.items()]
    return (*inputs, b.ints("axes", [x.axis(k) for k in axes]), b.ints("steps", [steps[k] for k in axes]))


def write_slice(b: Builder, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> None:
    """Make output 0 a part of input 0."""
    x = b.value(0)
    read, raw = b.carrier([0])
    inputs = slice_inputs(b, x, starts, ends, steps)
    b.write("Slice" if inputs else "Identity", (read(x, x.order), *inputs), order=x.order, raw=raw)


def _slice(b: Builder) -> None:
    starts, sizes, shape = b.integers(1), b.integers(2), b.shape(0)
    if len(starts) != len(shape) or len(sizes) != len(shape):
        raise b.bad(f"it cuts {list(shape)} from {starts} on")
    ends = [n if size == -1 else start + size for n, start, size in zip(shape, starts, sizes, strict=True)]
    if any(not 0 <= s <= e <= n for s, e, n in zip(starts, ends, shape, strict=True)):
        raise b.bad(f"it cuts {list(shape)} from {starts} to {ends}")
    write_slice(b, starts, ends, [1] * len(shape))


def _reverse(b: Builder) -> None:
    shape = b.shape(0)
    axes = [b.axis(a, len(shape)) for a in b.integers(1)]
    starts = [n - 1 if k in axes else 0 for k, n in enumerate(shape)]
    ends = [-(n + 1) if k in axes else n for k, n in enumerate(shape)]
    steps = [-1 if k in axes else 1 for k in range(len(shape))]
    write_slice(b, starts, ends, steps)


def _pad(b: Builder) -> None:
    rows, shape = b.number(1), b.shape(0)
    if rows.shape != (len(shape), 2) or rows.dtype.kind not in "iu":
        raise b.bad(f"its paddings have the shape {list(rows.shape)}")
    width = tuple((int(lo), int(hi)) for lo, hi in rows)
    if any(n < 0 for row in width for n in row):
        raise b.bad(f"its paddings are {rows.tolist()}")
    x = b.value(0)
    read, raw = b.carrier([0])
    amounts = [width[k][side] for side in (0, 1) for k in x.order]
    fill = ""
    if b.op.type == "PADV2" and b.has(2):
        fill, raw, read = b.real(b.value(2)), raw and not b.is_quantized(0), (b.real if b.is_quantized(0) else read)
    elif raw and b.is_quantized(0):
        fill = b.tensors[x.name].quantization.zero_point or ""  # type: ignore[union-attr]
    inputs = (read(x, x.order), b.ints("pads", amounts), *((fill,) if fill else ()))
    if raw and b.op.type == "PAD" and len(shape) == 4 and width[0] == width[3] == (0, 0):
        b.padded[b.result().index] = b.stored(0).index, width
    b.write("Pad", inputs, {"mode": "constant"}, order=x.order, raw=raw)


def _mirror_pad(b: Builder) -> None:
    """REFLECT is ONNX's own; SYMMETRIC repeats the border, which ONNX has not, so positions are gathered."""
    rows, shape, x = b.number(1), b.shape(0), b.value(0)
    if rows.shape != (len(shape), 2) or rows.dtype.kind not in "iu" or (rows < 0).any():
        raise b.bad(f"its paddings are {rows.tolist()}")
    symmetric = b.option("mode") == 1
    if any(max(row) > n - (not symmetric) for row, n in zip(rows.tolist(), shape, strict=True)) or max(shape, default=0) > 1 << 24:
        raise b.bad(f"it mirrors {rows.tolist()} elements of {list(shape)}")
    read, raw = b.carrier([0])
    name = read(x, x.order)
    if not symmetric:
        amounts = [int(rows[k][side]) for side in (0, 1) for k in x.order]
        b.write("Pad", (name, b.ints("pads", amounts)), {"mode": "reflect"}, order=x.order, raw=raw)
        return
    for k, (low, high) in enumerate(rows.tolist()):
        if low or high:
            index = np.pad(np.arange(shape[k]), (low, high), "symmetric").astype(np.int64)
            name = b.emit("Gather", (name, b.constant("mirror", index)), f"mirror{k}", {"axis": x.axis(k)})
    b.write("Identity", (name,), order=x.order, raw=raw)


def _tile(b: Builder) -> None:
    counts, x = b.integers(1), b.value(0)
    if len(counts) != len(x.order) or any(n < 0 for n in counts):
        raise b.bad(f"it repeats {list(b.shape(0))} {counts} times")
    read, raw = b.carrier([0])
    b.write("Tile", (read(x, x.order), b.ints("repeats", [counts[k] for k in x.order])), order=x.order, raw=raw)


def _broadcast_to(b: Builder) -> None:
    read, raw = b.carrier([0])
    b.write("Expand", (read(b.value(0), None), b.ints("shape", b.integers(1))), raw=raw)


def _blocks(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        read, raw = b.carrier([0])
        attrs: dict[str, AttrValue] = {"blocksize": b.option("block")}
        if attrs["blocksize"] == 0 or b.option("block") > 1 << 16:
            raise b.bad(f"its block is {b.option('block')}")
        b.write(kind, (read(b.value(0), NCHW),), attrs, order=NCHW, raw=raw)

    return lower


def _densify(b: Builder) -> None:
    """A sparse constant is a dense one here."""
    value = b.value(0)
    if not b.tensors[value.name].is_constant:
        raise b.unsupported(f"it makes {value.name!r} dense, which is no constant")
    b.define(b.result(), value.name, value.order)


LOWERINGS: dict[str, Lower] = {
    "DENSIFY": _densify,
    "RESHAPE": _reshape,
    "EXPAND_DIMS": _expand_dims,
    "SQUEEZE": _squeeze,
    "TRANSPOSE": _transpose,
    "CONCATENATION": _concatenation,
    "PACK": _pack,
    "UNPACK": _unpack,
    "SPLIT": _split,
    "SPLIT_V": _split,
    "SLICE": _slice,
    "REVERSE_V2": _reverse,
    "PAD": _pad,
    "PADV2": _pad,
    "MIRROR_PAD": _mirror_pad,
    "TILE": _tile,
    "BROADCAST_TO": _broadcast_to,
    "SPACE_TO_DEPTH": _blocks("SpaceToDepth"),
    "DEPTH_TO_SPACE": _blocks("DepthToSpace"),
}
