"""Mixtures of experts: which experts a token uses, and their gated units on the rows that use them.

The rows of an expert are gathered, so that each expert's weights are read once however many tokens ask for it, and an expert
that nobody asks for is not read at all. Sums go by expert, the lowest first: the same result whatever the order of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.activation import ACTIVATE, activate
from hetsched_kernels.arrays import NO_F32, Array, InF32, InI64, InU8, OutF32, OutI64
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.extremes import row_max
from hetsched_kernels.few_bits import GROUP, K
from hetsched_kernels.gemm import gemm_f32, gemm_f32_scratch
from hetsched_kernels.gemm_groups import gemm_groups_f32, gemm_groups_scratch
from hetsched_kernels.parts import as_i32, as_i64, as_u8, onward, span
from hetsched_kernels.quantize_groups import quantize_groups

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
#: Positions in :func:`experts_shape`'s result.
TOKENS, WIDTH, INNER, EXPERTS, EACH, FUNCTION = range(6)
_gemm, _gemm_groups, _quantize = block(gemm_f32.python), block(gemm_groups_f32.python), block(quantize_groups.python)


@kernel
def route_f32(scores: InF32, share: OutF32, chosen: OutI64, rows: int, experts: int, each: int, normalize: bool) -> None:
    """The ``each`` experts with the highest scores of every row, best first, and their shares.

    Args:
        scores: [rows · experts].
        share: [rows · each]: softmax over all experts, divided by the sum of the chosen where ``normalize``.
        chosen: int64 [rows · each]; of equal scores the lower position.
        rows: tokens.
        experts: experts.
        each: experts of a token, at most ``experts``.
        normalize: shares of a token add up to 1.
    """
    for r in range(rows):
        own, part, which = span(scores, r * experts, experts), span(share, r * each, each), span(chosen, r * each, each)
        for n in range(each):
            best = -1
            for e in range(experts):
                taken = False
                for other in range(n):
                    taken = taken or which[other] == e
                if not taken and (best < 0 or own[e] > own[best]):
                    best = e
            which[n] = best
        largest, total, of_chosen = row_max(own), _ZERO, _ZERO
        for e in range(experts):
            total += f.exp(own[e] - largest)
        for n in range(each):
            part[n] = f.exp(own[which[n]] - largest)
            of_chosen += part[n]
        factor = _ONE / (of_chosen if normalize else total)
        for n in range(each):
            part[n] = part[n] * factor


def experts_shape(tokens: int, width: int, inner: int, experts: int, each: int, activation: int) -> Array:
    """The int64 descriptor of a layer of experts; ``activation`` is one of ``codes.ACTIVATION``, applied to the gates."""
    return np.array([tokens, width, inner, experts, each, activation], np.int64)


def experts_scratch(shape: Array) -> int:
    """Float32 elements of scratch that :data:`gate_experts_f32` and :data:`down_experts_f32` want."""
    tokens, width, inner = (int(v) for v in shape[: INNER + 1])
    return _rows_scratch(shape) + gemm_f32_scratch(tokens, max(width, inner), max(width, inner))


def experts_groups_scratch(shape: Array, *weights: Array) -> int:
    """The same for their twins with weights of a few bits, given the ``shape`` of each kind of weight."""
    tokens = int(shape[TOKENS])
    most = max(int(w[K]) for w in weights)
    groups = max(int(w[K] // w[GROUP]) for w in weights)
    return _rows_scratch(shape) + tokens * (-(-most // 4) + 2 * groups) + 16 + max(gemm_groups_scratch(w) for w in weights)


def _rows_scratch(shape: Array) -> int:
    """The list of an expert's rows, those rows, and two results for each."""
    tokens, width, inner = (int(v) for v in shape[: INNER + 1])
    return tokens * (2 * int(shape[EACH]) + 3 * max(width, inner))


@block
def _parts(scratch: Any, shape: Any) -> Any:
    """Room for an expert's list of rows, the rows, two results, and what follows."""
    tokens, wide = shape[TOKENS], max(shape[WIDTH], shape[INNER])
    size, rest = tokens * wide, onward(scratch, 2 * tokens * shape[EACH])
    rows = as_i64(scratch, 0, 2 * tokens * shape[EACH])
    return rows, span(rest, 0, size), span(rest, size, size), span(rest, 2 * size, size), onward(rest, 3 * size)


