"""LSTM and GRU of an exported program, layer by layer as ONNX's operators.

PyTorch keeps the gates of an LSTM as input, forget, cell, output and those of a GRU as reset, update, new; ONNX wants input, output,
forget, cell, and update, reset, hidden. So the weights are put in another order, which copies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hetsched.frontends.torch_builder import Builder
from hetsched.graph import AttrValue, Role, Tensor, WeightRef

Lower = Callable[[Builder], None]
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
_MAX_COPIED = 1 << 26


def _gates(b: Builder, kind: str, names: Sequence[str], what: str) -> str:
    """Weights of one layer, a row for each direction, with the gates in ONNX's order; absent where one of them is."""
    tensors = [b.tensor(n) for n in names]
    order, rows = _ORDER[kind], tensors[0].shape[0]
    if any(t.shape != tensors[0].shape or t.data is None or t.is_packed for t in tensors) or rows % len(order):
        raise b.unsupported(f"its weights {list(names)[:2]} are computed, packed or of different shapes")
    shape = (len(tensors), *tensors[0].shape)
    name = b.fresh(f"{names[0]}/{what}")
    data = WeightRef()
    if all(t.data is not None and t.data.is_present for t in tensors):
        if len(tensors) * tensors[0].elements > _MAX_COPIED:
            raise b.unsupported(f"its weights have over {_MAX_COPIED} elements")
        parts = [np.split(t.numpy(), len(order)) for t in tensors]
        data = WeightRef(array=np.stack([np.concatenate([p[k] for k in order]) for p in parts]))
    b.tensors[name] = Tensor(name, shape, tensors[0].dtype, Role.WEIGHT, None, data)
    return name


def _biases(b: Builder, kind: str, inputs: Sequence[str], hidden: Sequence[str]) -> str:
    """Biases of input and hidden state, side by side."""
    parts = [_gates(b, kind, names, what) for names, what in ((inputs, "gates"), (hidden, "gates"))]
    return b.emit("Concat", parts, {"axis": 1}, what="biases")


def _initial(b: Builder, state: str, layer: int, directions: int) -> str:
    rows = [layer * directions, (layer + 1) * directions]
    return b.emit("Slice", (state, *(b.ints(n, [v]) for n, v in (("starts", rows[0]), ("ends", rows[1]), ("axes", 0)))), what="initial")


def _recurrent(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        if b.has("data") or not b.has("params"):
            raise b.unsupported("packed sequences are not supported")
        weights, layers, directions = b.tensors_of("params"), b.int_of("num_layers"), 2 if b.flag("bidirectional") else 1
        each = 4 if b.flag("has_biases", True) else 2
        if len(weights) != layers * directions * each:
            raise b.unsupported(f"it has {len(weights)} weights for {layers} layers (projections are not supported)")
        states = b.tensors_of("hx") if kind == "LSTM" else [b.tensor_of("hx")]
        x = b.transposed(b.tensor_of("input"), (1, 0, 2), what="time_first") if b.flag("batch_first") else b.tensor_of("input")
        last: list[list[str]] = [[] for _ in states]
        for layer in range(layers):
            rows = [weights[(layer * directions + d) * each :][:each] for d in range(directions)]
            x, ends = _layer(b, kind, x, rows, [_initial(b, s, layer, directions) for s in states])
            for k, end in enumerate(ends):
                last[k].append(end)
        b.alias(b.transposed(x, (1, 0, 2), what="batch_first") if b.flag("batch_first") else x)
        for k, parts in enumerate(last):
            b.alias(b.emit("Concat", parts, {"axis": 0}, what="last") if layers > 1 else parts[0], k + 1)

    return lower


def _layer(b: Builder, kind: str, x: str, rows: Sequence[Sequence[str]], initial: Sequence[str]) -> tuple[str, list[str]]:
    """One layer: its outputs ``[time, batch, directions * hidden]``, and its last states."""
    w, r = (_gates(b, kind, [row[k] for row in rows], "gates") for k in (0, 1))
    bias = _biases(b, kind, [row[2] for row in rows], [row[3] for row in rows]) if len(rows[0]) == 4 else ""
    hidden = b.shape(r)[-1]
    attrs: dict[str, AttrValue] = {"hidden_size": hidden, "direction": "bidirectional" if len(rows) == 2 else "forward"}
    if kind == "GRU":
        attrs["linear_before_reset"] = 1
    y, *ends = b.emit_many(kind, (x, w, r, bias, "", *initial), 1 + len(initial), attrs)
    time, directions, batch, _ = b.shape(y)
    if directions == 1:
        return b.emit("Squeeze", (y, b.ints("direction", [1])), what="outputs"), ends
    return b.reshape(b.transposed(y, (0, 2, 1, 3)), (time, batch, directions * hidden), what="outputs"), ends


LOWERINGS: dict[str, Lower] = {"lstm": _recurrent("LSTM"), "gru": _recurrent("GRU")}
