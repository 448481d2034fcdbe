"""Recurrent layers: RNN, GRU and LSTM, one step after another, as ONNX's operators of these names. Sums are in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hetsched.graph import Op
from hetsched.reference.elementwise import Array, Function, Inputs, given, optional, sigmoid

Activation = Callable[[Array], Array]


def _relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


#: By ONNX's names in lower case, with the parameters (alpha, beta) that are taken where none are given.
_ACTIVATIONS: Mapping[str, tuple[Callable[[Array, float, float], Array], float, float]] = {
    "tanh": (lambda x, a, b: np.tanh(x), 0.0, 0.0),
    "sigmoid": (lambda x, a, b: sigmoid(x), 0.0, 0.0),
    "relu": (lambda x, a, b: _relu(x), 0.0, 0.0),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: np.where(x >= 0, x, a * x), 0.01, 0.0),
    "thresholdedrelu": (lambda x, a, b: np.where(x >= a, x, 0.0), 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0.0, 1.0), 0.2, 0.5),
    "elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0.0))), 1.0, 0.0),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), 0.0, 0.0),
    "softplus": (lambda x, a, b: np.logaddexp(x, 0.0), 0.0, 0.0),
}


@dataclass(frozen=True, slots=True)
class _Layer:
    """One direction: ``w`` ``[gates · hidden, inputs]``, ``r`` ``[gates · hidden, hidden]``, both biases, peepholes, activations."""

    w: Array
    r: Array
    wb: Array
    rb: Array
    peepholes: Array
    activations: list[Activation]
    clip: float
    linear_before_reset: bool
    input_forget: bool

    @property
    def hidden(self) -> int:
        return int(self.r.shape[1])

    def limited(self, x: Array) -> Array:
        """What an activation gets: ``clip`` bounds it where it is given."""
        return np.clip(x, -self.clip, self.clip) if self.clip else x

    def gates(self, x: Array, h: Array) -> list[Array]:
        """``x · Wᵀ + h · Rᵀ + both biases``, cut into gates."""
        y = x @ self.w.T + h @ self.r.T + self.wb + self.rb
        return np.split(y, y.shape[-1] // self.hidden, -1)


def _rnn_step(p: _Layer, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    (i,) = p.gates(x, h)
    return p.activations[0](p.limited(i)), c


def _gru_step(p: _Layer, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    """Gates in the order z (update), r (reset), h (hidden)."""
    f, g = p.activations[:2]
    n = p.hidden
    z, r, _ = p.gates(x, h)
    z, r = f(p.limited(z)), f(p.limited(r))
    from_x = x @ p.w[2 * n :].T + p.wb[2 * n :]
    weights, bias = p.r[2 * n :].T, p.rb[2 * n :]
    from_h = r * (h @ weights + bias) if p.linear_before_reset else (r * h) @ weights + bias
    return (1 - z) * g(p.limited(from_x + from_h)) + z * h, c


def _lstm_step(p: _Layer, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    """Gates in the order i, o, f, c; peepholes in the order i, o, f."""
    f, g, out = p.activations[:3]
    pi, po, pf = np.split(p.peepholes, 3)
    i, o, forget, cell = p.gates(x, h)
    i = f(p.limited(i + pi * c))
    forget = 1 - i if p.input_forget else f(p.limited(forget + pf * c))
    c = forget * c + i * g(p.limited(cell))
    o = f(p.limited(o + po * c))
    return o * out(c), c


@dataclass(frozen=True, slots=True)
class _Kind:
    gates: int
    activations: tuple[str, ...]
    step: Callable[[_Layer, Array, Array, Array], tuple[Array, Array]]


_KINDS = {
    "RNN": _Kind(1, ("Tanh",), _rnn_step),
    "GRU": _Kind(3, ("Sigmoid", "Tanh"), _gru_step),
    "LSTM": _Kind(4, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
}


def _floats(op: Op, name: str) -> list[float]:
    values = op.attrs.get(name, ())
    return [float(v) for v in values] if isinstance(values, tuple) else []


def _activations(op: Op, kind: _Kind, direction: int, count: int) -> list[Activation]:
    """The functions of one direction; parameters are listed for those functions that take them, in their order."""
    given_names = op.attrs.get("activations", ())
    names = [str(n) for n in given_names] if isinstance(given_names, tuple) else []
    names = names or list(kind.activations * count)
    alphas, betas = _floats(op, "activation_alpha"), _floats(op, "activation_beta")
    made: list[Activation] = []
    for name in names:
        function, alpha, beta = _ACTIVATIONS[name.lower()]
        if alpha and alphas:
            alpha = alphas.pop(0)
        if beta and betas:
            beta = betas.pop(0)
        made.append(lambda x, f=function, a=alpha, b=beta: np.asarray(f(x, a, b)))  # type: ignore[misc]
    per = len(kind.activations)
    return made[direction * per : (direction + 1) * per]


def _layer(op: Op, kind: _Kind, x: Inputs, direction: int) -> _Layer:
    w, r = (given(op, x, i)[direction].astype(np.float64) for i in (1, 2))
    b, p = optional(x, 3), optional(x, 7)
    both = np.zeros(2 * len(w)) if b is None else b[direction].astype(np.float64)
    peepholes = np.zeros(3 * r.shape[1]) if p is None else p[direction].astype(np.float64)
    return _Layer(
        w, r, both[: len(w)], both[len(w) :], peepholes, _activations(op, kind, direction, len(given(op, x, 1))),
        op.attr_float("clip", 0.0),
        bool(op.attr_int("linear_before_reset", 0)), bool(op.attr_int("input_forget", 0)),
    )  # fmt: skip


def _one_direction(layer: _Layer, kind: _Kind, x: Array, lengths: Array, h: Array, c: Array, backwards: bool) -> tuple[Array, Array, Array]:
    """``[steps, batch, hidden]`` outputs, the last state and the last cell; steps beyond a sequence's length give zeros."""
    y = np.zeros((*x.shape[:2], layer.hidden))
    for b in range(x.shape[1]):
        steps = range(int(lengths[b]))
        for t in reversed(steps) if backwards else steps:
            h[b], c[b] = kind.step(layer, x[t, b], h[b], c[b])
            y[t, b] = h[b]
    return y, h, c


