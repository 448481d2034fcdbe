"""Convolutions, matrix products and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetsched.frontends.tflite_builder import NCHW, Builder, Order
from hetsched.graph import AttrValue

Lower = Callable[[Builder], None]
_SAME, _VALID = 0, 1
_MAX_WINDOW = 1 << 20


def same_padding(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Padding before and after an axis with which the output has ``ceil(size / stride)`` elements; the odd one comes after."""
    total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def _window(b: Builder, size: Sequence[int], kernel: Sequence[int], before: Sequence[tuple[int, int]]) -> dict[str, AttrValue]:
    """Strides, dilations and padding of a window over (height, width); ``before``: padding that an own operator does."""
    strides = (b.option("stride_h"), b.option("stride_w"))
    dilations = (b.option("dilation_h"), b.option("dilation_w")) if "dilation_h" in b.op.options else (1, 1)
    if any(not 0 < v < _MAX_WINDOW for v in (*strides, *dilations, *kernel)):
        raise b.bad(f"its kernel is {list(kernel)}, its strides are {list(strides)} and its dilations {list(dilations)}")
    pads = list(before)
    if b.option("padding") == _SAME:
        pads = [same_padding(*row) for row in zip(size, kernel, strides, dilations, strict=True)]
    elif b.option("padding") != _VALID:
        raise b.bad(f"its padding is number {b.option('padding')}")
    return {
        "kernel_shape": tuple(kernel), "strides": strides, "dilations": dilations,
        "pads": (pads[0][0], pads[1][0], pads[0][1], pads[1][1]),
    }  # fmt: skip


