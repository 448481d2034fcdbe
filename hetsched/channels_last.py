"""Which tensors the numba delegate keeps channels last between operators whose kernels work that way: 8-bit and float32 images.

They lie in the tensor's own buffer; only their order differs (``[n, h, w, c]``), and int8 values have their sign bit flipped
(:mod:`hetsched_kernels.nhwc`). Whoever else reads such a tensor gets it converted. Nothing here imports numba.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import DType, Graph, Op, Tensor
from hetsched.sharing import ELEMENTWISE, view_of

_CLAMPS = ("", "Relu", "Clip")
#: Images of no more channels are padded, and their convolution kernels' rows read whole.
FEW_CHANNELS = 4
#: Results that a row of a transposed convolution's kernel must make: with fewer, rows of registers are nearly empty.
WIDE = 16
#: Arithmetic on two operands, and functions of one stored byte.
ARITHMETIC = ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub")
FUNCTIONS = ("Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Silu", "Tanh")


def channels_last(graph: Graph, precision: Mapping[str, str], delegates: Mapping[str, str]) -> frozenset[str]:
    """Names of the tensors that are kept channels last.

    Args:
        graph: the graph to run.
        precision: of each op, by name.
        delegates: name of the delegate of each op, by the op's name.
    """
    kept: set[str] = set()
    foreign = {n for op in graph.ops if delegates[op.name] != "numba" for n in (*op.inputs, *op.outputs)} | set(graph.outputs)
    # A view may lie in its source's bytes, which it would put into another order under those who read them after it.
    foreign |= {n for op in graph.ops if (n := view_of(graph, op)) and len(graph.consumers.get(n, ())) > 1}
    for op in graph.ops:
        out = op.outputs[0] if op.outputs else ""
        if not out or delegates[op.name] != "numba" or out in foreign:
            continue
        if works_channels_last(op, graph, precision[op.name]) or _follows(op, graph, kept):
            kept.add(out)
    return frozenset(kept)


def _follows(op: Op, graph: Graph, kept: set[str]) -> bool:
    """Whether ``op`` works on float32 in any order of elements and reads a tensor that is kept channels last."""
    if len(op.outputs) != 1:
        return False
    y, reads = graph.tensors[op.outputs[0]], [graph.tensors[n] for n in op.inputs if n]
    if not any(x.name in kept and x.dtype is DType.F32 for x in reads) or not _is_float_image(y):
        return False
    if op.type in ("GlobalAveragePool", "AveragePool"):
        return over_everything(op, graph)
    if op.type == "MaxPool":
        return True
    if op.type not in ELEMENTWISE or op.domain:
        return False
    return all(_spreads(x, y) for x in reads)


def _spreads(x: Tensor, y: Tensor) -> bool:
    """Whether ``x`` is as large as the image ``y``, or one value in all or for each of its channels."""
    if x.quantization is not None or x.dtype is not DType.F32:
        return False
    lead = (1,) * (4 - len(x.shape)) + x.shape
    return (x.shape == y.shape and not x.is_constant) or x.elements == 1 or (lead[1] == y.shape[1] and lead[2:] == (1, 1))


def last_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an image, or of what is spread over one, in the order in which it lies channels last."""
    n, c, h, w = (1,) * (4 - len(shape)) + shape
    return n, h, w, c


def works_channels_last(op: Op, graph: Graph, precision: str) -> bool:
    """Whether ``op``, which has a CPU kernel, has one that works channels last: on 8-bit images with one scale each, or float32."""
    rule = None if op.domain else _RULES.get(op.type)
    if rule is None or len(op.outputs) != 1 or not op.inputs or not all(op.inputs[:2]):
        return False
    return rule(op, graph, precision)


