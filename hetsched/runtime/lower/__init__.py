"""From operators to kernel calls: one function per operator type, in a file per family. Importing this imports numba."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hetsched.channels_last import FUNCTIONS, sum_after, sum_before, works_channels_last
from hetsched.graph import Op
from hetsched.runtime.delegates.base import SegmentJob
from hetsched.runtime.lower import (
    attention,
    chain,
    channels_last,
    convolution,
    elementwise,
    grid_sample,
    indexing,
    language,
    matrix,
    matrix_packed,
    mixtures,
    movement,
    quantization,
    recurrent,
    reduction,
    resize,
    softmax,
)  # fmt: skip
from hetsched.runtime.lower.lowering import Lowering

_UNARY = (
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal",
    "Relu", "Round", "Sigmoid", "Sign", "Silu", "Sin", "Softplus", "Sqrt", "Tanh",
)  # fmt: skip

LOWERINGS: Mapping[str, Callable[[Lowering], None]] = {
    **dict.fromkeys(("Conv", "FusedConv"), convolution.convolution),
    **dict.fromkeys(("ConvTranspose", "FusedConvTranspose"), convolution.transposed_convolution),
    **dict.fromkeys(("MatMul", "FusedMatMul"), matrix.matmul),
    **dict.fromkeys(("Gemm", "FusedGemm"), matrix.general_matrix_product),
    "MatMulNBits": matrix_packed.matmul_n_bits,
    **dict.fromkeys(_UNARY, elementwise.unary),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod", "PRelu"), elementwise.arithmetic),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), elementwise.comparison),
    **dict.fromkeys(("And", "Or", "Xor"), elementwise.logic),
    "Not": elementwise.negation,
    "Clip": elementwise.clip,
    "Where": elementwise.selection,
    "Cast": elementwise.conversion,
    "FusedElementwise": chain.fused_elementwise,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"), movement.copy),
    "Transpose": movement.transpose,
    "Slice": movement.cut,
    "Concat": movement.concatenate,
    "Split": movement.split,
    "Expand": movement.expand,
    "Tile": movement.tile,
    "Pad": movement.pad,
    "DepthToSpace": movement.depth_to_space,
    "SpaceToDepth": movement.space_to_depth,
    **dict.fromkeys(("Gather", "GatherBlockQuantized"), indexing.gather),
    "GatherElements": indexing.gather_elements,
    **dict.fromkeys(("ArgMax", "ArgMin"), indexing.extremum_index),
    "BatchNormalization": reduction.batch_normalization,
    "LayerNormalization": reduction.layer_normalization,
    "InstanceNormalization": reduction.instance_normalization,
    "LRN": reduction.local_response,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), recurrent.recurrent),
    **dict.fromkeys(("Softmax", "FusedSoftmax"), softmax.softmax),
    "LogSoftmax": softmax.log_softmax,
    **dict.fromkeys(
        ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"),
        reduction.reduction,
    ),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), reduction.global_pool),
    **dict.fromkeys(("MaxPool", "AveragePool"), reduction.pooling),
    "Resize": resize.resize,
    "GridSample": grid_sample.grid_sample,
    "Attention": attention.attention,
    "RMSNorm": language.rms_norm,
    "RotaryEmbedding": language.rotary_embedding,
    "GroupQueryAttention": language.group_query_attention,
    "Sample": language.sample,
    "Router": mixtures.route,
    "MoE": mixtures.mixture,
    "CausalConv": mixtures.causal_convolution,
    "SelectiveScan": mixtures.selective_scan,
    "QuantizeLinear": quantization.quantize_linear,
    "DequantizeLinear": quantization.dequantize_linear,
}


def lower(op: Op, job: SegmentJob, kept: list[Any], before: Op | None = None) -> list[Any]:
    """The steps that run ``op`` (:class:`Lowering`), with prepared arguments; ``supported`` must have said yes.

    ``before`` is what ``op`` shall compute as well: a sum, or the convolution whose result ``op`` adds to another image
    (:func:`hetsched.channels_last.sum_before`, :func:`hetsched.channels_last.sum_after`).
    Arrays that a kernel knows by address only are appended to ``kept``: they must outlive the calls.
    """
    steps: list[Any] = []
    if before is not None and sum_after(before, job.graph) is op:
        lowering = Lowering(before, job, steps, kept, after=op)
    else:
        lowering = Lowering(op, job, steps, kept, before)
    (_channels_last(lowering) or LOWERINGS[lowering.op.type])(lowering)
    lowering.finish()
    return steps


def _channels_last(low: Lowering) -> Callable[[Lowering], None] | None:
    """What lowers an op that works channels last in another way than the others; None for all others."""
    if low.last:
        return channels_last.POOLS.get(low.op.type)
    if low.op.type not in channels_last.LOWERINGS or not works_channels_last(low.op, low.graph, low.precision):
        return None
    summed = low.op.type in FUNCTIONS and sum_before(low.op, low.graph) is not None
    return channels_last.LOWERINGS[low.op.type] if summed == (low.before is not None) else None
