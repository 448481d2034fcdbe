"""Whether the GPU runs an operator at a precision, or the reason why not."""

from __future__ import annotations

import numpy as np

from hetsched.graph import DType, Graph, Op
from hetsched.runtime.delegates.wgpu.device import Adapter
from hetsched.runtime.delegates.wgpu.rules import RULES
from hetsched.runtime.language_rules import readable
from hetsched.runtime.support import unreadable_constant

_MATRIX = ("Conv", "FusedConv", "MatMul", "FusedMatMul", "Gemm", "FusedGemm")
_PRECISIONS = ("f32", "f16", "w8a8", "w4a16")
_BYTES = (DType.I8, DType.U8)
_FEW_BITS = (DType.U4, DType.I4)


def runs_by_parts(op: Op) -> bool:
    """Whether an operator is a composite without kernels of its own: its parts run one after another."""
    return op.is_composite and op.type not in RULES


def supported(op: Op, graph: Graph, precision: str, adapter: Adapter | None) -> str | None:
    """None if there are kernels for ``op`` at ``precision`` (``f32``, ``f16``, ``w8a8``, ``w4a16``), otherwise why not.

    Args:
        op: the operator.
        graph: its graph.
        precision: the plan's.
        adapter: the GPU whose features and limits count; None: none is known.
    """
    if precision not in _PRECISIONS:
        return f"the GPU kernels do not compute in {precision}: plan it as f32, f16, w8a8 or w4a16"
    if adapter is not None and not adapter.has_f16 and (precision in ("f16", "w4a16") or _holds_half(op, graph)):
        return f"the GPU {adapter.name!r} does not compute in float16 (it lacks shader-f16): plan it as f32"
    if precision == "w8a8" and not _touches_quantized(op, graph):
        return f"its tensors are not quantized, and {op.type} computes in w8a8 with static scales only: plan it as f32 or f16"
    return _kernels(op, graph, precision) or _too_large(op, graph, adapter)


def _kernels(op: Op, graph: Graph, precision: str) -> str | None:
    if runs_by_parts(op):
        return next((why for part in op.body if (why := _kernels(part, graph, precision)) is not None), None)
    rule = RULES.get(op.type)
    if rule is None or op.domain not in ("", "ai.onnx"):
        return f"there is no GPU kernel for {op.type if op.domain in ('', 'ai.onnx') else f'{op.domain}.{op.type}'}"
    reason = unreadable_constant(op, graph, readable(op, "f32")) or rule(op, graph)
    if reason is None and precision == "w8a8" and op.type in (*_MATRIX, "ConvTranspose", "FusedConvTranspose", "MatMulNBits"):
        return _integer(op, graph)
    if reason is None and precision == "w4a16" and op.type in (*_MATRIX, "MatMulNBits"):
        return _few_bits(op, graph)
    return reason


def _holds_half(op: Op, graph: Graph) -> bool:
    return any(graph.tensors[n].dtype is DType.F16 and not graph.tensors[n].is_constant for n in (*op.inputs, *op.outputs) if n)


def _touches_quantized(op: Op, graph: Graph) -> bool:
    return any(graph.tensors[n].quantization is not None for n in (*op.inputs, *op.outputs) if n)


def _few_bits(op: Op, graph: Graph) -> str | None:
    w = graph.tensors[op.inputs[1]]
    if w.is_constant and w.quantization is not None and w.dtype in _FEW_BITS:
        return None
    return f"its weight {w.name!r} is {w.dtype.value}, and w4a16 takes weights that the file stores as 4 bits: plan it as f16"


def _integer(op: Op, graph: Graph) -> str | None:
    """Whether a supported product also has an integer kernel."""
    if op.type not in _MATRIX:
        return f"{op.type} has no integer kernel on the GPU: plan it as f32"
    x, w = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]]
    if x.quantization is None or x.dtype not in _BYTES or op.attr_int("dynamic", 0):
        return f"its activation {x.name!r} has no static scale of 8 bits: plan it as f32 or f16"
    if not w.is_constant or w.quantization is None or w.dtype not in _BYTES or w.quantization.granularity == "group":
        return f"its weight {w.name!r} is no constant of 8 bits: plan it as f32 or f16"
    if "Conv" in op.type:
        return _integer_convolution(op, graph)
    if op.attr_int("transA", 0) or len(w.shape) != 2:
        return f"its integer kernel takes rows and a matrix; its weight {w.name!r} has the shape {list(w.shape)}, or its rows are columns"
    columns = 0 if op.attr_int("transB", 0) else 1
    if w.quantization.granularity == "channel" and (w.quantization.axis or 0) % 2 != columns:
        return f"its weight {w.name!r} is quantized along the summed axis, which has no integer product"
    moving = next((n for n in op.inputs[2:] if n and not graph.tensors[n].is_constant), None)
    return None if moving is None else f"its input {moving!r} is computed while running, and the integer kernel needs it as a constant"


def _integer_convolution(op: Op, graph: Graph) -> str | None:
    w = graph.tensors[op.inputs[1]]
    q = w.quantization
    assert q is not None
    if q.granularity == "channel" and (q.axis or 0) % len(w.shape) != 0:
        return f"its weight {w.name!r} is quantized along another axis than the output channels"
    middle = 128 if w.dtype is DType.U8 else 0
    one_by_one = op.attr_int("group", 1) > 1 and w.shape[1] == 1
    if one_by_one or (q.zero_point is None and middle == 0):
        return None
    zeros = np.zeros(1) if q.zero_point is None else graph.tensors[q.zero_point].numpy()
    return None if (zeros == middle).all() else f"its weight {w.name!r} has a zero point, and packed products take none: plan it as f32"


def _too_large(op: Op, graph: Graph, adapter: Adapter | None) -> str | None:
    """A tensor that the adapter cannot bind in one piece."""
    if adapter is None:
        return None
    limit = adapter.limits["max-storage-buffer-binding-size"]
    for t in (graph.tensors[n] for n in (*op.inputs, *op.outputs) if n):
        whole = t.nbytes if t.quantization is not None else t.elements * max(t.dtype.bits // 8, 1)
        if whole > limit:
            return f"tensor {t.name!r} has {whole} bytes, and the GPU {adapter.name!r} binds at most {limit} in one buffer"
    bindings, most = len([n for n in op.inputs if n]) + 1, adapter.limits["max-storage-buffers-per-shader-stage"]
    if op.type in ("Concat", "FusedElementwise", "Sum", "Max", "Min") and bindings > most:
        return f"it has {bindings} tensors, and the GPU {adapter.name!r} binds at most {most} buffers to a kernel"
    return None
