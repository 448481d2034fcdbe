"""Weights of 2 to 8 bits quantized in groups along k: how they are packed, once, for :mod:`hetsched_kernels.gemm_groups`.

A weight [n, k] is (code - zero) · scale, or code · scale + minimum, with one scale (and minimum) a row and group. Scales are
kept as they come: float16, float32, or small integers times a float16 of a larger group (the K types of GGUF).

A panel is LANES rows of the weight side by side: its scales, minima and larger scales, then its codes as
:mod:`hetsched_kernels.tile_bits` reads them, all in one run of bytes, so that a product reads memory in one direction.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from hetsched_kernels.arrays import Array
from hetsched_kernels.groups import CHUNK, OF_HALVES, WITH_MINS, ZEROS, Groups, padded_depth
from hetsched_kernels.tile import LANES

#: How scales are stored (``shape[KIND]``).
HALF, FLOAT, SCALED = 0, 1, 2
#: Positions in :attr:`PackedGroups.shape`.
N, K, BITS, GROUP, KIND, MINS, LARGER, STRIDE, MINS_AT, LARGER_AT, LARGER_MINS_AT, CODES_AT = range(12)
_LINE: Final = 64


class PackedGroups(NamedTuple):
    """A quantized weight as :data:`hetsched_kernels.gemm_groups.gemm_groups_f32` reads it.

    Attributes:
        data: uint8, panel after panel, on a cache line.
        shape: int64 [12]: n, k (padded to whole groups and chunks), bits, group, kind of scales, whether there are minima,
            groups in a larger one, bytes of a panel; then where in a panel its minima, larger scales, those of minima, and
            codes begin (its scales are first).
    """

    data: Array
    shape: Array


def aligned_bytes(count: int) -> Array:
    """Zeroed uint8 that begin on a cache line."""
    room = np.zeros(count + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    return room[start : start + count]


def pack_groups(w: Groups) -> PackedGroups:
    """Pack a weight once.

    Raises:
        ValueError: there is no kernel for the combination of bits, group and minima.
    """
    _check(w)
    n, k = w.codes.shape
    panels, depth = -(-n // LANES), padded_depth(k, w.group)
    groups = depth // w.group
    kind = SCALED if w.larger is not None else HALF if _is_half(w.scales) and (w.mins is None or _is_half(w.mins)) else FLOAT
    dtype = {HALF: np.float16, FLOAT: np.float32, SCALED: np.int8}[kind]
    parts = [_rows_of_groups(s, panels, groups, dtype) for s in (w.scales, w.mins) if s is not None]
    per = 0
    if w.larger is not None:
        per = -(-w.scales.shape[1] // w.larger.shape[2])
        parts += [_rows_of_groups(one, panels, -(-groups // per), np.float16) for one in w.larger]
    parts.append(_planes(w.codes, w.bits, panels, depth).reshape(panels, -1))
    starts = np.cumsum([0, *(-(-part.shape[1] // _LINE) * _LINE for part in parts)])
    stride = int(starts[-1])
    data = aligned_bytes(panels * stride)
    lines = data.reshape(panels, stride)
    for part, at in zip(parts, starts, strict=False):
        lines[:, at : at + part.shape[1]] = part
    has_mins = w.mins is not None
    larger = [starts[1 + has_mins + i] if per and i <= has_mins else 0 for i in range(2)]
    places = [starts[1] if has_mins else 0, *larger, starts[len(parts) - 1]]
    return PackedGroups(data, np.array([n, depth, w.bits, w.group, kind, has_mins, per, stride, *places], np.int64))


def _check(w: Groups) -> None:
    if w.bits not in ZEROS or (w.mins is not None and w.bits not in WITH_MINS):
        raise ValueError(f"there is no kernel for {w.bits}-bit weights {'with' if w.mins is not None else 'without'} minima")
    fits = w.group == CHUNK // 2 if w.bits in OF_HALVES else w.group % CHUNK == 0
    if not fits or w.group < 1:
        raise ValueError(f"there is no kernel for {w.bits}-bit weights in groups of {w.group}")


def _is_half(x: Array) -> bool:
    """Whether all values are float16 numbers, so that they can be stored as such."""
    if x.dtype == np.float16:
        return True
    with np.errstate(over="ignore"):
        return bool((x.astype(np.float16).astype(x.dtype) == x).all())


def _rows_of_groups(values: Array, panels: int, groups: int, dtype: Any) -> Array:
    """[n, groups] as bytes [panels, groups · LANES · itemsize], zero-padded."""
    out = np.zeros((panels * LANES, groups), dtype)
    out[: values.shape[0], : values.shape[1]] = values
    turned = np.ascontiguousarray(out.reshape(panels, LANES, groups).transpose(0, 2, 1))
    return turned.reshape(panels, -1).view(np.uint8)


def _planes(codes: Array, bits: int, panels: int, depth: int) -> Array:
    """Codes as vectors: [panels, chunks, bits, LANES, 4]; see :mod:`hetsched_kernels.tile_bits`."""
    n, k = codes.shape
    padded = np.zeros((panels * LANES, depth), np.uint8)
    padded[:n, :k] = codes
    fields = padded.reshape(panels, LANES, depth // CHUNK, 8, 4).transpose(0, 2, 3, 1, 4)
    if bits == 8:
        return np.ascontiguousarray(fields)
    if bits in (2, 4):
        return _plane(fields, bits)
    return np.ascontiguousarray(np.concatenate([_plane(fields & 15, 4), _plane(fields >> 4, bits - 4)], 2))


def _plane(fields: Array, width: int) -> Array:
    """Eight fields [panels, chunks, 8, LANES, 4] of ``width`` bits as ``width`` vectors."""
    per = 8 // width
    out = np.zeros((*fields.shape[:2], width, *fields.shape[3:]), np.uint8)
    for t in range(width):
        for i in range(per):
            out[:, :, t] |= fields[:, :, per * t + i] << np.uint8(width * i)
    return out
