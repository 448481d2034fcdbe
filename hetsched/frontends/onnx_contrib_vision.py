"""Convolutions, pooling and group normalisation of ``com.microsoft``; those on ``[N, H, W, C]`` get their transposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetsched.frontends.onnx_expansion import Expansion
from hetsched.graph import AttrValue

_OF_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "ceil_mode")
_ACTIVATIONS: dict[str, Sequence[str]] = {"Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}


def _attrs(e: Expansion) -> dict[str, AttrValue]:
    return {k: v for k, v in e.op.attrs.items() if k in _OF_CONV}


def _channels(e: Expansion, x: str, first: bool, out: str = "") -> str:
    """``x`` with its channels moved to axis 1, or back to the end."""
    rank = len(e.shape(x))
    perm = (0, rank - 1, *range(1, rank - 1)) if first else (0, *range(2, rank), 1)
    return e.add("Transpose", (x,), {"perm": perm}, out)


def activate(e: Expansion, x: str, kind: str, parameters: Sequence[float]) -> None:
    """Add the activation of a fused operator; it writes the node's output."""
    if kind == "Clip":
        low, high = (e.like(v, x, "bound") for v in (*parameters, 0.0, 0.0)[:2])
        e.add("Clip", (x, low, high), {}, e.output())
        return
    if kind not in _ACTIVATIONS:
        raise e.refuse(f"has the activation {kind!r}")
    attrs: dict[str, AttrValue] = dict(zip(_ACTIVATIONS[kind], parameters, strict=False))
    e.add(kind, (x,), attrs, e.output())


def _parameters(e: Expansion) -> tuple[float, ...]:
    given = e.op.attrs.get("activation_params", ())
    return tuple(float(v) for v in given) if isinstance(given, tuple) else ()


def _fused_conv(e: Expansion) -> None:
    """Conv, then the addition of ``Z``, then the activation."""
    kind = e.op.attr_str("activation", "")
    steps = 1 + e.has(3) + bool(kind)
    y = e.add("Conv", tuple(e.optional(i) for i in range(3)), _attrs(e), e.output() if steps == 1 else "")
    if e.has(3):
        y = e.add("Add", (y, e.input(3)), {}, "" if kind else e.output())
    if kind:
        activate(e, y, kind, _parameters(e))


def _nhwc_conv(e: Expansion) -> None:
    kind = e.op.attr_str("activation", "")
    x = _channels(e, e.input(0), True)
    y = e.add("Conv", (x, e.input(1), e.optional(2)), _attrs(e))
    if e.has(3):
        y = e.add("Add", (y, _channels(e, e.input(3), True)))
    y = _channels(e, y, False, "" if kind else e.output())
    if kind:
        activate(e, y, kind, _parameters(e))


def _nhwc_max_pool(e: Expansion) -> None:
    y = e.add("MaxPool", (_channels(e, e.input(0), True),), _attrs(e))
    _channels(e, y, False, e.output())


def _group_norm(e: Expansion) -> None:
    """Group normalisation with optional addition before and SiLU after it (SkipGroupNorm: ``X, gamma, beta, skip, bias``)."""
    x = e.input(0)
    if e.op.type == "SkipGroupNorm":
        if e.has(4):
            x = e.add("Add", (x, e.input(4)))
        skip = e.input(3)
        if len(e.shape(skip)) == 2:
            skip = e.reshape(skip, e.shape(skip)[0], 1, 1, e.shape(skip)[1])
        x = e.add("Add", (x, skip), {}, e.output(1))
    last = bool(e.op.attr_int("channels_last", 1))
    attrs: dict[str, AttrValue] = {"num_groups": e.op.attr_int("groups", 1), "epsilon": e.op.attr_float("epsilon", 1e-5)}
    silu = bool(e.op.attr_int("activation", 0))
    inner = _channels(e, x, True) if last else x
    y = e.output() if not silu and not last else e.fresh("norm")
    e.trace.step(e.standard("GroupNormalization", (inner, e.input(1), e.input(2)), (y,), attrs))
    if last:
        y = _channels(e, y, False, "" if silu else e.output())
    if silu:
        e.trace.step(e.standard("Swish", (y,), (e.output(),), {}))


VISION: dict[str, Callable[[Expansion], None]] = {
    "FusedConv": _fused_conv,
    "NhwcConv": _nhwc_conv,
    "NhwcFusedConv": _nhwc_conv,
    "NhwcMaxPool": _nhwc_max_pool,
    "GroupNorm": _group_norm,
    "SkipGroupNorm": _group_norm,
}
