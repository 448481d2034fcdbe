"""A Mamba layer: causal convolution and selective scan, whose states do not grow with the context.

The block is that of Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), figure 3.
"""

from __future__ import annotations

from hetsched.frontends.decoder_architecture import StateSpace
from hetsched.frontends.decoder_attention import Layer
from hetsched.graph import DType, Role, Tensor


def mamba(layer: Layer, x: str, ssm: StateSpace) -> str:
    """The mixer of a Mamba layer; rows in, rows out."""
    b, hidden = layer.builder, layer.builder.shape(x)[-1]
    inner, z = b.split(f"{layer.name}.split_in", layer.linear("ssm_in", x, 2 * ssm.inner), (ssm.inner, ssm.inner))
    inner = b.unary("Silu", f"{layer.name}.conv_silu", _convolution(layer, inner, ssm))
    parts = (ssm.rank, ssm.state, ssm.state)
    low, to_state, from_state = b.split(f"{layer.name}.split_x", layer.linear("ssm_x", inner, sum(parts)), parts)
    step = layer.linear("ssm_dt", low, ssm.inner, has_bias=True)
    y = _scan(layer, inner, step, to_state, from_state, ssm)
    gated = b.binary("Mul", f"{layer.name}.gated", y, b.unary("Silu", f"{layer.name}.gate", z))
    return layer.linear("ssm_out", gated, hidden)


def _convolution(layer: Layer, x: str, ssm: StateSpace) -> str:
    b = layer.builder
    weight = b.weight(layer.weight("ssm_conv1d", ssm.inner, ssm.kernel))
    bias = b.weight(layer.bias("ssm_conv1d", ssm.inner, expected=True))
    shape = (layer.phase.batch, ssm.inner, ssm.kernel - 1)
    return _stateful(layer, "CausalConv", f"{layer.name}.conv", [x, weight, bias], "conv", shape, {})


def _scan(layer: Layer, x: str, step: str, to_state: str, from_state: str, ssm: StateSpace) -> str:
    b, role = layer.builder, f"blk.{layer.index}"
    a = b.weight(layer.weights.get(f"{role}.ssm_a", ssm.inner, ssm.state))
    skip = b.weight(layer.weights.get(f"{role}.ssm_d", ssm.inner))
    shape = (layer.phase.batch, ssm.inner, ssm.state)
    attrs = {"state_size": ssm.state, "logarithmic": int(ssm.logarithmic)}
    return _stateful(layer, "SelectiveScan", f"{layer.name}.scan", [x, step, a, to_state, from_state, skip], "scan", shape, attrs)


def _stateful(layer: Layer, kind: str, name: str, inputs: list[str], state: str, shape: tuple[int, ...], attrs: dict[str, int]) -> str:
    """An operator whose last input and second output are a state of a fixed shape."""
    b = layer.builder
    before = f"past.{layer.index}.{state}" if layer.phase.past else ""
    if before:
        b.input(before, shape, DType.F32, Role.STATE)
    after = Tensor(f"present.{layer.index}.{state}", shape, DType.F32, Role.STATE)
    outputs = [Tensor(name, b.shape(inputs[0]), DType.F32), after]
    y, written = b.emit_many(kind, name, [*inputs, before], outputs, {**attrs, "batch": layer.phase.batch})
    b.state(written, before)
    return y
