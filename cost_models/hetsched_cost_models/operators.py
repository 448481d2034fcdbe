"""What kind of work each operator type is: tables of names, the same for every processor.

``MATRIX`` operators do multiply-accumulates on a matrix unit where there is one; the rest are data movement and
arithmetic on vectors, in kinds that differ in cost per byte (:data:`VECTOR_KINDS`).
"""

from __future__ import annotations

CONVOLUTIONS = frozenset({"Conv", "FusedConv", "QLinearConv", "ConvInteger", "ConvTranspose", "FusedConvTranspose", "FusedDepthwise"})
PRODUCTS = frozenset(
    {"MatMul", "FusedMatMul", "MergedMatMul", "Gemm", "FusedGemm", "MatMulInteger", "QLinearMatMul", "MatMulNBits", "MatMulBnb4",
     "DynamicQuantizeLSTM", "Einsum", "LSTM", "GRU", "RNN"}
)  # fmt: skip
MATRIX = CONVOLUTIONS | PRODUCTS
#: Composites of transformers that do multiply-accumulates; none of them has an integer form.
COMPOSITES = ("Attention", "GroupQueryAttention", "MoE", "QMoE", "CausalConv", "SelectiveScan")

#: Classes of matrix work, in the order of the arrays. ``vector`` has no multiply-accumulates.
CLASSES = (
    "vector",
    "conv1x1",
    "conv",
    "grouped",
    "depthwise",
    "gemm",
    "matmul",
    "depthwise_small",
    "depthwise_strided",
    "transposed",
    "conv3x3",
)
#: Classes that a processor without figures of their own treats as another one. ``depthwise_small``: at most 16 columns out;
#: ``conv3x3``: 3 x 3 with stride 1, which some compute with fewer products.
CLASS_LIKE = {"depthwise_small": "depthwise", "depthwise_strided": "depthwise", "transposed": "conv", "conv3x3": "conv"}

#: Kinds of vector work, in the order of the arrays; the cost model has a factor per kind, relative to ``elementwise``.
VECTOR_KINDS = (
    "view",
    "elementwise",
    "transcendental",
    "norm",
    "softmax",
    "transpose",
    "copy",
    "reduce",
    "pool",
    "resize",
    "gather",
    "chain",
    "convert",
    "nearest",
    "compare",
    "maximum",
    "masked",
    "broadcast",
    "matrix",
    "gelu",
    "response",
    "image",
    "pool_last",
    "average",
)
#: Kinds that a processor without figures of their own treats as another one. ``nearest``: Resize that copies; ``maximum``:
#: reductions to the greatest or least; ``masked``: a softmax with a mask; ``broadcast``: an operand repeated along rows; ``gelu``:
#: functions by erf; ``response``: LRN; ``image``: sums, products and clamps of 8-bit images as they are stored; ``pool_last``: MaxPool
#: of images whose channels lie last; ``average``: AveragePool.
KIND_LIKE = {
    "nearest": "resize", "compare": "elementwise", "maximum": "reduce", "masked": "softmax", "broadcast": "elementwise",
    "gelu": "transcendental", "response": "norm", "image": "elementwise",
    "pool_last": "pool", "average": "pool",
}  # fmt: skip

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout", "Shape", "Size", "Constant", "ConstantOfShape"})
GATHERS = frozenset({"Gather", "GatherElements", "GatherND", "GatherBlockQuantized", "Embedding"})
SLICES = frozenset({"Slice", "Split"})

KIND_OF_TYPE: dict[str, str] = {
    **dict.fromkeys(VIEWS, "view"),
    **dict.fromkeys(GATHERS, "gather"),
    **dict.fromkeys(
        ("Exp", "Log", "Tanh", "Sigmoid", "Erf", "Gelu", "Silu", "Swish", "QuickGelu", "Softplus", "Softsign", "Mish", "Elu", "Selu",
         "Celu", "Pow", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "FastGelu", "BiasGelu",
         "SwiGLU", "GeGLU"),
        "transcendental",
    ),
    **dict.fromkeys(
        ("LayerNormalization", "SkipLayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
         "SkipSimplifiedLayerNormalization", "InstanceNormalization", "GroupNormalization", "GroupNorm", "LpNormalization",
         "MeanVarianceNormalization", "LRN", "RMSNorm", "SkipLayerNorm", "SkipRMSNorm"),
        "norm",
    ),
    **dict.fromkeys(("Softmax", "FusedSoftmax", "LogSoftmax", "Hardmax", "Router", "Sample"), "softmax"),
    **dict.fromkeys(("Transpose", "DepthToSpace", "SpaceToDepth", "ChannelShuffle"), "transpose"),
    **dict.fromkeys(
        ("Concat", "Slice", "Split", "Pad", "Expand", "Tile", "Cast", "ScatterND", "ScatterElements", "TensorScatter", "CumSum"), "copy"
    ),
    **dict.fromkeys(
        ("ReduceMean", "ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
         "ReduceSumSquare", "ArgMax", "ArgMin", "GlobalAveragePool", "GlobalLpPool", "TopK", "NonZero"),
        "reduce",
    ),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "GlobalMaxPool"), "maximum"),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"), "compare"),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), "pool"),
    **dict.fromkeys(("Resize", "Upsample", "GridSample", "RoiAlign"), "resize"),
    "FusedElementwise": "chain",
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"), "convert"),
    **dict.fromkeys((*MATRIX, *COMPOSITES), "matrix"),
}  # fmt: skip

#: Elementwise operators are the rest of what is known; anything beyond is planned by its bytes, with a note.
ELEMENTWISE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Min", "Max", "Mean", "Sum", "Mod", "Abs", "Neg", "Sqrt", "Reciprocal", "Floor", "Ceil", "Round", "Sign",
     "Relu", "LeakyRelu", "PRelu", "Clip", "HardSigmoid", "HardSwish", "ThresholdedRelu", "Shrink", "BatchNormalization", "Where", "Not",
     "IsNaN", "IsInf", "BitShift", "Selu", "Celu", "AffineGrid", "BitwiseAnd", "BitwiseOr",
     "BitwiseXor", "BitwiseNot", "Range", "OneHot", "Trilu", "EyeLike",
     "ArrayFeatureExtractor", "RotaryEmbedding"}
)  # fmt: skip


def kind_of(op_type: str) -> str:
    """Kind of vector work of an operator type; unknown types count as ``elementwise``."""
    return KIND_OF_TYPE.get(op_type, "elementwise")


def is_known(op_type: str) -> bool:
    """Whether the work model knows the type (otherwise a bytes-only estimate is used and said)."""
    return op_type in KIND_OF_TYPE or op_type in ELEMENTWISE