@block
def _rows_of(expert: Any, chosen: Any, shape: Any, rows: Any) -> Any:
    """Where expert ``expert`` is used: positions in ``chosen`` into ``rows``; how many."""
    count = 0
    for i in range(shape[TOKENS] * shape[EACH]):
        if chosen[i] == expert:
            rows[count] = i
            count += 1
    return count


@block
def _gather(source: Any, rows: Any, count: Any, share: Any, cols: Any, out: Any) -> None:
    """The rows of ``source`` that positions stand for, of which ``share`` share one."""
    for r in range(count):
        row, to = span(source, rows[r] // share * cols, cols), span(out, r * cols, cols)
        for i in range(cols):
            to[i] = row[i]


@block
def _keep_gated(gates: Any, ups: Any, rows: Any, count: Any, stride: Any, at: Any, cols: Any, first: Any, shape: Any, hidden: Any) -> None:
    """Columns of the hidden values: act(gate) · up, from results whose rows are ``stride`` apart and begin at ``at``."""
    for r in range(count):
        gate, up = span(gates, r * stride + at, cols), span(ups, r * stride + at, cols)
        activate(gate, shape[FUNCTION], _ZERO, _ZERO)
        to = span(hidden, rows[r] * shape[INNER] + first, cols)
        for i in range(cols):
            to[i] = gate[i] * up[i]


@block
def _add(y: Any, rows: Any, count: Any, stride: Any, at: Any, cols: Any, first: Any, share: Any, shape: Any, out: Any) -> None:
    """Columns of each row's share of an expert's result, added; arguments as :data:`_keep_gated`."""
    for r in range(count):
        factor, source = share[rows[r]], span(y, r * stride + at, cols)
        to = span(out, rows[r] // shape[EACH] * shape[WIDTH] + first, cols)
        for i in range(cols):
            to[i] += factor * source[i]


@block
def _clear(out: Any, first: Any, last: Any, shape: Any) -> None:
    for t in range(shape[TOKENS]):
        for i in range(first, last):
            out[t * shape[WIDTH] + i] = _ZERO


@block
def _columns(weights: Any, expert: Any, experts: Any, depth: Any, first: Any) -> Any:
    """The panels of an expert's packed matrix from column ``first`` on."""
    each = weights.shape[0] // experts
    return span(weights, expert * each + first * depth, each - first * depth)


@kernel(needs=(*gemm_f32.needs, ACTIVATE))
def gate_experts_f32(
    x: InF32, chosen: InI64, gates: InF32, ups: InF32, hidden: OutF32, scratch: OutF32, shape: InI64, first: int, last: int
) -> None:
    """Compute hidden = act(x · gateᵀ) · (x · upᵀ) for every expert of every row, some of its columns.

    Args:
        x: [tokens · width].
        chosen: int64 [tokens · each], no expert twice in a row.
        gates: every expert's :func:`hetsched_kernels.gemm.pack_b_f32` of [inner, width] (transposed), one after the other.
        ups: as ``gates``.
        hidden: [tokens · each · inner].
        scratch: float32 [:func:`experts_scratch`].
        shape: :func:`experts_shape`.
        first: first column, a multiple of COLS.
        last: one past the last.
    """
    width, experts, n = shape[WIDTH], shape[EXPERTS], last - first
    rows, own, gate, up, spare = _parts(scratch, shape)
    for e in range(experts):
        m = _rows_of(e, chosen, shape, rows)
        if m > 0:
            _gather(x, rows, m, shape[EACH], width, own)
            _gemm(own, _columns(gates, e, experts, width, first), NO_F32, gate, spare, m, n, width, 0, _ZERO, _ZERO)
            _gemm(own, _columns(ups, e, experts, width, first), NO_F32, up, spare, m, n, width, 0, _ZERO, _ZERO)
            _keep_gated(gate, up, rows, m, n, 0, n, first, shape, hidden)


@kernel(needs=(*gemm_f32.needs, ACTIVATE))
def down_experts_f32(
    hidden: InF32, share: InF32, chosen: InI64, downs: InF32, out: OutF32, scratch: OutF32, shape: InI64, first: int, last: int
) -> None:
    """Compute out = Σ share · hidden · downᵀ over the experts of each row, some of its columns.

    Args:
        hidden: [tokens · each · inner].
        share: [tokens · each].
        chosen: int64 [tokens · each].
        downs: every expert's packed [width, inner] (transposed), one after the other.
        out: [tokens · width].
        scratch: float32 [:func:`experts_scratch`].
        shape: :func:`experts_shape`.
        first: first column, a multiple of COLS.
        last: one past the last.
    """
    inner, experts, n = shape[INNER], shape[EXPERTS], last - first
    rows, own, y, _, spare = _parts(scratch, shape)
    _clear(out, first, last, shape)
    for e in range(experts):
        m = _rows_of(e, chosen, shape, rows)
        if m > 0:
            _gather(hidden, rows, m, 1, inner, own)
            _gemm(own, _columns(downs, e, experts, inner, first), NO_F32, y, spare, m, n, inner, 0, _ZERO, _ZERO)
            _add(y, rows, m, n, 0, n, first, share, shape, out)


@block
def _in_groups(
    x: Any, cols: Any, data: Any, weight: Any, expert: Any, experts: Any, out: Any, spare: Any, m: Any, first: Any, last: Any
) -> None:  # fmt: skip
    """Rows of ``x``, quantized in a weight's groups, times some columns of that expert's weight."""
    depth, group = weight[K], weight[GROUP]
    groups, each = depth // group, data.shape[0] // experts
    codes = as_u8(spare, 0, (m * depth + 3) // 4)
    rest = onward(spare, (m * depth + 3) // 4)
    scales, sums, room = span(rest, 0, m * groups), as_i32(rest, m * groups, m * groups), onward(rest, 2 * m * groups)
    _quantize(x, NO_F32, codes, scales, sums, rest, m, cols, depth, group)
    _gemm_groups(codes, scales, sums, span(data, expert * each, each), weight, NO_F32, out, room, m, first, last, 0, _ZERO, _ZERO)


@kernel(needs=(*gemm_groups_f32.needs, ACTIVATE))
def gate_experts_groups_f32(
    x: InF32,
    chosen: InI64,
    gates: InU8,
    gate_shape: InI64,
    ups: InU8,
    up_shape: InI64,
    hidden: OutF32,
    scratch: OutF32,
    shape: InI64,
    first: int,
    last: int,
) -> None:
    """As :data:`gate_experts_f32`, with weights of a few bits and rows quantized in their groups.

    Args:
        x: [tokens · width].
        chosen: int64 [tokens · each].
        gates: the data of every expert's :func:`hetsched_kernels.few_bits.pack_groups` of [inner, width], one after the other.
        gate_shape: their common shape.
        ups: as ``gates``.
        up_shape: its shape.
        hidden: [tokens · each · inner].
        scratch: float32 [:func:`experts_groups_scratch`].
        shape: :func:`experts_shape`.
        first: first column, a multiple of LANES.
        last: one past the last.
    """
    width, inner, experts, n = shape[WIDTH], shape[INNER], shape[EXPERTS], last - first
    rows, own, gate, up, spare = _parts(scratch, shape)
    for e in range(experts):
        m = _rows_of(e, chosen, shape, rows)
        if m > 0:
            _gather(x, rows, m, shape[EACH], width, own)
            _in_groups(own, width, gates, gate_shape, e, experts, gate, spare, m, first, last)
            _in_groups(own, width, ups, up_shape, e, experts, up, spare, m, first, last)
            _keep_gated(gate, up, rows, m, inner, first, n, first, shape, hidden)


@kernel(needs=(*gemm_groups_f32.needs, ACTIVATE))
def down_experts_groups_f32(
    hidden: InF32,
    share: InF32,
    chosen: InI64,
    downs: InU8,
    down_shape: InI64,
    out: OutF32,
    scratch: OutF32,
    shape: InI64,
    first: int,
    last: int,
) -> None:
    """As :data:`down_experts_f32`, with weights of a few bits; arguments as there and in :data:`gate_experts_groups_f32`."""
    width, inner, experts, n = shape[WIDTH], shape[INNER], shape[EXPERTS], last - first
    rows, own, y, _, spare = _parts(scratch, shape)
    _clear(out, first, last, shape)
    for e in range(experts):
        m = _rows_of(e, chosen, shape, rows)
        if m > 0:
            _gather(hidden, rows, m, 1, inner, own)
            _in_groups(own, inner, downs, down_shape, e, experts, y, spare, m, first, last)
            _add(y, rows, m, width, first, n, first, share, shape, out)
