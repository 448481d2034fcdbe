"""Recurrent layers step after step: LSTM, GRU and the plain one, in float32.

What the inputs give is one product of all steps, made before (:data:`hetsched_kernels.gemm.gemm_f32`); here the state is
multiplied, the gates are applied, and the state goes on. Semantics and the order of gates are ONNX's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.activation import ACTIVATE
from hetsched_kernels.arrays import InF32, InI32, InI64, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.parts import onward, span
from hetsched_kernels.recurrent_state import (
    BATCH,
    HIDDEN,
    STEPS,
    X_ITEM,
    X_STEP,
    apply_gate,
    begin,
    finish,
    parts_of,
    pass_over,
    state_product,
    step_of,
    write_step,
)
from hetsched_kernels.tile_f32 import tile_f32
from hetsched_kernels.wide import full_width

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@block
def _add(x: Any, y: Any) -> None:
    full_width()
    for i in range(x.shape[0]):
        x[i] += y[i]


@block
def _lstm_row(gates: Any, h: Any, c: Any, functions: Any, parameters: Any, limit: Any) -> None:
    """One sequence's step: gates i, o, f, c of its row become its new cell and state."""
    full_width()
    n = h.shape[0]
    i, o, forget, cell = span(gates, 0, n), span(gates, n, n), span(gates, 2 * n, n), span(gates, 3 * n, n)
    apply_gate(span(gates, 0, 3 * n), functions, parameters, 0, limit)
    apply_gate(cell, functions, parameters, 1, limit)
    for j in range(n):
        c[j] = forget[j] * c[j] + i[j] * cell[j]
    for j in range(n):
        i[j] = c[j]
    apply_gate(i, functions, parameters, 2, _ZERO)
    for j in range(n):
        h[j] = o[j] * i[j]


@kernel(needs=(tile_f32, ACTIVATE))
def lstm_f32(
    projected: InF32,
    r_packed: InF32,
    lengths: InI32,
    h_first: InF32,
    c_first: InF32,
    y: OutF32,
    h_last: OutF32,
    c_last: OutF32,
    scratch: OutF32,
    shape: InI64,
    functions: InI64,
    parameters: InF32,
    limit: float,
) -> None:
    """One direction of an LSTM (gates in the order i, o, f, c; no peepholes).

    Args:
        projected: [steps · batch · 4 · hidden] (or batch first): x · Wᵀ + both biases.
        r_packed: :func:`hetsched_kernels.gemm.pack_b_f32` of Rᵀ [hidden, 4 · hidden].
        lengths: int32 [batch], or empty where all have every step.
        h_first: states before, or empty for zeros.
        c_first: cells before, or empty.
        y: every step's state, or empty where it is not wanted.
        h_last: the last states, or empty.
        c_last: the last cells, or empty.
        scratch: float32 [:func:`hetsched_kernels.recurrent_state.recurrent_scratch`].
        shape: :func:`hetsched_kernels.recurrent_state.recurrent_shape`.
        functions: int64 [3], ``codes.UNARY`` of gates, cell and state.
        parameters: float32 [6], alpha and beta of each.
        limit: bound on what gates and cell functions get; 0 for none.
    """
    steps, batch, n = shape[STEPS], shape[BATCH], shape[HIDDEN]
    table, spare, h, c, gates = parts_of(scratch, shape)
    begin(h, h_first, shape)
    begin(c, c_first, shape)
    for s in range(steps):
        state_product(h, n, r_packed, 4 * n, gates, 4 * n, batch, table, spare)
        for b in range(batch):
            t = step_of(lengths, shape, b, s)
            if t < 0:
                pass_over(y, shape, b, s)
                continue
            row, state = span(gates, b * 4 * n, 4 * n), span(h, b * n, n)
            _add(row, span(projected, (t * shape[X_STEP] + b * shape[X_ITEM]) * 4 * n, 4 * n))
            _lstm_row(row, state, span(c, b * n, n), functions, parameters, limit)
            write_step(state, y, shape, b, t)
    finish(h, h_last, shape)
    finish(c, c_last, shape)


@block
def _gru_gates(row: Any, h: Any, reset: Any, bias: Any, functions: Any, parameters: Any, limit: Any) -> None:
    """Update and reset gates of a row; ``reset`` = r · h where the product of the hidden gate comes after it."""
    n = h.shape[0]
    apply_gate(span(row, 0, 2 * n), functions, parameters, 0, limit)
    if bias.shape[0] == 0:
        for j in range(n):
            reset[j] = row[n + j] * h[j]