def planar(stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy, in ONNX's order, of a tensor's buffer that holds it channels last."""
    n, c, h, w = stored.shape
    out = np.array(stored.reshape(n, h, w, c).transpose(0, 3, 1, 2), order="C")  # a copy even of one position or one channel
    return (out.view(np.uint8) ^ np.uint8(128)).view(np.int8) if out.dtype == np.int8 else out


def _is_image(t: Tensor) -> bool:
    """Whether a tensor is an 8-bit image with one scale."""
    q = t.quantization
    return len(t.shape) == 4 and t.dtype in (DType.I8, DType.U8) and q is not None and q.granularity == "tensor" and not t.is_constant


def _is_float_image(t: Tensor) -> bool:
    return len(t.shape) == 4 and t.dtype is DType.F32 and t.quantization is None and not t.is_constant


def _images(op: Op, graph: Graph, inputs: int) -> bool:
    return all(_is_image(graph.tensors[n]) for n in (*op.inputs[:inputs], op.outputs[0]))


def _convolves(op: Op, graph: Graph, precision: str) -> bool:
    if len(op.inputs) < 2:
        return False
    w, groups = graph.tensors[op.inputs[1]], op.attr_int("group", 1)
    depthwise = groups > 1 and w.shape[0] == groups and w.shape[1] == 1
    if not w.is_constant or not (groups == 1 or depthwise):
        return False
    if precision == "f32":
        return all(_is_float_image(graph.tensors[n]) for n in (op.inputs[0], op.outputs[0]))
    if not _images(op, graph, 1) or (depthwise and op.attr_str("activation", "") not in _CLAMPS):
        return False
    return _symmetric(w, graph)


def _convolves_apart(op: Op, graph: Graph, precision: str) -> bool:
    """A transposed convolution whose windows lie side by side, and whose kernel's rows make many results."""
    if len(op.inputs) < 2 or precision != "f32" or op.attr_int("group", 1) != 1:
        return False
    x, w, y = (graph.tensors[n] for n in (*op.inputs[:2], op.outputs[0]))
    if not w.is_constant or len(w.shape) != 4 or w.shape[1] * w.shape[3] < WIDE:
        return False
    if not all(_is_image(t) or _is_float_image(t) for t in (x, y)):
        return False
    plain = not any((*op.attr_ints("pads", ()), *op.attr_ints("output_padding", ()))) and set(op.attr_ints("dilations", ())) <= {1}
    apart = op.attr_ints("strides", (1, 1)) == w.shape[2:]
    return plain and apart and y.shape[2:] == tuple(n * k for n, k in zip(x.shape[2:], w.shape[2:], strict=True))


def _symmetric(w: Tensor, graph: Graph) -> bool:
    """Whether weights are int8 with zero points 0, or floats that will be."""
    q = w.quantization
    if q is None:
        return w.dtype is DType.F32
    if w.dtype is not DType.I8 or q.granularity == "group":
        return False
    zeros = None if q.zero_point is None else graph.tensors[q.zero_point]
    return zeros is None or not _is_here(zeros) or not zeros.numpy().any()


def _is_here(t: Tensor) -> bool:
    """Whether a constant's values are: models can be planned without their weights."""
    return t.data is not None and t.data.is_present


def number_slot(op: Op, graph: Graph) -> int | None:
    """The input of arithmetic on two operands that is a single constant number; None if there is none."""
    if op.type not in ARITHMETIC or len(op.inputs) != 2:
        return None
    found = [i for i, n in enumerate(op.inputs) if graph.tensors[n].is_constant and graph.tensors[n].elements == 1]
    return found[0] if len(found) == 1 else None


def _operates(op: Op, graph: Graph, precision: str) -> bool:
    """Arithmetic on an image and a number, on two images, or (products) on an image and one value a channel."""
    slot = number_slot(op, graph)
    if slot is not None:
        return _is_image(graph.tensors[op.inputs[1 - slot]]) and _is_image(graph.tensors[op.outputs[0]])
    if op.type not in ("Add", "Sub", "Mul") or len(op.inputs) != 2 or not _images(op, graph, 2):
        return False
    out, shapes = graph.tensors[op.outputs[0]].shape, [graph.tensors[n].shape for n in op.inputs]
    return all(s == out or (op.type == "Mul" and s == (*out[:2], 1, 1) and out in shapes) for s in shapes)


def sum_before(op: Op, graph: Graph) -> Op | None:
    """The Add or Sub of two images whose float result ``op``, a clamp that writes an image, is the only one to read."""
    x = graph.tensors[op.inputs[0]]
    readers, producer = graph.consumers.get(x.name, ()), graph.producer.get(x.name)
    if op.type not in ("Relu", "Clip") or x.quantization is not None or x.name in graph.output_set or len(readers) != 1:
        return None
    before = None if producer is None else graph.ops[producer]
    if before is None or before.type not in ("Add", "Sub"):
        return None
    tensors = [graph.tensors[n] for n in (*before.inputs, *op.outputs)]
    return before if len(tensors) == 3 and all(_is_image(t) and t.shape == x.shape for t in tensors) else None


def sum_after(op: Op, graph: Graph) -> Op | None:
    """The sum of two float32 images, and perhaps its clamp, the only reader of ``op``, a convolution: one pass computes both."""
    if op.type not in ("Conv", "FusedConv") or op.attr_int("group", 1) != 1 or op.attr_str("activation", ""):
        return None
    if not works_channels_last(op, graph, "f32") or op.outputs[0] in graph.output_set:
        return None
    readers = graph.consumers.get(op.outputs[0], ())
    after = graph.ops[readers[0]] if len(readers) == 1 else None
    if after is None or after.domain or len(after.outputs) != 1:
        return None
    body = _added_parts(after)
    kinds = tuple(o.type for o in body)
    if kinds[0] != "Add" or not (len(body) == 1 or (kinds[1:] in (("Relu",), ("Clip",)) and body[1].inputs[0] == body[0].outputs[0])):
        return None
    shape, images = graph.tensors[op.outputs[0]].shape, [graph.tensors.get(n) for n in (*body[0].inputs, *after.outputs)]
    alike = all(t is not None and _is_float_image(t) and t.shape == shape for t in images)
    return after if alike and len(images) == 3 and body[0].inputs.count(op.outputs[0]) == 1 else None


def _added_parts(after: Op) -> tuple[Op, ...]:
    return after.body if after.type == "FusedElementwise" else (after,)


def added(op: Op, after: Op) -> str:
    """What is added to the result of ``op`` in the sum ``after``."""
    summands = _added_parts(after)[0].inputs
    return summands[1] if summands[0] == op.outputs[0] else summands[0]


def _pools(op: Op, graph: Graph, precision: str) -> bool:
    """A largest value is stored as it was read only where both are stored alike."""
    if not _images(op, graph, 1):
        return False
    x, y = (graph.tensors[n] for n in (op.inputs[0], op.outputs[0]))
    constants = [
        graph.tensors[n] for t in (x, y) if t.quantization is not None for n in (t.quantization.scale, t.quantization.zero_point) if n
    ]
    return x.dtype is y.dtype and all(map(_is_here, constants)) and _numbers(x, graph) == _numbers(y, graph)


def _numbers(t: Tensor, graph: Graph) -> tuple[float, int]:
    q = t.quantization
    assert q is not None
    zero = 0 if q.zero_point is None else int(graph.tensors[q.zero_point].numpy().reshape(-1)[0])
    return float(graph.tensors[q.scale].numpy().reshape(-1)[0]), zero


def _averages(op: Op, graph: Graph, precision: str) -> bool:
    """A mean over all positions."""
    return _images(op, graph, 1) and over_everything(op, graph)


def over_everything(op: Op, graph: Graph) -> bool:
    """Whether the window of ``op``, a pool, is its whole image."""
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    padded = any(op.attr_ints("pads", ())) or op.attr_str("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    return not padded and y.shape[2:] == (1, 1) and op.attr_ints("kernel_shape", x.shape[2:]) == x.shape[2:]


def _maps(op: Op, graph: Graph, precision: str) -> bool:
    constant = all(graph.tensors[n].is_constant for n in op.inputs[1:] if n)
    return constant and (_images(op, graph, 1) or sum_before(op, graph) is not None)


_RULES: Mapping[str, Callable[[Op, Graph, str], bool]] = {
    "Conv": _convolves, "FusedConv": _convolves, "ConvTranspose": _convolves_apart, "FusedConvTranspose": _convolves_apart,
    "MaxPool": _pools,
    "GlobalAveragePool": _averages, "AveragePool": _averages, **dict.fromkeys(FUNCTIONS, _maps), **dict.fromkeys(ARITHMETIC, _operates),
}  # fmt: skip
