"""Operations of ML programs that scale images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetsched.frontends.coreml_builder import MilBuilder
from hetsched.graph import AttrValue

Lower = Callable[[MilBuilder], None]


def _scale(b: MilBuilder, sizes: Sequence[int], mode: str, coordinates: str) -> None:
    """Scale the last two axes to ``sizes``."""
    x = b.tensor_of("x")
    rank = len(b.shape(x))
    if rank < 3 or any(not 0 < s < 1 << 20 for s in sizes):
        raise b.bad(f"it scales {list(b.shape(x))} to {list(sizes)}")
    attrs: dict[str, AttrValue] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attrs["nearest_mode"] = "floor"
    b.put("Resize", (x, "", "", b.ints("sizes", (*b.shape(x)[:-2], *sizes))), attrs)


def _upsample(mode: str) -> Lower:
    def lower(b: MilBuilder) -> None:
        x = b.tensor_of("x")
        scales = [b.number_of(f"scale_factor_{n}", 1) for n in ("height", "width")]
        sizes = [int(n * s) for n, s in zip(b.shape(x)[-2:], scales, strict=True)]
        corners = b.flag("align_corners", True) and mode == "linear"
        half = b.flag("half_pixel_centers", not corners) and mode == "linear"
        _scale(b, sizes, mode, "align_corners" if corners else "half_pixel" if half else "asymmetric")

    return lower


_SAMPLING = {
    "DEFAULT": "asymmetric", "STRICT_ALIGN_CORNERS": "align_corners", "ALIGN_CORNERS": "align_corners", "UNALIGN_CORNERS": "half_pixel",
}  # fmt: skip


def _resize_to(mode: str) -> Lower:
    def lower(b: MilBuilder) -> None:
        sampling = b.text_of("sampling_mode", "DEFAULT")
        if sampling not in _SAMPLING:
            raise b.unsupported(f"the sampling mode {sampling[:20]!r} is not supported")
        sizes = [b.int_of(f"target_size_{n}", 1) for n in ("height", "width")]
        _scale(b, sizes, mode, _SAMPLING[sampling] if mode == "linear" else "asymmetric")

    return lower


def _resize(b: MilBuilder) -> None:
    """``resize`` of iOS 17: the last axes to ``shape``, of which 0 keeps a size."""
    x = b.tensor_of("x")
    rank = len(b.shape(x))
    wanted, sampling, mode = b.ints_of("shape"), b.text_of("sampling_mode", "DEFAULT"), b.text_of("interpolation_mode", "LINEAR")
    if len(wanted) != 2 or rank < 3 or sampling not in _SAMPLING or mode not in {"LINEAR", "NEAREST_NEIGHBOR"}:
        raise b.unsupported(f"scaling to {wanted[:8]} with {mode[:20]!r} and {sampling[:20]!r} is not supported")
    sizes = [w or n for w, n in zip(wanted, b.shape(x)[-2:], strict=True)]
    _scale(b, sizes, "linear" if mode == "LINEAR" else "nearest", _SAMPLING[sampling] if mode == "LINEAR" else "asymmetric")


LOWERINGS: dict[str, Lower] = {
    "upsample_nearest_neighbor": _upsample("nearest"),
    "upsample_bilinear": _upsample("linear"),
    "resize_bilinear": _resize_to("linear"),
    "resize_nearest_neighbor": _resize_to("nearest"),
    "resize": _resize,
}
