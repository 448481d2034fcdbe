"""Layers of classic neural networks with weights or windows: convolution, pooling, inner product."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetsched.frontends.coreml_layer_builder import LayerBuilder
from hetsched.frontends.coreml_matrix import same_pads
from hetsched.frontends.coreml_wire import Message
from hetsched.graph import AttrValue

Lower = Callable[[LayerBuilder, Message], None]
MAX_WINDOW = 1 << 20


def _sizes(b: LayerBuilder, p: Message, name: str, default: int) -> list[int]:
    values = p.integers(name) or [default] * 2
    if len(values) != 2 or any(not 0 < v < MAX_WINDOW for v in values):
        raise b.bad(f"its {name} is {values[:8]}")
    return values


def borders(b: LayerBuilder, amounts: Message) -> list[int]:
    """Begins and ends of height and width."""
    rows = [(e.integer("startEdgeSize"), e.integer("endEdgeSize")) for e in amounts.messages("borderAmounts")] or [(0, 0)] * 2
    if len(rows) != 2 or any(not 0 <= v < MAX_WINDOW for row in rows for v in row):
        raise b.bad(f"its borders are {rows[:8]}")
    return [rows[0][0], rows[1][0], rows[0][1], rows[1][1]]


def _pads(
    b: LayerBuilder, p: Message, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    if p.has("same"):
        return same_pads(size, kernel, strides, dilations, p.message("same").integer("asymmetryMode") == 1)
    return borders(b, p.message("valid").message("paddingAmounts"))


def _convolution(b: LayerBuilder, p: Message) -> None:
    x = b.image()
    kernel, strides, dilations = (_sizes(b, p, n, d) for n, d in (("kernelSize", 3), ("stride", 1), ("dilationFactor", 1)))
    group, outs, ins = p.integer("nGroups") or 1, p.integer("outputChannels"), p.integer("kernelChannels")
    turned = p.flag("isDeconvolution")
    shape = (ins, outs // max(group, 1), *kernel) if turned else (outs, ins, *kernel)
    inputs = [x, b.weights(p.message("weights"), "weights", shape)]
    if p.flag("hasBias"):
        inputs.append(b.weights(p.message("bias"), "bias", (outs,)))
    size = b.shape(x)[2:]
    attrs: dict[str, AttrValue] = {
        "kernel_shape": tuple(kernel), "strides": tuple(strides), "dilations": tuple(dilations), "group": group,
    }  # fmt: skip
    if not turned:
        attrs["pads"] = tuple(_pads(b, p, size, kernel, strides, dilations))
        b.give("Conv", inputs, attrs)
        return
    wanted = p.integers("outputShape") or ([n * s for n, s in zip(size, strides, strict=True)] if p.has("same") else [])
    if wanted:
        full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(size, strides, kernel, dilations, strict=True)]
        total = [f - w for f, w in zip(full, wanted, strict=True)]
        begins = [max(t, 0) // 2 for t in total]
        attrs["pads"] = (*begins, *(max(t, 0) - n for t, n in zip(total, begins, strict=True)))
        attrs["output_padding"] = tuple(max(-t, 0) for t in total)
    else:
        attrs["pads"] = tuple(borders(b, p.message("valid").message("paddingAmounts")))
    b.give("ConvTranspose", inputs, attrs)


def _pooling(b: LayerBuilder, p: Message) -> None:
    x, kind = b.image(), {0: "MaxPool", 1: "AveragePool"}.get(p.integer("type"))
    if kind is None:
        raise b.unsupported("L2 pooling is not supported")
    if p.flag("globalPooling"):
        b.give(f"Global{kind}", (x,))
        return
    kernel, strides = _sizes(b, p, "kernelSize", 3), _sizes(b, p, "stride", 1)
    last = p.has("includeLastPixel")
    pads = (
        (p.message("includeLastPixel").integers("paddingAmounts") or [0, 0]) * 2
        if last
        else _pads(b, p, b.shape(x)[2:], kernel, strides, [1, 1])
    )
    attrs: dict[str, AttrValue] = {"kernel_shape": tuple(kernel), "strides": tuple(strides), "pads": tuple(pads), "ceil_mode": int(last)}
    if kind == "AveragePool":
        attrs["count_include_pad"] = int(not p.flag("avgPoolExcludePadding"))
    b.give(kind, (x,), attrs)


def _inner_product(b: LayerBuilder, p: Message) -> None:
    ins, outs = p.integer("inputChannels"), p.integer("outputChannels")
    x = b.rows()
    inputs = [x, b.weights(p.message("weights"), "weights", (outs, ins))]
    if p.flag("hasBias"):
        inputs.append(b.weights(p.message("bias"), "bias", (outs,)))
    shape = b.shape(x)
    if not shape or shape[-1] != ins:
        raise b.bad(f"its weights take {ins} values, and its input has the shape {list(shape)}")
    rows = x if len(shape) == 2 else b.reshape(x, (-1, ins), what="flat")
    y = b.emit("Gemm", (rows, *inputs[1:]), {"transB": 1}, what="product")
    b.give_rows(y if len(shape) == 2 else b.reshape(y, (*shape[:-1], outs), what="result"))


LOWERINGS: dict[str, Lower] = {"convolution": _convolution, "pooling": _pooling, "innerProduct": _inner_product}
