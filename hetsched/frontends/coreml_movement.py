"""Operations of ML programs that move data, and those that make it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hetsched.frontends.coreml_builder import MilBuilder
from hetsched.graph import MAX_ELEMENTS, AttrValue, DType

Lower = Callable[[MilBuilder], None]


def _rank(b: MilBuilder, name: str = "x") -> tuple[str, int]:
    x = b.tensor_of(name)
    return x, len(b.shape(x))


def _reshape(b: MilBuilder) -> None:
    x, _ = _rank(b)
    b.alias(b.reshape(x, b.ints_of("shape"), out=b.result()[0]))


def _transpose(b: MilBuilder) -> None:
    x, rank = _rank(b)
    perm = [b.axis(p, rank) for p in b.ints_of("perm")]
    if sorted(perm) != list(range(rank)):
        raise b.bad(f"its order of axes is {perm}")
    b.alias(b.transposed(x, perm, out=b.result()[0]))


def _expand_dims(b: MilBuilder) -> None:
    x, rank = _rank(b)
    axes = b.ints_of("axes")
    b.put("Unsqueeze", (x, b.ints("axes", [b.axis(a, rank + len(axes)) for a in axes])))


def _squeeze(b: MilBuilder) -> None:
    x, rank = _rank(b)
    axes = [b.axis(a, rank) for a in b.ints_of("axes", [a for a, n in enumerate(b.shape(x)) if n == 1])]
    b.put("Squeeze", (x, b.ints("axes", axes)))


def _concat(b: MilBuilder) -> None:
    parts = b.tensors_of("values")
    if b.flag("interleave"):
        raise b.unsupported("interleaved joining is not supported")
    if not parts:
        raise b.bad("it joins nothing")
    b.put("Concat", parts, {"axis": b.axis(b.int_of("axis"), max(len(b.shape(parts[0])), 1))})


def _stack(b: MilBuilder) -> None:
    parts = b.tensors_of("values")
    if not parts:
        raise b.bad("it joins nothing")
    axis = b.axis(b.int_of("axis"), len(b.shape(parts[0])) + 1)
    wide = [b.emit("Unsqueeze", (p, b.ints("axis", [axis])), what=f"part{k}") for k, p in enumerate(parts)]
    b.put("Concat", wide, {"axis": axis})


def _split(b: MilBuilder) -> None:
    x, rank = _rank(b)
    axis, count = b.axis(b.int_of("axis"), rank), len(b.current.outputs)
    size = b.shape(x)[axis]
    sizes = b.ints_of("split_sizes") if b.has("split_sizes") else [size // count] * count
    if len(sizes) != count or sum(sizes) != size or count < 1:
        raise b.bad(f"it splits {size} elements into {sizes[:16]}")
    names = [b.result(k)[0] for k in range(count)]
    if count == 1:
        b.alias(x)
        return
    b.emit_many("Split", (x, b.ints("sizes", sizes)), count, {"axis": axis}, outs=names)
    b.values.update({n: n for n in names})


def _flags(b: MilBuilder, name: str, rank: int) -> list[int]:
    values = b.ints_of(name, [0] * rank)
    if len(values) != rank:
        raise b.bad(f"its argument {name!r} has {len(values)} values for {rank} axes")
    return values


def _bounds(b: MilBuilder, shape: Sequence[int]) -> tuple[list[slice], list[int]]:
    """The slice of each axis, and the axes that are dropped."""
    rank = len(shape)
    begin, end, step = b.ints_of("begin"), b.ints_of("end"), b.ints_of("stride", [1] * rank)
    free_begin, free_end, squeezed = (_flags(b, n, rank) for n in ("begin_mask", "end_mask", "squeeze_mask"))
    if not len(begin) == len(end) == len(step) == rank or 0 in step:
        raise b.bad(f"it slices {rank} axes from {begin[:8]} to {end[:8]}")
    cuts = []
    for k in range(rank):
        if squeezed[k]:
            at = begin[k] + shape[k] if begin[k] < 0 else begin[k]
            cuts.append(slice(at, at + 1, 1))
        else:
            cuts.append(slice(None if free_begin[k] else begin[k], None if free_end[k] else end[k], step[k]))
    return cuts, [k for k in range(rank) if squeezed[k]]


def _slice_by_index(b: MilBuilder) -> None:
    x, _ = _rank(b)
    cuts, dropped = _bounds(b, b.shape(x))
    rows = [(k, *c.indices(n)) for k, (c, n) in enumerate(zip(cuts, b.shape(x), strict=True))]
    rows = [r for r in rows if r[1:] != (0, b.shape(x)[r[0]], 1)]
    if rows:
        low = -(1 << 62)  # indices() says -1 for "before the first", which ONNX would count from the end
        ends = [e if s > 0 or e >= 0 else low for _, _, e, s in rows]
        named = (("starts", [r[1] for r in rows]), ("ends", ends), ("axes", [r[0] for r in rows]), ("steps", [r[3] for r in rows]))
        x = b.emit("Slice", (x, *(b.ints(n, v) for n, v in named)), out="" if dropped else b.result()[0])
    if dropped:
        b.put("Squeeze", (x, b.ints("dropped", dropped)))
    else:
        b.alias(x)


def _slice_by_size(b: MilBuilder) -> None:
    x, rank = _rank(b)
    begin, size = b.ints_of("begin"), b.ints_of("size")
    if not len(begin) == len(size) == rank:
        raise b.bad(f"it slices {rank} axes from {begin[:8]}")
    starts = [v + n if v < 0 else v for v, n in zip(begin, b.shape(x), strict=True)]
    ends = [n if s < 0 else a + s for a, s, n in zip(starts, size, b.shape(x), strict=True)]
    b.put("Slice", (x, b.ints("starts", starts), b.ints("ends", ends), b.ints("axes", range(rank))))


def _slice_update(b: MilBuilder) -> None:
    """``x`` with ``update`` in the place of a slice: one axis is cut, as caches need it."""
    x, update = b.tensor_of("x"), b.tensor_of("update")
    cuts, dropped = _bounds(b, b.shape(x))
    rows = [(k, *c.indices(n)) for k, (c, n) in enumerate(zip(cuts, b.shape(x), strict=True))]
    rows = [r for r in rows if r[1:] != (0, b.shape(x)[r[0]], 1)]
    if dropped or any(r[3] != 1 for r in rows) or len(rows) > 1:
        raise b.unsupported("writing along several axes or in steps is not supported")
    if not rows:
        b.alias(update)
        return
    axis, start, stop, _ = rows[0]
    parts = []
    for low, high in ((0, start), (stop, b.shape(x)[axis])):
        if high > low:
            parts.append(b.emit("Slice", (x, b.ints("starts", [low]), b.ints("ends", [high]), b.ints("axes", [axis])), what="kept"))
        if low == 0:
            parts.append(update)
    b.put("Concat", parts, {"axis": axis})


def _gather(b: MilBuilder) -> None:
    x, rank = _rank(b)
    if b.int_of("batch_dims", 0):
        raise b.unsupported("gathering with batch axes is not supported")
    b.put("Gather", (x, b.cast(b.tensor_of("indices"), DType.I32)), {"axis": b.axis(b.int_of("axis", 0), rank)})


def _gather_along(b: MilBuilder) -> None:
    x, rank = _rank(b)
    b.put("GatherElements", (x, b.cast(b.tensor_of("indices"), DType.I32)), {"axis": b.axis(b.int_of("axis", 0), rank)})


def _gather_nd(b: MilBuilder) -> None:
    b.put("GatherND", (b.tensor_of("x"), b.cast(b.tensor_of("indices"), DType.I64)), {"batch_dims": b.int_of("batch_dims", 0)})


_MODES = {"update": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _scatter(kind: str) -> Lower:
    def lower(b: MilBuilder) -> None:
        mode = b.text_of("mode", "add")
        if mode not in _MODES:
            raise b.unsupported(f"scattering with {mode[:20]!r} is not supported")
        x, rank = _rank(b, "data")
        attrs: dict[str, AttrValue] = {"reduction": _MODES[mode]}
        if kind == "ScatterElements":
            attrs["axis"] = b.axis(b.int_of("axis", 0), rank)
        b.put(kind, (x, b.cast(b.tensor_of("indices"), DType.I64), b.tensor_of("updates")), attrs)

    return lower


def _tile(b: MilBuilder) -> None:
    b.put("Tile", (b.tensor_of("x"), b.ints("reps", b.ints_of("reps"))))


def _pad(b: MilBuilder) -> None:
    """``pad`` holds begin and end of the last axes."""
    x, rank = _rank(b)
    pads, mode = b.ints_of("pad"), b.text_of("mode", "constant")
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    if mode not in names:
        raise b.unsupported(f"padding of the mode {mode[:20]!r} is not supported")
    if len(pads) % 2 or len(pads) > 2 * rank or any(not 0 <= p < 1 << 31 for p in pads):
        raise b.bad(f"its padding is {pads[:16]}")
    axes = b.ints("axes", range(rank - len(pads) // 2, rank))
    value = b.number(b.number_of("constant_val", 0), b.dtype(x)) if mode == "constant" else ""
    b.put("Pad", (x, b.ints("pads", pads[::2] + pads[1::2]), value, axes), {"mode": names[mode]})


def _reverse(b: MilBuilder) -> None:
    x, rank = _rank(b)
    axes = [b.axis(a, rank) for a in b.ints_of("axes", range(rank))]
    low = -(1 << 62)
    named = (("starts", [-1] * len(axes)), ("ends", [low] * len(axes)), ("axes", axes), ("steps", [-1] * len(axes)))
    b.put("Slice", (x, *(b.ints(n, v) for n, v in named)))


def _flatten(b: MilBuilder) -> None:
    x, rank = _rank(b)
    b.put("Flatten", (x,), {"axis": b.axis(b.int_of("axis", 1), rank + 1)})


def _blocks(kind: str, argument: str, mode: str = "") -> Lower:
    attrs: dict[str, AttrValue] = {"mode": mode} if mode else {}
    return lambda b: b.put(kind, (b.tensor_of("x"),), {"blocksize": b.int_of(argument), **attrs})


def _pixel_unshuffle(b: MilBuilder) -> None:
    x, _ = _rank(b)
    n, c, h, w = b.shape(x)
    f = b.int_of("downscale_factor")
    parts = b.transposed(b.reshape(x, (n, c, h // f, f, w // f, f), what="blocks"), (0, 1, 3, 5, 2, 4))
    b.alias(b.reshape(parts, (n, c * f * f, h // f, w // f), out=b.result()[0]))


def _crop(b: MilBuilder) -> None:
    x, rank = _rank(b)
    (top, bottom), (left, right) = b.ints_of("crop_height"), b.ints_of("crop_width")
    h, w = b.shape(x)[-2:]
    b.put("Slice", (x, b.ints("starts", [top, left]), b.ints("ends", [h - bottom, w - right]), b.ints("axes", [rank - 2, rank - 1])))


def _shape(b: MilBuilder) -> None:
    x, _ = _rank(b)
    b.alias(b.add_constant(b.result()[0], np.array(b.shape(x), b.result()[1].dtype.numpy)))


def _fill(b: MilBuilder) -> None:
    shape = b.ints_of("shape") if b.has("shape") else list(b.shape(b.tensor_of("ref_tensor")))
    if any(d < 0 for d in shape) or int(np.prod(shape, dtype=object)) > MAX_ELEMENTS:
        raise b.bad(f"it makes a tensor of shape {shape[:8]}")
    number = np.asarray(b.number_of("value", 0)).astype(b.result()[1].dtype.numpy)
    b.alias(b.add_constant(b.result()[0], np.broadcast_to(number, tuple(shape))))


def _range(b: MilBuilder) -> None:
    start, end, step = (b.number_of(n, d) for n, d in (("start", 0), ("end", None), ("step", 1)))
    if step == 0 or abs(end - start) > abs(step) * (1 << 24):
        raise b.bad(f"it counts from {start} to {end} by {step}")
    b.alias(b.add_constant(b.result()[0], np.arange(start, end, step).astype(b.result()[1].dtype.numpy)))


def _one_hot(b: MilBuilder) -> None:
    off, on = b.number_of("off_value", 0), b.number_of("on_value", 1)
    values = b.constant("values", np.array([off, on], b.result()[1].dtype.numpy))
    depth = b.number(b.int_of("one_hot_vector_size"), DType.I64)
    b.put("OneHot", (b.tensor_of("indices"), depth, values), {"axis": b.int_of("axis", -1)})


def _band(b: MilBuilder) -> None:
    """Keeps ``lower`` diagonals below the main one and ``upper`` above; -1 keeps all."""
    x, _ = _rank(b)
    for name, sign, upper in (("lower", -1, 1), ("upper", 1, 0)):
        kept = b.int_of(name, -1)
        if kept >= 0:
            x = b.emit("Trilu", (x, b.constant("diagonal", np.array(sign * kept, np.int64))), {"upper": upper}, what=name)
    b.alias(x)


LOWERINGS: dict[str, Lower] = {
    "reshape": _reshape, "transpose": _transpose, "expand_dims": _expand_dims, "squeeze": _squeeze, "concat": _concat, "stack": _stack,
    "split": _split, "slice_by_index": _slice_by_index, "slice_by_size": _slice_by_size, "slice_update": _slice_update,
    "gather": _gather, "gather_along_axis": _gather_along, "gather_nd": _gather_nd, "scatter_nd": _scatter("ScatterND"),
    "scatter_along_axis": _scatter("ScatterElements"), "tile": _tile, "pad": _pad, "reverse": _reverse, "flatten2d": _flatten,
    "pixel_shuffle": _blocks("DepthToSpace", "upscale_factor", "CRD"), "depth_to_space": _blocks("DepthToSpace", "block_size", "DCR"),
    "space_to_depth": _blocks("SpaceToDepth", "block_size"), "pixel_unshuffle": _pixel_unshuffle,
    "crop": _crop,
    "shape": _shape, "fill": _fill, "fill_like": _fill, "range_1d": _range, "one_hot": _one_hot, "band_part": _band,
}  # fmt: skip