def _convolve(b: Builder, depthwise: bool) -> None:
    if b.rank(0) != 4 or b.rank(1) != 4:
        raise b.bad(f"its input and filter have {b.rank(0)} and {b.rank(1)} dimensions, not 4")
    filters = b.shape(1)
    x, before = b.value(0), [(0, 0), (0, 0)]
    padded = b.padded.get(b.op.inputs[0])
    if padded is not None and b.option("padding") == _VALID:
        x, before = b.value_of(b.graph.tensors[padded[0]]), [padded[1][1], padded[1][2]]
    shape = b.shape(0) if x is b.value(0) else tuple(b.tensors[x.name].shape[k] for k in x.back)
    channels = shape[3]
    order: Order
    if depthwise:
        group, order = channels, (3, 0, 1, 2)
        fits = filters[0] == 1 and channels > 0 and filters[3] % channels == 0
    else:
        group, order = max(channels // max(filters[3], 1), 1), NCHW
        fits = filters[3] > 0 and channels % filters[3] == 0 and filters[0] % group == 0
    if not fits:
        raise b.bad(f"its filter {list(filters)} does not fit its input {list(shape)}")
    attrs = {**_window(b, shape[1:3], filters[1:3], before), "group": group}
    bias = (_bias(b, 2),) if b.has(2) else ()
    b.write("Conv", (b.real(x, NCHW), b.real(b.value(1), order), *bias), attrs, order=NCHW, activation=b.activation)


def _bias(b: Builder, slot: int) -> str:
    bias = b.value(slot)
    name = b.raw(bias)
    if len(bias.order) != 1:
        name = b.reshaped(name, (b.tensors[name].elements,), "bias")
    return b.dequantized(name)


def _transposed(b: Builder) -> None:
    """TRANSPOSE_CONV: inputs are the output's shape, the filter as OHWI, the data and, perhaps, a bias."""
    if b.rank(2) != 4 or b.rank(1) != 4:
        raise b.bad(f"its input and filter have {b.rank(2)} and {b.rank(1)} dimensions, not 4")
    wanted, filters, size = b.integers(0), b.shape(1), b.shape(2)
    strides = (b.option("stride_h"), b.option("stride_w"))
    if len(wanted) != 4 or any(not 0 < v < _MAX_WINDOW for v in (*strides, *wanted, *filters)):
        raise b.bad(f"its output shape is {wanted}, its filter {list(filters)} and its strides are {list(strides)}")
    begin, end, extra = [], [], []
    for axis, stride in enumerate(strides):
        total = (size[1 + axis] - 1) * stride + filters[1 + axis] - wanted[1 + axis]
        begin.append(max(total, 0) // 2)
        end.append(max(total, 0) - begin[-1])
        extra.append(max(-total, 0))
    if any(e >= s for e, s in zip(extra, strides, strict=True)):
        raise b.unsupported(f"its output shape {wanted} is larger than the strides {list(strides)} explain")
    attrs: dict[str, AttrValue] = {
        "kernel_shape": filters[1:3], "strides": strides, "pads": (*begin, *end), "output_padding": tuple(extra), "group": 1,
    }  # fmt: skip
    bias = (_bias(b, 3),) if b.has(3) else ()
    inputs = (b.real(b.value(2), NCHW), b.real(b.value(1), (3, 0, 1, 2)), *bias)
    b.write("ConvTranspose", inputs, attrs, order=NCHW, activation=b.activation)


def _pool(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        if b.rank(0) != 4:
            raise b.bad(f"its input has {b.rank(0)} dimensions, not 4")
        kernel, size = (b.option("filter_h"), b.option("filter_w")), b.shape(0)[1:3]
        attrs = _window(b, size, kernel, [(0, 0), (0, 0)])
        x = b.value(0)
        same = kind == "MaxPool" and b.quantization(b.stored(0)) == b.quantization(b.result()) and not b.activation
        source = b.raw(x, NCHW) if same and b.is_quantized(0) else b.real(x, NCHW)
        if kernel == size and attrs["pads"] == (0, 0, 0, 0):
            b.write(f"Global{kind}", (source,), order=NCHW, activation=b.activation, raw=same)
            return
        del attrs["dilations"]
        b.write(kind, (source,), attrs, order=NCHW, activation=b.activation, raw=same)

    return lower


def _fully_connected(b: Builder) -> None:
    """``x @ weights^T + bias`` of the rows of ``x``; the weights are ``[out, in]`` as Gemm with transB wants them."""
    if b.option("weights_format"):
        raise b.unsupported("its weights are shuffled, a format that only old converters wrote: convert the model again")
    if b.rank(1) != 2:
        raise b.bad(f"its weights have {b.rank(1)} dimensions, not 2")
    out, depth = b.shape(1)
    shape, x = b.shape(0), b.raw(b.value(0))
    elements = b.tensors[x].elements
    if depth < 1 or elements % depth:
        raise b.bad(f"its weights {[out, depth]} do not fit its input {list(shape)}")
    rows = b.dequantized(b.reshaped(x, (elements // depth, depth), "rows"))
    bias = (_bias(b, 2),) if b.has(2) else ()
    inputs = (rows, b.real(b.value(1)), *bias)
    attrs: dict[str, AttrValue] = {"transB": 1}
    if b.option("keep_num_dims") and len(shape) != 2 and shape and shape[-1] == depth:
        b.write("Gemm", inputs, attrs, activation=b.activation, shape=(*shape[:-1], out))
    else:
        b.write("Gemm", inputs, attrs, activation=b.activation)


def _batch_matmul(b: Builder) -> None:
    inputs = []
    for slot, adjoint in ((0, b.option("adj_x")), (1, b.option("adj_y"))):
        rank = b.rank(slot)
        if rank < 2:
            raise b.bad(f"its input {slot} has {rank} dimensions, and a matrix has 2")
        axes = tuple(range(rank))
        inputs.append(b.real(b.value(slot), (*axes[:-2], axes[-1], axes[-2]) if adjoint else axes))
    b.write("MatMul", inputs)


LOWERINGS: dict[str, Lower] = {
    "CONV_2D": lambda b: _convolve(b, depthwise=False),
    "DEPTHWISE_CONV_2D": lambda b: _convolve(b, depthwise=True),
    "TRANSPOSE_CONV": _transposed,
    "AVERAGE_POOL_2D": _pool("AveragePool"),
    "MAX_POOL_2D": _pool("MaxPool"),
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
}
