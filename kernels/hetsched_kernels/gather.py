"""Indexed reads and writes. Elements are moved by their size: pass unsigned views."""

from __future__ import annotations

import numpy as np

from hetsched_kernels.arrays import InI64, InS, InT, OutT
from hetsched_kernels.compilation import kernel
from hetsched_kernels.parts import span, zero_index

_SIZES = ("uint32", "uint8", "uint64", "uint16")


@kernel(T=_SIZES, S=("int64", "int32"))
def gather(src: InT, indices: InS, out: OutT, outer: int, axis: int, inner: int) -> bool:
    """out[o, j, i] = src[o, indices[j], i].

    Args:
        src: [outer · axis · inner].
        indices: [count], each in [-axis, axis).
        out: [outer · count · inner].
        outer: product of the dimensions before the axis.
        axis: size of the indexed dimension.
        inner: product of the dimensions after it.

    Returns:
        False where an index is out of range (its elements are left alone).
    """
    count = indices.shape[0]
    fine = True
    for o in range(outer):
        for j in range(count):
            k = np.int64(indices[j])
            k = k + axis if k < 0 else k
            if k < 0 or k >= axis:
                fine = False
                continue
            to, at = (o * count + j) * inner, (o * axis + k) * inner
            if inner == 1:
                out[to] = src[at]
            else:
                target, source = span(out, to, inner), span(src, at, inner)
                for i in range(inner):
                    target[i] = source[i]
    return fine


@kernel(T=_SIZES, S=("int64", "int32"))
def gather_elements(src: InT, indices: InS, out: OutT, src_shape: InI64, index_shape: InI64, axis: int) -> bool:
    """out[i0…ir] = src[i0 … indices[i0…ir] … ir], the index standing at ``axis``.

    Args:
        src: contiguous, of ``src_shape``.
        indices: contiguous, of ``index_shape``; negative ones count from the end.
        out: of ``index_shape``.
        src_shape: int64 [rank].
        index_shape: int64 [rank], no larger than ``src_shape`` except at ``axis``.
        axis: 0 … rank - 1.

    Returns:
        False where an index is out of range (its element is left alone).
    """
    rank = src_shape.shape[0]
    index = zero_index()
    fine = True
    for n in range(indices.shape[0]):
        k = np.int64(indices[n])
        k = k + src_shape[axis] if k < 0 else k
        if k < 0 or k >= src_shape[axis]:
            fine = False
        else:
            at = 0
            for d in range(rank):
                at = at * src_shape[d] + (k if d == axis else index[d])
            out[n] = src[at]
        d = rank - 1
        while d >= 0:
            index[d] += 1
            if index[d] < index_shape[d]:
                break
            index[d] = 0
            d -= 1
    return fine


@kernel(T=_SIZES)
def gather_nd(src: InT, indices: InI64, out: OutT, shape: InI64, depth: int, batch: int) -> bool:
    """out[b, j, …] = src[b, indices[b, j, 0], …, indices[b, j, depth-1], …].

    Args:
        src: contiguous, of ``shape``.
        indices: [batch · count · depth].
        out: [batch · count · slice], slice = product of the dimensions left after indexing.
        shape: int64 [1 + rank]: the batch dimensions joined first, then the others.
        depth: how many dimensions an index names.
        batch: product of the batch dimensions (1 without).

    Returns:
        False where an index is out of range.
    """
    piece, whole = 1, 1
    for d in range(1, shape.shape[0]):
        whole *= shape[d]
        if d > depth:
            piece *= shape[d]
    count = indices.shape[0] // max(batch * depth, 1)
    fine = True
    for b in range(batch):
        for j in range(count):
            at = 0
            for d in range(depth):
                k = indices[(b * count + j) * depth + d]
                k = k + shape[1 + d] if k < 0 else k
                if k < 0 or k >= shape[1 + d]:
                    fine = False
                    k = 0
                at = at * shape[1 + d] + k
            for i in range(piece):
                out[(b * count + j) * piece + i] = src[b * whole + at * piece + i]
    return fine


@kernel(T=_SIZES)
def scatter_nd(indices: InI64, updates: InT, out: OutT, shape: InI64, depth: int) -> bool:
    """out[indices[j]] = updates[j]; ``out`` already holds the data.

    Args:
        indices: [count · depth].
        updates: [count · slice].
        out: contiguous, of ``shape``.
        shape: int64 [rank].
        depth: how many leading dimensions an index names.

    Returns:
        False where an index is out of range (its update is dropped).
    """
    piece = 1
    for d in range(depth, shape.shape[0]):
        piece *= shape[d]
    fine = True
    for j in range(indices.shape[0] // max(depth, 1)):
        at = 0
        valid = True
        for d in range(depth):
            k = indices[j * depth + d]
            k = k + shape[d] if k < 0 else k
            valid = valid and 0 <= k < shape[d]
            at = at * shape[d] + k
        fine = fine and valid
        if valid:
            for i in range(piece):
                out[at * piece + i] = updates[j * piece + i]
    return fine
