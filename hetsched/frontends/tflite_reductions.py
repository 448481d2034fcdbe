"""Reductions, positions of extremes, cumulative sums and resizing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hetsched.frontends.tflite_builder import NCHW, Builder
from hetsched.frontends.tflite_movement import without_axes
from hetsched.graph import AttrValue

Lower = Callable[[Builder], None]


def _reduce(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        x, rank = b.value(0), b.rank(0)
        axes = sorted({b.axis(a, rank) for a in b.integers(1)})
        keep = b.option("keep_dims")
        attrs: dict[str, AttrValue] = {"keepdims": int(bool(keep)), "noop_with_empty_axes": 1}
        order = x.order if keep else without_axes(b, x, axes)[1]
        b.write(kind, (b.real(x, x.order), b.ints("axes", [x.axis(a) for a in axes])), attrs, order=order)

    return lower


def _any(kind: str) -> Lower:
    """REDUCE_ANY and REDUCE_ALL: the extreme of 0 and 1."""

    def lower(b: Builder) -> None:
        x, rank = b.value(0), b.rank(0)
        axes = sorted({b.axis(a, rank) for a in b.integers(1)})
        attrs: dict[str, AttrValue] = {"keepdims": int(bool(b.option("keep_dims"))), "noop_with_empty_axes": 1}
        number = b.emit("Cast", (b.raw(x),), "number", {"to": 6})
        b.write("Cast", (b.emit(kind, (number, b.ints("axes", axes)), "extreme", attrs),), {"to": 9})

    return lower


def _arg(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        from hetsched.reference.element_types import NUMBER_OF

        x, axes = b.value(0), b.integers(1)
        if len(axes) != 1 or not x.order:
            raise b.bad(f"its axis is {axes}")
        axis = b.axis(axes[0], len(x.order))
        order = without_axes(b, x, [axis])[1]
        inputs, attrs = (b.real(x, x.order),), {"axis": x.axis(axis), "keepdims": 0}
        target = b.result().element_type()
        if target.value == "i64":
            b.write(kind, inputs, attrs, order=order)
        else:
            b.write("Cast", (b.emit(kind, inputs, "index", attrs),), {"to": NUMBER_OF[target]}, order=order)

    return lower


def _cumsum(b: Builder) -> None:
    x, axes = b.value(0), b.integers(1)
    if len(axes) != 1:
        raise b.bad(f"its axis is {axes}")
    where = b.constant("axis", np.array(x.axis(b.axis(axes[0], len(x.order))), np.int64))
    attrs = {"exclusive": int(bool(b.option("exclusive"))), "reverse": int(bool(b.option("reverse")))}
    b.write("CumSum", (b.real(x, x.order), where), attrs, order=x.order)


def _resize(b: Builder) -> None:
    """RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of (height, width)."""
    size, linear = b.integers(1), b.op.type == "RESIZE_BILINEAR"
    if b.rank(0) != 4 or len(size) != 2 or any(not 0 < n < 1 << 20 for n in size):
        raise b.bad(f"it resizes {list(b.shape(0))} to {size}")
    align, half = b.option("align_corners"), b.option("half_pixel")
    where = "align_corners" if align else "asymmetric"
    attrs: dict[str, AttrValue] = {"mode": "linear" if linear else "nearest"}
    if half and not align:
        where = "half_pixel" if linear else "tf_half_pixel_for_nn"
    attrs["coordinate_transformation_mode"] = where
    if not linear:
        attrs["nearest_mode"] = "round_prefer_ceil" if align else "floor"
    x = b.value(0)
    read, raw = b.carrier([0]) if not linear else (b.real, False)
    n, _, _, c = b.shape(0)
    b.write("Resize", (read(x, NCHW), "", "", b.ints("sizes", [n, c, *size])), attrs, order=NCHW, raw=raw)


LOWERINGS: dict[str, Lower] = {
    "MEAN": _reduce("ReduceMean"),
    "SUM": _reduce("ReduceSum"),
    "REDUCE_MAX": _reduce("ReduceMax"),
    "REDUCE_MIN": _reduce("ReduceMin"),
    "REDUCE_PROD": _reduce("ReduceProd"),
    "REDUCE_ANY": _any("ReduceMax"),
    "REDUCE_ALL": _any("ReduceMin"),
    "ARG_MAX": _arg("ArgMax"),
    "ARG_MIN": _arg("ArgMin"),
    "CUMSUM": _cumsum,
    "RESIZE_BILINEAR": _resize,
    "RESIZE_NEAREST_NEIGHBOR": _resize,
}
