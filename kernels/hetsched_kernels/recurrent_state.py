"""What recurrent layers share: how their tensors lie, the product with the state, and what begins, writes and ends a sequence."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hetsched_kernels.activation import apply_unary
from hetsched_kernels.arrays import Array
from hetsched_kernels.compilation import block
from hetsched_kernels.functions import clip
from hetsched_kernels.parts import as_i64, onward, ptr, span
from hetsched_kernels.tile import COLS, ROWS, TILE
from hetsched_kernels.tile_f32 import NO_BIAS, tile_f32

_TILE_CALL = tile_f32.call
_INF, _ZERO = np.float32(np.inf), np.float32(0.0)
#: Positions in :func:`recurrent_shape`'s result.
STEPS, BATCH, HIDDEN, X_STEP, X_ITEM, Y_STEP, Y_ITEM, STATE, BACKWARDS = range(9)
#: Gates of each kind of layer.
GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent_shape(steps: int, batch: int, hidden: int, directions: int, backwards: bool, batch_first: bool = False) -> Array:
    """The int64 descriptor of one direction of a layer: sizes, and strides in rows (inputs) or elements (results, states).

    Args:
        steps: steps of the longest sequence.
        batch: sequences.
        hidden: size of a state.
        directions: directions that the results hold side by side.
        backwards: from the last step to the first.
        batch_first: the batch is the first dimension of everything (ONNX's layout 1), rather than the steps.
    """
    wide = directions * hidden
    if batch_first:
        return np.array([steps, batch, hidden, 1, steps, wide, steps * wide, wide, backwards], np.int64)
    return np.array([steps, batch, hidden, batch, 1, batch * wide, hidden, hidden, backwards], np.int64)


def recurrent_scratch(kind: str, shape: Array) -> int:
    """Float32 elements of scratch that the kernel of ``kind`` (a key of :data:`GATES`) wants."""
    batch, hidden = int(shape[BATCH]), int(shape[HIDDEN])
    return batch * hidden * (GATES[kind] + 2) + 2 * hidden + TILE


@block
def state_product(x: Any, depth: Any, packed: Any, n: Any, out: Any, stride: Any, rows: Any, table: Any, spare: Any) -> None:
    """Out [rows, n] = x [rows, depth] · packed."""
    for c0 in range(0, n, COLS):
        panel, cols = ptr(packed, c0 * depth), min(COLS, n - c0)
        for r0 in range(0, rows, ROWS):
            _TILE_CALL(
                ptr(x, r0 * depth), depth, 1, panel, table, depth, ptr(out, r0 * stride + c0), stride, spare, NO_BIAS, -_INF, _INF,
                min(ROWS, rows - r0), cols, spare,
            )  # fmt: skip


@block
def parts_of(scratch: Any, shape: Any) -> Any:
    """The tile's table and spare room, the states, and what follows."""
    hidden, size = shape[HIDDEN], shape[BATCH] * shape[HIDDEN]
    table = as_i64(scratch, 0, 2 * hidden)
    for i in range(hidden):
        table[i] = i * COLS
    rest = onward(scratch, 2 * hidden)
    return table, span(rest, 0, TILE), span(rest, TILE, size), span(rest, TILE + size, size), onward(rest, TILE + 2 * size)


@block
def begin(state: Any, initial: Any, shape: Any) -> None:
    """The state before the first step: zeros where none is given."""
    hidden = shape[HIDDEN]
    for b in range(shape[BATCH]):
        row = span(state, b * hidden, hidden)
        if initial.shape[0] == 0:
            for i in range(hidden):
                row[i] = _ZERO
        else:
            source = span(initial, b * shape[STATE], hidden)
            for i in range(hidden):
                row[i] = source[i]


@block
def finish(state: Any, out: Any, shape: Any) -> None:
    """The last states, where they are wanted."""
    hidden = shape[HIDDEN]
    if out.shape[0] > 0:
        for b in range(shape[BATCH]):
            row, source = span(out, b * shape[STATE], hidden), span(state, b * hidden, hidden)
            for i in range(hidden):
                row[i] = source[i]


@block
def step_of(lengths: Any, shape: Any, b: Any, s: Any) -> Any:
    """Which step of sequence ``b`` comes as the ``s``-th; -1 after its end."""
    length = shape[STEPS]
    if lengths.shape[0] > 0:
        length = min(max(np.int64(lengths[b]), 0), length)
    if s >= length:
        return -1
    return length - 1 - s if shape[BACKWARDS] else s


@block
def write_step(state: Any, out: Any, shape: Any, b: Any, t: Any) -> None:
    """A step's result, where all steps are wanted."""
    if out.shape[0] > 0:
        row = span(out, t * shape[Y_STEP] + b * shape[Y_ITEM], state.shape[0])
        for i in range(state.shape[0]):
            row[i] = state[i]


@block
def pass_over(out: Any, shape: Any, b: Any, s: Any) -> None:
    """Steps after a sequence's end give zeros."""
    if out.shape[0] > 0:
        row = span(out, s * shape[Y_STEP] + b * shape[Y_ITEM], shape[HIDDEN])
        for i in range(row.shape[0]):
            row[i] = _ZERO


@block
def apply_gate(x: Any, functions: Any, parameters: Any, which: Any, limit: Any) -> None:
    """Activation ``which`` of a run, in place; ``limit`` bounds what it gets, where positive."""
    if limit > _ZERO:
        for i in range(x.shape[0]):
            x[i] = clip(x[i], -limit, limit)
    apply_unary(x, functions[which], parameters[2 * which], parameters[2 * which + 1])
