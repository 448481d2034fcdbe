"""Mixtures of experts, and the layers of state spaces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from hetsched.graph import Tensor
from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.language_rules import MIXTURE_FUNCTIONS, expert_slots, in_blocks
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched.runtime.lower.matrix_groups import gguf_weights
from hetsched_kernels import codes, experts, few_bits, gemm, state_space
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.groups import Groups
from hetsched_kernels.tile import COLS, LANES

#: Channels of a scan that are worth another thread.
_CHANNELS = 16


def route(low: Lowering) -> None:
    """Router: the best experts of every row, and their shares."""
    op, (rows, many) = low.op, low.shape(0)
    each, normalize = op.attr_int("experts_per_token", 1), bool(op.attr_int("normalize", 1))
    low.emit(experts.route_f32, low.reals(0), low.raw_output(0), low.raw_output(1), rows, many, each, normalize)


def mixture(low: Lowering) -> None:
    """MoE: weights of a few bits are computed on directly at w8a8, all others in float32."""
    op, (tokens, width) = low.op, low.shape(0)
    many, function = op.attr_int("num_experts", 1), MIXTURE_FUNCTIONS[op.attr_str("activation", "silu")]
    slots = expert_slots(op)
    inner = low.tensor(slots[2][0]).shape[-1]
    shape = experts.experts_shape(tokens, width, inner, many, op.attr_int("experts_per_token", 1), codes.ACTIVATION[function])
    x, share, chosen, out = low.reals(0), low.reals(1), low.raw(2), low.real_output()
    hidden = low.scratch(tokens * op.attr_int("experts_per_token", 1) * inner, np.float32)
    if low.precision == "w8a8":
        weights = [low.packed(op.inputs[s[0]], f"experts {n} in groups", partial(_groups, low, s, n)) for n, s in enumerate(slots)]
        room, (gates, ups, downs) = experts.experts_groups_scratch(shape, *(w[1] for w in weights)), weights
        _by_columns(low, experts.gate_experts_groups_f32, (x, chosen, *gates, *ups, hidden), room, shape, inner, LANES)
        _by_columns(low, experts.down_experts_groups_f32, (hidden, share, chosen, *downs, out), room, shape, width, LANES)
        return
    floats = [low.packed(op.inputs[s[0]], f"experts {n}", partial(_floats, low, s, n)) for n, s in enumerate(slots)]
    room = experts.experts_scratch(shape)
    _by_columns(low, experts.gate_experts_f32, (x, chosen, *floats[:2], hidden), room, shape, inner, COLS)
    _by_columns(low, experts.down_experts_f32, (hidden, share, chosen, floats[2], out), room, shape, width, COLS)


def _by_columns(low: Lowering, kernel: Any, head: tuple[Any, ...], room: int, shape: Array, columns: int, grain: int) -> None:
    """Columns of a result divided among the queue's threads, each with scratch of its own."""

    def part(first: int, last: int) -> tuple[Any, ...]:
        return *head, low.scratch(room, np.float32), shape, first, last

    low.emit_split(kernel, columns, grain, part)


def _half(low: Lowering, part: int) -> slice:
    """The rows of an expert's tensor that are its gate, its up or its down matrix."""
    if not low.op.attr_int("joined", 0) or part > 1:
        return slice(None)
    inner = low.tensor(3).shape[1] // 2
    return slice(part * inner, (part + 1) * inner)


def _floats(low: Lowering, slots: Sequence[int], part: int) -> Array:
    """One kind of matrix of all experts, each packed, one after the other."""
    own = _half(low, part)
    stacked = [low.constant_reals(s) for s in slots]
    each = [matrix for s in stacked for matrix in (s if s.ndim > 2 else [s])]
    return aligned_copy(np.concatenate([gemm.pack_b_f32(np.ascontiguousarray(matrix[own]), True) for matrix in each]))


def _groups(low: Lowering, slots: Sequence[int], part: int) -> tuple[Array, Array]:
    """The same of few bits: the data of all experts, and their common shape."""
    own = _half(low, part)
    packed = [few_bits.pack_groups(_rows(w, own)) for s in slots for w in _blocks(low.tensor(s))]
    return aligned_copy(np.concatenate([p.data for p in packed])), packed[0].shape


def _blocks(tensor: Tensor) -> list[Groups]:
    """The matrices of a tensor in GGUF's blocks, one or one for each expert."""
    assert in_blocks(tensor)
    *lead, n, k = tensor.shape
    whole = gguf_weights(tensor, (int(np.prod(lead, dtype=np.int64)) * n, k))
    return [_rows(whole, slice(first, first + n)) for first in range(0, len(whole.codes), n)]


def _rows(w: Groups, rows: slice) -> Groups:
    larger = None if w.larger is None else np.ascontiguousarray(w.larger[:, rows])
    mins = None if w.mins is None else w.mins[rows]
    return Groups(w.codes[rows], w.bits, w.group, w.scales[rows], mins, larger)


def causal_convolution(low: Lowering) -> None:
    """CausalConv, sequence by sequence; the state follows the last inputs."""
    batch, (rows, channels) = low.op.attr_int("batch", 1), low.shape(0)
    width = low.tensor(1).elements // channels
    x, out, past, present = low.reals(0), low.real_output(0), _past(low, 3, batch), low.raw_output(1).reshape(batch, -1)
    w = low.packed(low.op.inputs[1], "taps", lambda: aligned_copy(low.constant_reals(1).reshape(channels, width).T.reshape(-1)))
    for b in range(batch):
        own = slice(b * (x.size // batch), (b + 1) * (x.size // batch))
        args: tuple[Any, ...] = (x[own], w, low.bias(2), past[b], out[own], present[b], rows // batch, channels, width)
        low.emit(state_space.causal_conv_f32, *args)


def selective_scan(low: Lowering) -> None:
    """SelectiveScan, sequence by sequence, channels divided among the queue's threads."""
    batch, (rows, channels) = low.op.attr_int("batch", 1), low.shape(0)
    size, tokens = low.tensor(2).elements // channels, rows // batch
    reads = [low.reals(i).reshape(batch, -1) for i in (0, 1, 3, 4)]
    y, past, state = low.real_output(0).reshape(batch, -1), _past(low, 6, batch), low.raw_output(1).reshape(batch, -1)
    decay, skip = _decay(low), low.reals(5)
    for b in range(batch):
        u, step, into, outward = (r[b] for r in reads)
        head = (u, step, decay, into, outward, skip, past[b], y[b], state[b], tokens, channels, size)
        low.emit_split(state_space.selective_scan_f32, channels, _CHANNELS, partial(_range, head))


def _range(head: tuple[Any, ...], first: int, last: int) -> tuple[Any, ...]:
    return *head, first, last


def _decay(low: Lowering) -> Array:
    """The matrix A, which may be stored as log(-A)."""
    if not low.op.attr_int("logarithmic", 0):
        return low.reals(2)
    decay: Array = low.packed(low.op.inputs[2], "decay", lambda: aligned_copy(-np.exp(low.constant_reals(2)).reshape(-1)))
    return decay


def _past(low: Lowering, slot: int, batch: int) -> list[Array]:
    """Each sequence's state before, or empty arrays."""
    return list(low.reals(slot).reshape(batch, -1)) if low.has(slot) else [NO_F32] * batch
