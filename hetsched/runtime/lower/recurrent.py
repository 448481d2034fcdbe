"""LSTM, GRU and RNN: one product of all steps with the input weights, then the steps, each direction for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.layer_rules import gate_functions
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched.runtime.lower.matrix import emit_rows
from hetsched_kernels import codes, gemm
from hetsched_kernels import recurrent as kernels
from hetsched_kernels import recurrent_state as states
from hetsched_kernels.arrays import NO_F32, NO_I32
from hetsched_kernels.program import Call

_KERNELS = {"LSTM": kernels.lstm_f32, "GRU": kernels.gru_f32, "RNN": kernels.rnn_f32}
_TWO_STATES = "LSTM"


def recurrent(low: Lowering) -> None:
    """LSTM, GRU and RNN of ONNX. Two directions run side by side where the queue has threads."""
    op, directions = low.op, low.tensor(2).shape[0]
    x, lengths = low.reals(0), low.raw(4) if low.has(4) else NO_I32
    before = [low.reals(i) if low.has(i) else NO_F32 for i in (5, 6)]
    outs = [low.real_output(i) if i < len(op.outputs) and op.outputs[i] else NO_F32 for i in range(3)]
    prepared = [_direction(low, d, directions, x, lengths, before, outs) for d in range(directions)]
    low.steps.append(tuple(Call(_KERNELS[op.type], (), args) for args in prepared))


def _direction(
    low: Lowering, d: int, directions: int, x: Array, lengths: Array, before: list[Array], outs: list[Array]
) -> tuple[Any, ...]:  # fmt: skip
    """The arguments of the kernel for direction ``d``; emits the product with the input weights."""
    op, hidden, batch_first = low.op, low.tensor(2).shape[2], bool(low.op.attr_int("layout", 0))
    steps, batch = low.shape(0)[1::-1] if batch_first else low.shape(0)[:2]
    backwards = d == 1 or op.attr_str("direction", "forward") == "reverse"
    shape = states.recurrent_shape(steps, batch, hidden, directions, backwards, batch_first)
    w, r, bias, hidden_bias = _weights(low, d)
    given = low.scratch(steps * batch * len(w), np.float32)
    packed = low.packed(op.inputs[1], f"recurrent {d}", lambda: aligned_copy(gemm.pack_b_f32(w, True)))
    emit_rows(low, x, packed, bias, given, steps * batch, len(w), w.shape[1], (codes.NONE, 0.0, 0.0))
    start = d * hidden if batch_first else d * batch * hidden
    y, *last = (out[at:] for out, at in zip(outs, (start, start, start), strict=True))
    own = [state[start:] for state in before]
    scratch = low.scratch(states.recurrent_scratch(op.type, shape), np.float32)
    tail = (scratch, shape, *_functions(low, d, directions), op.attr_float("clip", 0.0))
    if op.type == _TWO_STATES:
        return given, _packed(low, r, f"recurrent {d}"), lengths, *own, y, *last, *tail
    if op.type == "RNN":
        return given, _packed(low, r, f"recurrent {d}"), lengths, own[0], y, last[0], *tail
    gates, state = r[: 2 * hidden], r[2 * hidden :]
    both = _packed(low, gates, f"gates {d}"), _packed(low, state, f"state {d}")
    return given, *both, hidden_bias, lengths, own[0], y, last[0], *tail


def _packed(low: Lowering, r: Array, kind: str) -> Array:
    packed: Array = low.packed(low.op.inputs[2], kind, lambda: aligned_copy(gemm.pack_b_f32(np.ascontiguousarray(r), True)))
    return packed


def _weights(low: Lowering, d: int) -> tuple[Array, Array, Array, Array]:
    """W, R, the bias that goes into the product with the inputs, and that of a GRU's state where the reset gate scales it too."""
    w, r = low.constant_reals(1)[d], low.constant_reals(2)[d]
    if not low.has(3):
        zeros = np.zeros(len(w), np.float32)
        wb, rb = zeros, zeros
    else:
        wb, rb = np.split(low.constant_reals(3)[d], 2)
    if low.op.type == "GRU" and low.op.attr_int("linear_before_reset", 0):
        n = r.shape[1]
        return w, r, aligned_copy(np.concatenate([wb[: 2 * n] + rb[: 2 * n], wb[2 * n :]])), aligned_copy(rb[2 * n :])
    return w, r, aligned_copy(wb + rb), NO_F32


def _functions(low: Lowering, d: int, directions: int) -> tuple[Array, Array]:
    """Codes and parameters of the functions of direction ``d``."""
    own = gate_functions(low.op, directions)[d]
    values = [v for f in own for v in (f.alpha, f.beta)]
    return np.array([codes.UNARY[f.name] for f in own], np.int64), np.array(values, np.float32)
