"""Recurrent operators and variables: what a model remembers from one run to the next.

A variable is a pair of tensors of the role *state*: an input with its value before the run, and an output with its value
after it. Runs start with zeros (of a quantized state: its zero point), as in TFLite.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hetsched.frontends.tflite_builder import Builder, Value
from hetsched.frontends.tflite_model import Operator
from hetsched.frontends.tflite_opaque import opaque
from hetsched.graph import AttrValue

Lower = Callable[[Builder], None]

# Inputs of UNIDIRECTIONAL_SEQUENCE_LSTM: the gates come as input, forget, cell, output; ONNX wants input, output, forget, cell.
_X, _WEIGHTS, _RECURRENT, _PEEPHOLES, _BIASES, _PROJECTION, _HIDDEN, _CELL, _NORMS = 0, 1, 5, 9, 12, 16, 18, 19, 20
_GATES = (0, 3, 1, 2)


def variable_name(operator: Operator, otherwise: str) -> str:
    """The name of the variable that a VAR_HANDLE is of: one name in all subgraphs."""
    names = [str(operator.options.get(k, "")) for k in ("container", "shared_name")]
    return "/".join(n for n in names if n) or otherwise


def _var_handle(b: Builder) -> None:
    b.handles[b.result().index] = variable_name(b.op, b.result().name)


def _variable(b: Builder) -> str:
    stored = b.stored(0)
    if stored.index not in b.handles:
        raise b.bad(f"its input {stored.name!r} is not a variable")
    return b.handles[stored.index]


def _read_variable(b: Builder) -> None:
    name, stored = _variable(b), b.result()
    value = b.written.get(name) or b.state(name, stored)
    b.define(stored, b.same_meaning(value.name, stored), value.order)


def _assign_variable(b: Builder) -> None:
    b.written[_variable(b)] = b.value(1)


def _lstm(b: Builder) -> None:
    reason = _why_not_onnx(b)
    if reason:
        opaque(b, reason)
        return
    time_major = b.op.type == "UNIDIRECTIONAL_SEQUENCE_LSTM" and b.option("time_major")
    if b.rank(_RECURRENT) != 2:
        raise b.bad("its recurrent weights are no matrix")
    shape, hidden = b.shape(_X), b.shape(_RECURRENT)[0]
    if len(shape) != 3 or b.shape(_WEIGHTS) != (hidden, shape[2]) or b.shape(_RECURRENT) != (hidden, hidden):
        raise b.bad(f"its weights {list(b.shape(_WEIGHTS))} and {list(b.shape(_RECURRENT))} do not fit its input {list(shape)}")
    order = (0, 1, 2) if time_major else (1, 0, 2)
    batch = shape[order[1]]
    inputs = [b.real(b.value(_X), order), _gates(b, _WEIGHTS, "W", (1, 4 * hidden, shape[2]))]
    inputs += [_gates(b, _RECURRENT, "R", (1, 4 * hidden, hidden)), _bias(b, hidden), ""]
    inputs += [b.reshaped(b.raw(b.value(slot)), (1, batch, hidden), f"initial{slot}") for slot in (_HIDDEN, _CELL)]
    attrs: dict[str, AttrValue] = {"hidden_size": hidden}
    y, last, cell = b.emit_many("LSTM", inputs, 3, attrs)
    b.write_reshaped(y, (shape[order[0]], batch, hidden), order=order)
    for slot, value in ((_HIDDEN, last), (_CELL, cell)):
        stored = b.stored(slot)
        if stored.is_variable:
            b.written[stored.name] = Value(b.reshaped(value, (batch, hidden), f"final{slot}"), (0, 1))


def _why_not_onnx(b: Builder) -> str:
    """Why this LSTM is not one that ONNX's LSTM can say; empty if it is.

    The clipping of the cell at 10 that converters write for every Keras layer, which itself clips nothing, is left out.
    """
    if b.op.type == "LSTM":
        return "ONNX has no LSTM of one step with this set of inputs"
    if any(b.tensors[b.value(s).name].dtype.value != "f32" for s in range(len(b.op.inputs)) if b.has(s)):
        return "an integer LSTM keeps its gates in 16 bits and its cell in a power of two, which ONNX's LSTM has not"
    if not all(b.has(s) for s in (*range(_WEIGHTS, _PEEPHOLES), *range(_BIASES, _PROJECTION))):
        return "it couples the input gate to the forget gate, where ONNX's LSTM couples them the other way"
    if any(b.has(s) for s in (*range(_PEEPHOLES, _BIASES), _PROJECTION, _PROJECTION + 1, *range(_NORMS, _NORMS + 4))):
        return "it has peepholes, a projection or layer normalisation"
    if b.option("activation") != 4 or b.option_float("cell_clip") not in (0.0, 10.0) or b.option("diagonal"):
        return "its activation is not tanh, or its cell is clipped"
    return ""


def _gates(b: Builder, first: int, what: str, shape: tuple[int, ...]) -> str:
    rows = [b.raw(b.value(first + gate)) for gate in _GATES]
    return b.reshaped(b.emit("Concat", rows, f"{what}_rows", {"axis": 0}), shape, what)


def _bias(b: Builder, hidden: int) -> str:
    """ONNX adds a bias of the input and one of the recurrence; TFLite has the first only."""
    zero = b.constant("no_bias", np.zeros(4 * hidden, np.float32))
    rows = [b.raw(b.value(_BIASES + gate)) for gate in _GATES]
    return b.reshaped(b.emit("Concat", (*rows, zero), "B_rows", {"axis": 0}), (1, 8 * hidden), "B")


def _svdf(b: Builder) -> None:
    """A rank-decomposed convolution over time (https://research.google/pubs/pub43813/).

    The state holds the last ``m`` values of every filter; the oldest leaves, the newest is ``x @ feature^T``, and the output is
    their sum weighted by ``time``, over the ``rank`` filters of every unit.
    """
    rank = b.option("rank")
    if any(b.rank(slot) != 2 for slot in (0, 1, 2, 4)):
        raise b.bad("its input, weights and state are not all matrices")
    (filters, depth), (batch, width) = b.shape(1), b.shape(0)
    memory = b.shape(2)[1]
    state = b.value(4)
    if rank < 1 or filters % rank or width != depth or b.shape(2) != (filters, memory) or b.shape(4) != (batch, filters * memory):
        raise b.bad(f"its weights {[filters, depth]} and {list(b.shape(2))}, its state {list(b.shape(4))} and its rank {rank} do not fit")
    old = b.reshaped(state.name, (batch, filters, memory), "memory")
    cut = (b.ints("starts", [1]), b.ints("ends", [memory]), b.ints("axes", [2]))
    kept = b.keep_meaning(b.emit("Slice", (old, *cut), "kept"), state.name)
    newest = b.emit("Gemm", (b.real(b.value(0)), b.real(b.value(1))), "feature", {"transB": 1})
    newest = b.reshaped(b.quantized_like(newest, state.name, "newest"), (batch, filters, 1), "column")
    joined = b.keep_meaning(b.emit("Concat", (kept, newest), "joined", {"axis": 2}), state.name)
    b.written[b.stored(4).name] = Value(b.reshaped(joined, (batch, filters * memory), "final"), (0, 1))
    weighted = b.emit("Mul", (b.dequantized(joined), b.real(b.value(2))), "weighted")
    last: tuple[str, ...] = (b.emit("ReduceSum", (weighted, b.ints("over", [2])), "filters", {"keepdims": 0}),)
    if rank > 1:
        rows = b.reshaped(last[0], (batch, filters // rank, rank), "ranks")
        last = (b.emit("ReduceSum", (rows, b.ints("over", [2])), "units", {"keepdims": 0}),)
    if b.has(3):
        b.write("Add", (*last, b.real(b.value(3))), activation=b.activation)
    else:
        b.write("Identity", last, activation=b.activation)


LOWERINGS: dict[str, Lower] = {
    "VAR_HANDLE": _var_handle,
    "READ_VARIABLE": _read_variable,
    "ASSIGN_VARIABLE": _assign_variable,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "LSTM": _lstm,
    "SVDF": _svdf,
}
