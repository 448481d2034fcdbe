"""Windows of convolutions and pools: they must fit what they slide over, which ONNX's own inference does not check."""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.errors import ShapeError
from hetsched.graph import Op, Tensor

_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "QLinearConv"})
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})


def refuse_wide_window(op: Op, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a convolution or a pool whose window is larger than its padded input.

    A pool with ``ceil_mode`` may have a last window that is not full, and one that implies its padding always fits.

    Raises:
        ShapeError: the window does not fit.
    """
    if op.domain or op.type not in _CONVOLUTIONS | _POOLS or op.attr_int("ceil_mode", 0) or "SAME" in op.attr_str("auto_pad", "NOTSET"):
        return
    size, kernel = tensors[op.inputs[0]].shape[2:], op.attr_ints("kernel_shape", ())
    if not kernel and op.type in _CONVOLUTIONS:
        kernel = tensors[op.inputs[3 if op.type == "QLinearConv" else 1]].shape[2:]
    rank = len(kernel)
    dilations, pads = op.attr_ints("dilations", (1,) * rank), op.attr_ints("pads", (0,) * (2 * rank))
    if len(size) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        return  # the inference says what is wrong
    padded = tuple(n + pads[i] + pads[i + rank] for i, n in enumerate(size))
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    if any(r > n for r, n in zip(reach, padded, strict=True)):
        x = tensors[op.inputs[0]]
        raise ShapeError(
            f"node {op.name!r} ({op.type}) has a window of {_size(reach)}, which does not fit its padded input of {_size(padded)}: "
            f"{x.name!r} is {list(x.shape)}"
        )


def _size(extents: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in extents)
