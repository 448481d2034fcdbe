"""Activations and other one-input functions applied in place to a run of float32.

In place, because a loop with one array vectorises without an overlap check; callers copy first where they need to.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from hetsched_kernels import codes as c
from hetsched_kernels import functions as f
from hetsched_kernels.compilation import block
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, carray
from hetsched_kernels.wide import full_width

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_SIXTH = np.float32(1.0 / 6.0)
_HALF = np.float32(0.5)


@external(F32P, types.int64, types.int64, types.float32, types.float32)
def ACTIVATE(pointer: Any, n: Any, code: Any, alpha: Any, beta: Any) -> None:  # noqa: N802 - an object, called through activate
    """Apply the activation ``code`` (``codes.ACTIVATION``) to ``n`` elements, in place."""
    full_width()
    x = carray(pointer, (n,))
    if code == c.RELU:
        for i in range(n):
            x[i] = _ZERO if x[i] < _ZERO else x[i]
    elif code == c.CLIP:
        for i in range(n):
            x[i] = f.clip(x[i], alpha, beta)
    elif code == c.HARD_SWISH:
        for i in range(n):
            x[i] = x[i] * f.clip(x[i] * _SIXTH + _HALF, _ZERO, _ONE)
    elif code == c.HARD_SIGMOID:
        for i in range(n):
            x[i] = f.clip(x[i] * alpha + beta, _ZERO, _ONE)
    elif code == c.SIGMOID:
        for i in range(n):
            x[i] = f.sigmoid(x[i])
    elif code == c.LEAKY_RELU:
        for i in range(n):
            x[i] = x[i] * alpha if x[i] < _ZERO else x[i]
    elif code == c.GELU:
        for i in range(n):
            x[i] = f.gelu(x[i])
    elif code == c.GELU_TANH:
        for i in range(n):
            x[i] = f.gelu_tanh(x[i])
    elif code == c.SILU:
        for i in range(n):
            x[i] = x[i] * f.sigmoid(x[i])
    elif code == c.TANH:
        for i in range(n):
            x[i] = f.tanh(x[i])


_CALL = ACTIVATE.call


@block
def activate(x: Any, code: Any, alpha: Any, beta: Any) -> None:
    """Apply the activation ``code`` (``codes.ACTIVATION``) to every element of ``x``, in place; list ACTIVATE in ``needs``."""
    _CALL(x, x.shape[0], code, alpha, beta)


@block(inline=True)
def activate_at(pointer: Any, n: Any, code: Any, alpha: Any, beta: Any) -> None:
    """As :data:`activate`, on a pointer and a count."""
    _CALL(pointer, n, code, alpha, beta)


@block
def apply_unary(x: Any, code: Any, alpha: Any, beta: Any) -> None:
    """Apply the function ``code`` (``codes.UNARY``) to every element of ``x``, in place."""
    if code <= c.TANH:
        activate(x, code, alpha, beta)
    elif code <= c.RECIPROCAL:
        _arithmetic(x, code)
    else:
        _transcendental(x, code, alpha)


@block
def _arithmetic(x: Any, code: Any) -> None:
    full_width()
    n = x.shape[0]
    if code == c.ERF:
        for i in range(n):
            x[i] = f.erf(x[i])
    elif code == c.EXP:
        for i in range(n):
            x[i] = f.exp(x[i])
    elif code == c.LOG:
        for i in range(n):
            x[i] = f.log(x[i])
    elif code == c.SQRT:
        for i in range(n):
            x[i] = f.square_root(x[i])
    elif code == c.NEG:
        for i in range(n):
            x[i] = -x[i]
    elif code == c.ABS:
        for i in range(n):
            x[i] = f.absolute(x[i])
    elif code == c.RECIPROCAL:
        for i in range(n):
            x[i] = _ONE / x[i]


@block
def _transcendental(x: Any, code: Any, alpha: Any) -> None:
    full_width()
    n = x.shape[0]
    if code == c.ELU:
        for i in range(n):
            x[i] = alpha * (f.exp(x[i]) - _ONE) if x[i] < _ZERO else x[i]
    elif code == c.SOFTPLUS:
        for i in range(n):
            x[i] = f.softplus(x[i])
    elif code == c.MISH:
        for i in range(n):
            x[i] = x[i] * f.tanh(f.softplus(x[i]))
    elif code == c.SIN:
        for i in range(n):
            x[i] = math.sin(x[i])
    elif code == c.COS:
        for i in range(n):
            x[i] = math.cos(x[i])
    elif code == c.FLOOR:
        for i in range(n):
            x[i] = f.floor(x[i])
    elif code == c.CEIL:
        for i in range(n):
            x[i] = f.ceil(x[i])
    elif code == c.ROUND:
        for i in range(n):
            x[i] = f.round_even(x[i])
    elif code == c.SIGN:
        for i in range(n):
            v = x[i]
            x[i] = _ONE if v > _ZERO else (-_ONE if v < _ZERO else v)
