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


def mixture_scratch(shape: Array) -> int:
    """Float32 elements of scratch that :data:`mixture_f32` wants."""
    tokens, width, inner = (int(v) for v in shape[: INNER + 1])
    return _rows_scratch(shape) + gemm_f32_scratch(tokens, max(width, inner), max(width, inner))


def mixture_groups_scratch(shape: Array, *weights: Array) -> int:
    """Float32 elements of scratch that :data:`mixture_groups_f32` wants for the ``shape`` of each kind of weight."""
    tokens = int(shape[TOKENS])
    most = max(int(w[K]) for w in weights)
    groups = max(int(w[K] // w[GROUP]) for w in weights)
    return _rows_scratch(shape) + tokens * (-(-most // 4) + 2 * groups) + 16 + max(gemm_groups_scratch(w) for w in weights)


def _rows_scratch(shape: Array) -> int:
    """The list of an expert's rows, and those rows on their way."""
    tokens, width, inner = (int(v) for v in shape[: INNER + 1])
    return tokens * (2 * int(shape[EACH]) + width + 2 * inner)


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
def _gather(x: Any, rows: Any, count: Any, shape: Any, out: Any) -> None:
    width, each = shape[WIDTH], shape[EACH]
    for r in range(count):
        source, to = span(x, rows[r] // each * width, width), span(out, r * width, width)
        for i in range(width):
            to[i] = source[i]


@block
def _gate(gates: Any, ups: Any, code: Any) -> None:
    """Gates become act(gates) · ups."""
    activate(gates, code, _ZERO, _ZERO)
    for i in range(gates.shape[0]):
        gates[i] = gates[i] * ups[i]


@block
def _add(y: Any, rows: Any, count: Any, share: Any, shape: Any, out: Any) -> None:
    """Add each row's share of an expert's result."""
    width, each = shape[WIDTH], shape[EACH]
    for r in range(count):
        factor, source, to = share[rows[r]], span(y, r * width, width), span(out, rows[r] // each * width, width)
        for i in range(width):
            to[i] += factor * source[i]


@block
def _clear(out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = _ZERO


@kernel(needs=(*gemm_f32.needs, ACTIVATE))
def mixture_f32(
    x: InF32, share: InF32, chosen: InI64, gates: InF32, ups: InF32, downs: InF32, out: OutF32, scratch: OutF32, shape: InI64
) -> None:
    """Compute out = Σ share · (act(x · gateᵀ) · (x · upᵀ)) · downᵀ over the experts of each row.

    Args:
        x: [tokens · width].
        share: [tokens · each].
        chosen: int64 [tokens · each], no expert twice in a row.
        gates: every expert's :func:`hetsched_kernels.gemm.pack_b_f32` of [inner, width] (transposed), one after the other.
        ups: as ``gates``.
        downs: the same of [width, inner].
        out: [tokens · width].
        scratch: float32 [:func:`mixture_scratch`].
        shape: :func:`experts_shape`.
    """
    tokens, width, inner, experts = shape[TOKENS], shape[WIDTH], shape[INNER], shape[EXPERTS]
    rows, rest = as_i64(scratch, 0, 2 * tokens * shape[EACH]), onward(scratch, 2 * tokens * shape[EACH])
    own, gate, up = span(rest, 0, tokens * width), span(rest, tokens * width, tokens * inner), onward(rest, tokens * (width + inner))
    spare = onward(up, tokens * inner)
    inward, outward = gates.shape[0] // experts, downs.shape[0] // experts
    _clear(out)
    for e in range(experts):
        m = _rows_of(e, chosen, shape, rows)
        if m == 0:
            continue
        _gather(x, rows, m, shape, own)
        _gemm(own, span(gates, e * inward, inward), NO_F32, gate, spare, m, inner, width, 0, _ZERO, _ZERO)
        _gemm(own, span(ups, e * inward, inward), NO_F32, up, spare, m, inner, width, 0, _ZERO, _ZERO)
        _gate(span(gate, 0, m * inner), up, shape[FUNCTION])
        _gemm(gate, span(downs, e * outward, outward), NO_F32, own, spare, m, width, inner, 0, _ZERO, _ZERO)
        _add(own, rows, m, share, shape, out)


@block
def _in_groups(x: Any, cols: Any, data: Any, weight: Any, expert: Any, experts: Any, out: Any, spare: Any, m: Any, n: Any) -> None:
    """Rows of ``x``, quantized in a weight's groups, times that expert's weight."""
    depth, group = weight[K], weight[GROUP]
    groups, each = depth // group, data.shape[0] // experts
    codes = as_u8(spare, 0, (m * depth + 3) // 4)
    rest = onward(spare, (m * depth + 3) // 4)
    scales, sums, room = span(rest, 0, m * groups), as_i32(rest, m * groups, m * groups), onward(rest, 2 * m * groups)
    _quantize(x, NO_F32, codes, scales, sums, rest, m, cols, depth, group)
    _gemm_groups(codes, scales, sums, span(data, expert * each, each), weight, NO_F32, out, room, m, 0, n, 0, _ZERO, _ZERO)


@kernel(needs=(*gemm_groups_f32.needs, ACTIVATE))
def mixture_groups_f32(
    x: InF32,
    share: InF32,
    chosen: InI64,
    gates: InU8,
    gate_shape: InI64,
    ups: InU8,
    up_shape: InI64,
    downs: InU8,
    down_shape: InI64,
    out: OutF32,
    scratch: OutF32,
    shape: InI64,
) -> None:
    """As :data:`mixture_f32`, with weights of a few bits and rows quantized in their groups.

    Args:
        x: [tokens · width].
        share: [tokens · each].
        chosen: int64 [tokens · each].
        gates: the data of every expert's :func:`hetsched_kernels.few_bits.pack_groups` of [inner, width], one after the other.
        gate_shape: their common shape.
        ups: as ``gates``.
        up_shape: its shape.
        downs: the same of [width, inner].
        down_shape: its shape.
        out: [tokens · width].
        scratch: float32 [:func:`mixture_groups_scratch`].
        shape: :func:`experts_shape`.
    """
    tokens, width, inner, experts = shape[TOKENS], shape[WIDTH], shape[INNER], shape[EXPERTS]
    rows, rest = as_i64(scratch, 0, 2 * tokens * shape[EACH]), onward(scratch, 2 * tokens * shape[EACH])
    own, gate, up = span(rest, 0, tokens * width), span(rest, tokens * width, tokens * inner), onward(rest, tokens * (width + inner))
    spare = onward(up, tokens * inner)
    _clear(out)
    for e in range(experts):
        m = _rows_of(e, chosen, shape, rows)
        if m == 0:
            continue
        _gather(x, rows, m, shape, own)
        _in_groups(own, width, gates, gate_shape, e, experts, gate, spare, m, inner)
        _in_groups(own, width, ups, up_shape, e, experts, up, spare, m, inner)
        _gate(span(gate, 0, m * inner), up, shape[FUNCTION])
        _in_groups(gate, inner, downs, down_shape, e, experts, own, spare, m, width)
        _add(own, rows, m, share, shape, out)
