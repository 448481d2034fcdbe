"""Reshapes, slices, joins and other operators of an exported program that move data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetsched.frontends.torch_builder import Builder, View
from hetsched.graph import AttrValue

Lower = Callable[[Builder], None]
_END = (1 << 63) - 1


def _source(b: Builder) -> tuple[str, int]:
    """The tensor that is moved, and how many axes it has."""
    x = b.tensor_of("self" if b.has("self") else "input")
    return x, len(b.shape(x))


def _reshape(b: Builder) -> None:
    """Every operator whose result is the same elements in another shape, which the file gives."""
    x, _ = _source(b)
    if b.shape(x) == b.result_shape():
        b.alias(x)
    else:
        b.alias(b.reshape(x, b.result_shape(), out=b.result_name()))


def _flatten(b: Builder) -> None:
    x, rank = _source(b)
    if rank > 2 and len(b.result_shape()) == 2 and b.int_of("start_dim", 0) % rank == 1:
        b.put("Flatten", (x,), {"axis": 1})
    else:
        _reshape(b)


def _unsqueeze(b: Builder) -> None:
    x, rank = _source(b)
    b.put("Unsqueeze", (x, b.ints("axes", [b.axis(b.int_of("dim"), rank + 1)])))


def _squeeze(b: Builder) -> None:
    x, rank = _source(b)
    axes = [b.axis(a, rank) for a in b.ints_of("dim", range(rank))] if rank else []
    axes = [a for a in axes if b.shape(x)[a] == 1]
    if axes:
        b.put("Squeeze", (x, b.ints("axes", axes)))
    else:
        b.alias(x)


def _permute(b: Builder) -> None:
    x, rank = _source(b)
    order = [b.axis(a, rank) for a in b.ints_of("dims")]
    if sorted(order) != list(range(rank)):
        raise b.bad(f"its order of axes is {order}")
    b.alias(b.transposed(x, order, out=b.result_name()))


def _transpose(b: Builder) -> None:
    x, rank = _source(b)
    first, second = (b.axis(b.int_of(n), rank) for n in (("dim0", "dim1") if b.has("dim0") else ("axis0", "axis1")))
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    b.alias(b.transposed(x, order, out=b.result_name()))


def _turned(b: Builder) -> None:
    x, rank = _source(b)
    order = list(range(rank))
    b.alias(b.transposed(x, order[:-2] + order[-2:][::-1], out=b.result_name()))


def _move(b: Builder) -> None:
    x, rank = _source(b)
    sources, targets = ([b.axis(a, rank) for a in b.ints_of(n)] for n in ("source", "destination"))
    if len(sources) != len(targets) or len(set(sources)) < len(sources) or len(set(targets)) < len(targets):
        raise b.bad(f"it moves the axes {sources} to {targets}")
    moved = dict(zip(targets, sources, strict=True))
    rest = iter(a for a in range(rank) if a not in sources)
    b.alias(b.transposed(x, [moved[k] if k in moved else next(rest) for k in range(rank)], out=b.result_name()))


def _expand(b: Builder) -> None:
    x, _ = _source(b)
    b.put("Expand", (x, b.ints("shape", b.result_shape())))


def _repeat(b: Builder) -> None:
    x, rank = _source(b)
    times = b.ints_of("repeats" if b.has("repeats") else "dims")
    if len(times) > rank:
        x = b.reshape(x, (*[1] * (len(times) - rank), *b.shape(x)), what="axes")
    times = [1] * (len(b.shape(x)) - len(times)) + times
    b.put("Tile", (x, b.ints("repeats", times)))


def _repeat_interleave(b: Builder) -> None:
    x, rank = _source(b)
    axis, times = b.axis(b.int_of("dim"), rank), b.int_of("repeats")
    shape = b.shape(x)
    wide = b.emit("Unsqueeze", (x, b.ints("axis", [axis + 1])), what="wide")
    target = (*shape[: axis + 1], times, *shape[axis + 1 :])
    b.alias(b.reshape(b.emit("Expand", (wide, b.ints("target", target))), b.result_shape(), out=b.result_name()))


def _cut(b: Builder, x: str, axis: int, start: int, stop: int, step: int = 1) -> tuple[str, ...]:
    """Inputs of a Slice."""
    return x, b.ints("starts", [start]), b.ints("ends", [stop]), b.ints("axes", [axis]), b.ints("steps", [step])


def _slice(b: Builder) -> None:
    x, rank = _source(b)
    axis = b.axis(b.int_of("dim", 0), rank)
    size, step = b.shape(x)[axis], b.int_of("step", 1)
    if b.has("length"):
        start = b.int_of("start")
        start, stop = (start + size if start < 0 else start), start + b.int_of("length") + (size if start < 0 else 0)
    else:
        start, stop, _ = slice(b.int_of("start", 0), b.int_of("end", _END)).indices(size)
    if step < 1 or not 0 <= start <= size:
        raise b.bad(f"it takes elements from {start} in steps of {step} out of {size}")
    stop = min(max(stop, start), size)
    if (start, stop, step) == (0, size, 1):
        b.alias(x)
    else:
        b.put("Slice", _cut(b, x, axis, start, stop, step))
    if step == 1:
        b.views[b.result_name()] = View(b.file_name("self"), axis, start, stop, selects=False)


def _select(b: Builder) -> None:
    x, rank = _source(b)
    axis, index = b.axis(b.int_of("dim"), rank), b.int_of("index")
    size = b.shape(x)[axis]
    if not -size <= index < size:
        raise b.bad(f"it takes element {index} of {size}")
    index %= size
    b.put("Gather", (x, b.number(index, b.dtype(b.ints("index", [index])))), {"axis": axis})
    b.views[b.result_name()] = View(b.file_name("self"), axis, index, index + 1, selects=True)


def _cat(b: Builder) -> None:
    parts = [t for t in b.tensors_of("tensors") if b.shape(t) != (0,)]
    if not parts:
        raise b.bad("it joins nothing")
    dtype = b.meta().dtype
    b.put("Concat", [b.cast(t, dtype) for t in parts], {"axis": b.axis(b.int_of("dim", 0), len(b.shape(parts[0])))})


def _stack(b: Builder) -> None:
    parts = b.tensors_of("tensors")
    axis = b.axis(b.int_of("dim", 0), len(b.shape(parts[0])) + 1)
    wide = [b.emit("Unsqueeze", (t, b.ints("axis", [axis])), what=f"part{k}") for k, t in enumerate(parts)]
    b.put("Concat", wide, {"axis": axis})


def _split(b: Builder) -> None:
    """``split``, ``split_with_sizes``, ``chunk``, ``tensor_split``: sizes are those of the results."""
    x, rank = _source(b)
    axis = b.axis(b.int_of("dim", 0), rank)
    sizes = [b.result_shape(k)[axis] for k in range(len(b.current.outputs))]
    if len(sizes) == 1:
        b.alias(x)
    else:
        b.put_many("Split", (x, b.ints("sizes", sizes)), {"axis": axis})


def _unbind(b: Builder) -> None:
    x, rank = _source(b)
    axis, count = b.axis(b.int_of("dim", 0), rank), len(b.current.outputs)
    if b.shape(x)[axis] != count:
        raise b.bad(f"it takes {b.shape(x)[axis]} elements apart and has {count} results")
    parts = [x] if count == 1 else b.emit_many("Split", (x, b.ints("sizes", [1] * count)), count, {"axis": axis})
    for k, part in enumerate(parts):
        b.put("Squeeze", (part, b.ints("axes", [axis])), k=k)


def _pad(mode: str) -> Lower:
    """Padding of the last axes, the last axis first."""

    def lower(b: Builder) -> None:
        x, rank = _source(b)
        if b.text_of("mode", mode) not in _MODES:
            raise b.unsupported(f"padding of the mode {b.text_of('mode', mode)[:20]!r} is not supported")
        pads = b.ints_of("pad" if b.has("pad") else "padding")
        if len(pads) % 2 or len(pads) > 2 * rank or any(abs(p) > 1 << 31 for p in pads):
            raise b.bad(f"its padding is {pads[:16]}")
        axes = list(range(rank - 1, rank - 1 - len(pads) // 2, -1))
        inputs = [x, b.ints("pads", pads[::2] + pads[1::2]), "", b.ints("axes", axes)]
        kind = _MODES[b.text_of("mode", mode)]
        if kind == "constant":
            inputs[2] = b.number(b.number_of("value", 0), b.dtype(x))
        b.put("Pad", inputs, {"mode": kind})

    return lower


def _flip(b: Builder) -> None:
    x, rank = _source(b)
    axes = [b.axis(a, rank) for a in b.ints_of("dims")]
    count = len(axes)
    bounds = (b.ints("starts", [-1] * count), b.ints("ends", [-_END] * count), b.ints("axes", axes), b.ints("steps", [-1] * count))
    b.put("Slice", (x, *bounds))


def _roll(b: Builder) -> None:
    x, rank = _source(b)
    shifts, axes = b.ints_of("shifts"), [b.axis(a, rank) for a in b.ints_of("dims", [])]
    flat = not axes
    if flat:
        x, axes = b.reshape(x, (-1,), what="flat"), [0]
    for shift, axis in zip(shifts, axes, strict=True):
        size = b.shape(x)[axis]
        cut = -shift % size if size else 0
        if cut:
            parts = [b.emit("Slice", _cut(b, x, axis, *ends)) for ends in ((cut, size), (0, cut))]
            x = b.emit("Concat", parts, {"axis": axis}, what="rolled")
    b.alias(b.reshape(x, b.result_shape(), out=b.result_name()) if flat else x)


def _pixel_shuffle(b: Builder) -> None:
    x, rank = _source(b)
    factor = b.int_of("upscale_factor" if b.has("upscale_factor") else "downscale_factor")
    if rank != 4 or factor < 1:
        raise b.unsupported(f"of {rank} axes by a factor of {factor} it is not supported")
    if b.has("upscale_factor"):
        b.put("DepthToSpace", (x,), {"blocksize": factor, "mode": "CRD"})
        return
    n, c, h, w = b.shape(x)
    parts = b.reshape(x, (n, c, h // factor, factor, w // factor, factor), what="blocks")
    b.alias(b.reshape(b.transposed(parts, (0, 1, 3, 5, 2, 4)), b.result_shape(), out=b.result_name()))


def _channel_shuffle(b: Builder) -> None:
    x, _ = _source(b)
    groups, shape = b.int_of("groups"), b.shape(x)
    parts = b.reshape(x, (shape[0], groups, shape[1] // groups, *shape[2:]), what="groups")
    order = (0, 2, 1, *range(3, len(shape) + 1))
    b.alias(b.reshape(b.transposed(parts, order), shape, out=b.result_name()))


def _upsample(mode: str) -> Lower:
    def lower(b: Builder) -> None:
        x, rank = _source(b)
        if rank < 3:
            raise b.bad(f"its input has {rank} dimensions")
        corners = b.flag("align_corners")
        attrs: dict[str, AttrValue] = {
            "mode": mode,
            "coordinate_transformation_mode": "asymmetric" if mode == "nearest" else "align_corners" if corners else "pytorch_half_pixel",
        }
        if mode == "nearest":
            attrs["nearest_mode"] = "floor"
        elif mode == "cubic":
            attrs["cubic_coeff_a"] = -0.75
        if "exact" in b.kind:
            attrs.update({"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"})
        b.put("Resize", (x, "", "", b.ints("sizes", b.result_shape())), attrs)

    return lower


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
#: Operators whose result shares memory with their input: writing into either changes both.
SHARING = (
    "view", "reshape", "_unsafe_view", "unflatten", "flatten", "unsqueeze", "squeeze", "permute", "transpose", "t", "numpy_T", "mT",
    "swapaxes", "movedim", "expand", "expand_as", "slice", "select", "narrow", "split", "split_with_sizes", "chunk", "unbind",
    "tensor_split", "view_as", "reshape_as", "detach", "alias", "contiguous", "to", "dropout",
)  # fmt: skip
_RESHAPES: Sequence[str] = ("view", "reshape", "_unsafe_view", "unflatten", "view_as", "reshape_as", "_reshape_alias", "ravel", "view_copy")
LOWERINGS: dict[str, Lower] = {
    **dict.fromkeys(_RESHAPES, _reshape),
    "flatten": _flatten, "unsqueeze": _unsqueeze, "squeeze": _squeeze, "permute": _permute, "transpose": _transpose,
    "swapaxes": _transpose, "t": _turned, "numpy_T": _turned, "mT": _turned, "movedim": _move, "expand": _expand, "expand_as": _expand,
    "broadcast_to": _expand, "repeat": _repeat, "tile": _repeat, "repeat_interleave": _repeat_interleave, "slice": _slice,
    "narrow": _slice, "select": _select, "cat": _cat, "concat": _cat, "concatenate": _cat, "stack": _stack, "split": _split,
    "split_with_sizes": _split, "chunk": _split, "tensor_split": _split, "unbind": _unbind, "permute_copy": _permute,
    "pad": _pad("constant"), "constant_pad_nd": _pad("constant"), "flip": _flip, "roll": _roll,
    **{f"reflection_pad{r}d": _pad("reflect") for r in (1, 2, 3)},
    **{f"replication_pad{r}d": _pad("replicate") for r in (1, 2, 3)},
    "pixel_shuffle": _pixel_shuffle, "pixel_unshuffle": _pixel_shuffle, "channel_shuffle": _channel_shuffle,
    **{f"{name}{r}d": _upsample("nearest") for name in ("upsample_nearest", "_upsample_nearest_exact") for r in (1, 2, 3)},
    "upsample_linear1d": _upsample("linear"), "upsample_bilinear2d": _upsample("linear"), "upsample_trilinear3d": _upsample("linear"),
    "upsample_bicubic2d": _upsample("cubic"),
}  # fmt: skip