def _recurrent(op: Op, x: Inputs) -> list[Array]:
    """Every output: ``Y`` ``[steps, directions, batch, hidden]``, ``Y_h`` and (LSTM) ``Y_c`` ``[directions, batch, hidden]``.

    With ``layout`` 1 the batch comes first.
    """
    kind, data, first = _KINDS[op.type], given(op, x, 0), op.attr_int("layout", 0)
    steps = (np.swapaxes(data, 0, 1) if first else data).astype(np.float64)
    lengths = optional(x, 4)
    lengths = np.full(steps.shape[1], steps.shape[0]) if lengths is None else np.clip(lengths, 0, steps.shape[0])
    directions, way = len(given(op, x, 1)), op.attr_str("direction", "forward")
    hidden = given(op, x, 2).shape[-1]
    states = []
    for initial in (optional(x, 5), optional(x, 6) if op.type == "LSTM" else None):
        zeros = np.zeros((directions, steps.shape[1], hidden))
        states.append(zeros if initial is None else np.array(np.swapaxes(initial, 0, 1) if first else initial, np.float64))
    done = [
        _one_direction(_layer(op, kind, x, d), kind, steps, lengths, states[0][d], states[1][d], backwards=way == "reverse" or d == 1)
        for d in range(directions)
    ]
    y, h, c = (np.stack([part[k] for part in done], 1 if k == 0 else 0) for k in range(3))
    if first:
        y, h, c = np.transpose(y, (2, 0, 1, 3)), np.swapaxes(h, 0, 1), np.swapaxes(c, 0, 1)
    return [np.ascontiguousarray(v).astype(data.dtype) for v in (y, h, c)[: max(1, len(op.outputs))]]


OPS: dict[str, Function] = dict.fromkeys(_KINDS, _recurrent)