@block
def _gru_state(row: Any, h: Any, given: Any, bias: Any, functions: Any, parameters: Any, limit: Any) -> None:
    """The new state from gates z, r and the hidden gate's product, which the reset gate scales where it came before."""
    full_width()
    n = h.shape[0]
    z, r, hidden = span(row, 0, n), span(row, n, n), span(row, 2 * n, n)
    if bias.shape[0] > 0:
        for j in range(n):
            hidden[j] = r[j] * (hidden[j] + bias[j])
    _add(hidden, given)
    apply_gate(hidden, functions, parameters, 1, limit)
    for j in range(n):
        h[j] = (_ONE - z[j]) * hidden[j] + z[j] * h[j]


@kernel(needs=(tile_f32, ACTIVATE))
def gru_f32(
    projected: InF32,
    gates_packed: InF32,
    hidden_packed: InF32,
    hidden_bias: InF32,
    lengths: InI32,
    h_first: InF32,
    y: OutF32,
    h_last: OutF32,
    scratch: OutF32,
    shape: InI64,
    functions: InI64,
    parameters: InF32,
    limit: float,
) -> None:
    """One direction of a GRU (gates in the order z, r, h); what is not named here as in :data:`lstm_f32`.

    Args:
        projected: [steps · batch · 3 · hidden]: x · Wᵀ + both biases, that of R's hidden gate only where ``hidden_bias`` is empty.
        gates_packed: packed Rᵀ of z and r [hidden, 2 · hidden].
        hidden_packed: packed Rᵀ of h [hidden, hidden].
        hidden_bias: [hidden] where the reset gate comes after the product (ONNX's linear_before_reset); empty where before.
        lengths: as there, like all that follow; two functions.
        h_first: states before.
        y: every step's state.
        h_last: the last states.
        scratch: float32 [:func:`hetsched_kernels.recurrent_state.recurrent_scratch`].
        shape: :func:`hetsched_kernels.recurrent_state.recurrent_shape`.
        functions: int64 [2].
        parameters: float32 [4].
        limit: bound on what the functions get.
    """
    batch, n = shape[BATCH], shape[HIDDEN]
    table, spare, h, reset, gates = parts_of(scratch, shape)
    begin(h, h_first, shape)
    for s in range(shape[STEPS]):
        state_product(h, n, gates_packed, 2 * n, gates, 3 * n, batch, table, spare)
        for b in range(batch):
            t = step_of(lengths, shape, b, s)
            row, own = span(gates, b * 3 * n, 3 * n), span(reset, b * n, n)
            if t < 0:
                for j in range(n):
                    own[j] = _ZERO
                continue
            _add(span(row, 0, 2 * n), span(projected, (t * shape[X_STEP] + b * shape[X_ITEM]) * 3 * n, 2 * n))
            _gru_gates(row, span(h, b * n, n), own, hidden_bias, functions, parameters, limit)
        before = h if hidden_bias.shape[0] > 0 else reset
        state_product(before, n, hidden_packed, n, onward(gates, 2 * n), 3 * n, batch, table, spare)
        for b in range(batch):
            t = step_of(lengths, shape, b, s)
            if t < 0:
                pass_over(y, shape, b, s)
                continue
            row, state = span(gates, b * 3 * n, 3 * n), span(h, b * n, n)
            given = span(projected, (t * shape[X_STEP] + b * shape[X_ITEM]) * 3 * n + 2 * n, n)
            _gru_state(row, state, given, hidden_bias, functions, parameters, limit)
            write_step(state, y, shape, b, t)
    finish(h, h_last, shape)


@kernel(needs=(tile_f32, ACTIVATE))
def rnn_f32(
    projected: InF32,
    r_packed: InF32,
    lengths: InI32,
    h_first: InF32,
    y: OutF32,
    h_last: OutF32,
    scratch: OutF32,
    shape: InI64,
    functions: InI64,
    parameters: InF32,
    limit: float,
) -> None:
    """One direction of a plain recurrent layer: h = f(x · Wᵀ + h · Rᵀ + biases); arguments as :data:`lstm_f32`, one function."""
    batch, n = shape[BATCH], shape[HIDDEN]
    table, spare, h, _, gates = parts_of(scratch, shape)
    begin(h, h_first, shape)
    for s in range(shape[STEPS]):
        state_product(h, n, r_packed, n, gates, n, batch, table, spare)
        for b in range(batch):
            t = step_of(lengths, shape, b, s)
            if t < 0:
                pass_over(y, shape, b, s)
                continue
            row, state = span(gates, b * n, n), span(h, b * n, n)
            _add(row, span(projected, (t * shape[X_STEP] + b * shape[X_ITEM]) * n, n))
            apply_gate(row, functions, parameters, 0, limit)
            for j in range(n):
                state[j] = row[j]
            write_step(state, y, shape, b, t)
    finish(h, h_last, shape)
