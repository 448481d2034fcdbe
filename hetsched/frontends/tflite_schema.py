"""Names and field numbers of TFLite's schema (``schema.fbs``, file identifier TFL3): data only.

Field numbers are the order of the fields in the schema, which never changes; new fields come at the end.
"""

from __future__ import annotations

from hetsched.graph import DType

_OPERATORS = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED
HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU
RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM
EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE
UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE
BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN
TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD
REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD
RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE
RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4
NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE
BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM
MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY
STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION
STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL
STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT
STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT
STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE
STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
"""
#: Operators, by BuiltinOperator number. CUSTOM (32) has its name in the file.
OPERATORS: dict[int, str] = dict(enumerate(_OPERATORS.split()))
CUSTOM = 32

#: TensorType number -> element type; what is not here is refused by the name in :data:`OTHER_TYPES`.
TYPES: dict[int, DType] = {
    0: DType.F32, 1: DType.F16, 2: DType.I32, 3: DType.U8, 4: DType.I64, 6: DType.BOOL, 7: DType.I16, 9: DType.I8, 10: DType.F64,
    12: DType.U64, 15: DType.U32, 16: DType.U16, 17: DType.I4, 18: DType.BF16, 20: DType.U4, 21: DType.F8E4M3, 22: DType.F8E5M2,
}  # fmt: skip
OTHER_TYPES = {5: "string", 8: "complex64", 11: "complex128", 13: "resource", 14: "variant", 19: "int2"}
RESOURCE = 13

#: ActivationFunctionType number -> the TFLite operator that does the same.
ACTIVATIONS = {0: "", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6", 4: "TANH", 5: "SIGN_BIT"}

Field = tuple[int, str, int | float]
_CONV: dict[str, Field] = {"padding": (0, "b", 0), "stride_w": (1, "i", 0), "stride_h": (2, "i", 0), "activation": (3, "b", 0)}
_FUSED: dict[str, Field] = {"activation": (0, "b", 0)}
_RESIZE: dict[str, Field] = {"align_corners": (0, "B", 0), "half_pixel": (1, "B", 0)}
_POOL: dict[str, Field] = {
    "padding": (0, "b", 0), "stride_w": (1, "i", 0), "stride_h": (2, "i", 0), "filter_w": (3, "i", 0), "filter_h": (4, "i", 0),
    "activation": (5, "b", 0),
}  # fmt: skip
_KEEP: dict[str, Field] = {"keep_dims": (0, "B", 0)}
_LSTM: dict[str, Field] = {
    "activation": (0, "b", 0), "cell_clip": (1, "f", 0.0), "proj_clip": (2, "f", 0.0), "time_major": (3, "B", 0),
    "diagonal": (5, "B", 0),
}  # fmt: skip

#: Operator -> its scalar options: name -> (field number, struct letter, default).
OPTIONS: dict[str, dict[str, Field]] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV", "L2_NORMALIZATION"), _FUSED),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), _POOL),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"), _KEEP),
    "CONV_2D": {**_CONV, "dilation_w": (4, "i", 1), "dilation_h": (5, "i", 1)},
    "DEPTHWISE_CONV_2D": {
        "padding": (0, "b", 0), "stride_w": (1, "i", 0), "stride_h": (2, "i", 0), "activation": (4, "b", 0), "dilation_w": (5, "i", 1),
        "dilation_h": (6, "i", 1),
    },
    "TRANSPOSE_CONV": _CONV,
    "FULLY_CONNECTED": {"activation": (0, "b", 0), "weights_format": (1, "b", 0), "keep_num_dims": (2, "B", 0)},
    "SOFTMAX": {"beta": (0, "f", 0.0)},
    "CONCATENATION": {"axis": (0, "i", 0), "activation": (1, "b", 0)},
    "LOCAL_RESPONSE_NORMALIZATION": {"radius": (0, "i", 0), "bias": (1, "f", 0.0), "alpha": (2, "f", 0.0), "beta": (3, "f", 0.0)},
    "RESIZE_BILINEAR": {"align_corners": (2, "B", 0), "half_pixel": (3, "B", 0)},
    "RESIZE_NEAREST_NEIGHBOR": _RESIZE,
    "SPACE_TO_DEPTH": {"block": (0, "i", 0)},
    "DEPTH_TO_SPACE": {"block": (0, "i", 0)},
    "GATHER": {"axis": (0, "i", 0), "batch_dims": (1, "i", 0)},
    "STRIDED_SLICE": {
        "begin": (0, "i", 0), "end": (1, "i", 0), "ellipsis": (2, "i", 0), "new_axis": (3, "i", 0), "shrink": (4, "i", 0),
        "offset": (5, "B", 0),
    },
    "PACK": {"axis": (1, "i", 0)},
    "UNPACK": {"axis": (1, "i", 0)},
    "LEAKY_RELU": {"alpha": (0, "f", 0.0)},
    "GELU": {"approximate": (0, "B", 0)},
    "MIRROR_PAD": {"mode": (0, "b", 0)},
    "BATCH_MATMUL": {"adj_x": (0, "B", 0), "adj_y": (1, "B", 0)},
    "CUMSUM": {"exclusive": (0, "B", 0), "reverse": (1, "B", 0)},
    "CALL_ONCE": {"subgraph": (0, "i", 0)},
    "SVDF": {"rank": (0, "i", 0), "activation": (1, "b", 0)},
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _LSTM,
    "LSTM": {"activation": (0, "b", 0), "cell_clip": (1, "f", 0.0), "proj_clip": (2, "f", 0.0), "kernel": (3, "b", 0)},
}  # fmt: skip
#: Operator -> an option that is a list of int32: (field number, name).
LISTS: dict[str, tuple[int, str]] = {"RESHAPE": (0, "shape"), "SQUEEZE": (0, "axes")}
#: Operator -> options that are strings.
TEXTS: dict[str, tuple[tuple[int, str], ...]] = {"VAR_HANDLE": ((0, "container"), (1, "shared_name"))}
