"""Standard ONNX operators of encoder layers: linear, layer normalisation, multi-head attention, feed-forward.

Activations are matrices with a row per position (``batch`` sequences, one after the other), so that every linear layer is
one ``Gemm``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hetsched.errors import OptionError, UnsupportedModelError
from hetsched.frontends.decoder_builder import GraphBuilder
from hetsched.frontends.decoder_weights import Naming, Weights

_MOST_ROWS = 1 << 24
_GELU = {"gelu": "none", "gelu_python": "none", "gelu_new": "tanh", "gelu_fast": "tanh", "gelu_pytorch_tanh": "tanh"}


def prefixed(*prefixes: str) -> Naming:
    """Naming where a role is a checkpoint's name without one of these prefixes; ``a|b`` are spellings of one role."""

    def names(role: str) -> tuple[str, ...]:
        return tuple(p + r for r in _spellings(role) for p in prefixes)

    return names


def _spellings(role: str) -> list[str]:
    """``x.{a|b}.weight`` as ``x.a.weight`` and ``x.b.weight``."""
    start, brace, rest = role.partition("{")
    if not brace:
        return [role]
    options, _, end = rest.partition("}")
    return [f"{start}{o}{tail}" for o in options.split("|") for tail in _spellings(end)]


@dataclass(frozen=True)
class Layers:
    """Builds layers of a model with ``batch`` sequences."""

    builder: GraphBuilder
    weights: Weights
    batch: int
    epsilon: float = 1e-12

    def linear(self, role: str, x: str, size: int, bias: bool = True) -> str:
        """Project rows to ``size`` elements."""
        weight = self.weights.get(f"{role}.weight", size, self.builder.shape(x)[-1])
        name = weight.name.removesuffix(".weight")
        return self.builder.linear(name, x, weight, self.weights.get(f"{role}.bias", size) if bias else None)

    def norm(self, role: str, x: str) -> str:
        """Layer normalisation of rows."""
        size = self.builder.shape(x)[-1]
        scale, shift = self.weights.get(f"{role}.weight", size), self.weights.get(f"{role}.bias", size)
        inputs = [x, self.builder.weight(scale), self.builder.weight(shift)]
        name = scale.name.removesuffix(".weight")
        return self.builder.emit("LayerNormalization", name, inputs, self.builder.shape(x), axis=-1, epsilon=self.epsilon)

    def activation(self, name: str, x: str, kind: str) -> str:
        """GELU or ReLU.

        Raises:
            UnsupportedModelError: ``kind`` is another.
        """
        if kind == "relu":
            return self.builder.unary("Relu", name, x)
        if kind not in _GELU:
            raise UnsupportedModelError(f"the activation {kind[:40]!r} of {name!r} is not supported")
        return self.builder.unary("Gelu", name, x, approximate=_GELU[kind])

    def add(self, name: str, a: str, b: str) -> str:
        """A residual sum."""
        return self.builder.binary("Add", name, a, b)

    def heads(self, name: str, x: str, heads: int, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
        """Rows ``[batch · n, heads · d]`` as ``[batch, heads, n, d]``, or permuted as ``perm`` says."""
        b = self.builder
        rows, width = b.shape(x)
        wide = b.reshape(f"{name}.heads", x, (self.batch, rows // self.batch, heads, width // heads))
        shape = tuple(b.shape(wide)[p] for p in perm)
        return b.emit("Transpose", f"{name}.transposed", [wide], shape, perm=perm)

    def keys(self, name: str, x: str, heads: int) -> str:
        """Keys, ready for the product: ``[batch, heads, d, n]``."""
        return self.heads(name, x, heads, (0, 2, 3, 1))

    def attend(self, name: str, q: str, k: str, v: str, mask: str = "") -> str:
        """``softmax(q k / √d + mask) v`` of ``[batch, heads, n, d]`` as rows."""
        b = self.builder
        batch, heads, n, d = b.shape(q)
        scores = b.emit("MatMul", f"{name}.scores", [q, k], (batch, heads, n, b.shape(k)[-1]))
        scores = b.binary("Mul", f"{name}.scaled", scores, b.scalar(f"{name}.scale", d**-0.5))
        scores = b.binary("Add", f"{name}.masked", scores, mask) if mask else scores
        y = b.emit("MatMul", f"{name}.mixed", [b.unary("Softmax", f"{name}.softmax", scores, axis=-1), v], (batch, heads, n, d))
        y = b.emit("Transpose", f"{name}.joined", [y], (batch, n, heads, d), perm=(0, 2, 1, 3))
        return b.reshape(f"{name}.rows", y, (batch * n, heads * d))

    def self_attention(self, name: str, x: str, roles: tuple[str, str, str, str], heads: int, mask: str = "", key_bias: bool = True) -> str:
        """Projections ``roles`` (q, k, v, output) and attention of every position to all."""
        size = self.builder.shape(x)[-1]
        q, v = self.linear(roles[0], x, size), self.linear(roles[2], x, size)
        k = self.linear(roles[1], x, size, key_bias)
        y = self.attend(name, self.heads(f"{name}.q", q, heads), self.keys(f"{name}.k", k, heads), self.heads(f"{name}.v", v, heads), mask)
        return self.linear(roles[3], y, size)

    def mlp(self, name: str, x: str, roles: tuple[str, str], inner: int, kind: str) -> str:
        """Two linear layers with an activation between."""
        h = self.activation(f"{name}.activation", self.linear(roles[0], x, inner), kind)
        return self.linear(roles[1], h, self.builder.shape(x)[-1])


def bound(dims: Mapping[str, int], allowed: Mapping[str, tuple[int, int]], model: str) -> dict[str, int]:
    """Values of ``allowed`` dims (name -> default, greatest).

    Raises:
        OptionError: another dim is given, or a value is out of range.
    """
    for name, value in dims.items():
        if name not in allowed:
            raise OptionError(f"the model {model!r} has no dim {name!r}; it has {', '.join(allowed)}")
        if not 1 <= value <= allowed[name][1]:
            raise OptionError(f"--dim {name}={value} is out of range: {name} may be from 1 to {allowed[name][1]} here")
    values = {name: dims.get(name, default) for name, (default, _) in allowed.items()}
    if math.prod(values.values()) > _MOST_ROWS:
        raise OptionError(f"the dims {values} of the model {model!r} make more than {_MOST_ROWS} rows: lower one")
    return values
