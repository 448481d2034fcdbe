"""From operators to dispatches: one function per operator type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hetsched.graph import Op
from hetsched.runtime.delegates.base import SegmentJob
from hetsched.runtime.delegates.wgpu import convolution, elementwise, integers, matrix, movement, names, reduction, resize
from hetsched.runtime.delegates.wgpu.lowering import GpuLowering
from hetsched.runtime.delegates.wgpu.program import Program
from hetsched.runtime.delegates.wgpu.support import runs_by_parts

OPERATORS: Mapping[str, Callable[[GpuLowering], None]] = {
    **dict.fromkeys(("Conv", "FusedConv"), convolution.convolution),
    **dict.fromkeys(("ConvTranspose", "FusedConvTranspose"), convolution.transposed_convolution),
    **dict.fromkeys(("MatMul", "FusedMatMul"), matrix.matmul),
    **dict.fromkeys(("Gemm", "FusedGemm"), matrix.general_product),
    "MatMulNBits": matrix.matmul_n_bits,
    **dict.fromkeys((*names.UNARY, *names.BINARY, "Clip"), elementwise.elementwise),
    "FusedElementwise": elementwise.fused_elementwise,
    **dict.fromkeys(names.COMPARISONS, elementwise.comparison),
    **dict.fromkeys(names.LOGIC, elementwise.logic),
    "Not": elementwise.negation, "Where": elementwise.selection, "Cast": elementwise.conversion,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), elementwise.quantization),
    "BatchNormalization": elementwise.batch_normalization,
    **dict.fromkeys(names.VIEWS, movement.view),
    "Transpose": movement.transpose, "Slice": movement.cut, "Split": movement.split, "Expand": movement.expand, "Tile": movement.tile,
    "DepthToSpace": movement.depth_to_space, "SpaceToDepth": movement.space_to_depth, "Concat": movement.concatenate, "Pad": movement.pad,
    "Gather": movement.gather, "GatherElements": movement.gather_elements,
    "GatherND": movement.gather_tuples, "Resize": resize.resize,
    **dict.fromkeys(("LayerNormalization", "RMSNorm"), reduction.normalization),
    "InstanceNormalization": reduction.instance_normalization,
    "LRN": reduction.local_response,
    **dict.fromkeys(("Softmax", "FusedSoftmax", "LogSoftmax"), reduction.softmax),
    **dict.fromkeys(names.REDUCTIONS, reduction.reduction),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), reduction.global_pool),
    **dict.fromkeys(("MaxPool", "AveragePool"), reduction.pooling),
    **dict.fromkeys(("ArgMax", "ArgMin"), reduction.extremum_index),
}  # fmt: skip
#: At ``w8a8``, on quantized tensors; every other operator computes on the reals.
INTEGER: Mapping[str, Callable[[GpuLowering], None]] = {
    **dict.fromkeys(("Conv", "FusedConv"), integers.integer_convolution),
    **dict.fromkeys(("MatMul", "FusedMatMul"), integers.integer_matmul),
    **dict.fromkeys(("Gemm", "FusedGemm"), integers.integer_gemm),
}


def lower(op: Op, job: SegmentJob, program: Program, precision: str) -> None:
    """Add an operator's dispatches to ``program``; a composite without kernels of its own by those of its parts."""
    if runs_by_parts(op):
        for part in op.body:
            lower(part, job, program, precision)
        return
    function = INTEGER.get(op.type) if precision == "w8a8" else None
    (function or OPERATORS[op.type])(GpuLowering(op, job, program, precision))
