"""Integers that tell a kernel which function to apply, by ONNX operator name. Imports nothing: usable at planning time."""

from __future__ import annotations

from typing import Final

NONE: Final = 0
RELU: Final = 1
CLIP: Final = 2
HARD_SWISH: Final = 3
HARD_SIGMOID: Final = 4
SIGMOID: Final = 5
LEAKY_RELU: Final = 6
GELU: Final = 7
GELU_TANH: Final = 8
SILU: Final = 9
TANH: Final = 10
ERF: Final = 11
EXP: Final = 12
LOG: Final = 13
SQRT: Final = 14
NEG: Final = 15
ABS: Final = 16
RECIPROCAL: Final = 17
ELU: Final = 18
SOFTPLUS: Final = 19
SIN: Final = 20
COS: Final = 21
FLOOR: Final = 22
CEIL: Final = 23
ROUND: Final = 24
SIGN: Final = 25
MISH: Final = 26

#: What gemm, matmul and conv may apply to their result. ``alpha`` and ``beta`` mean: Clip (min, max), HardSigmoid (alpha,
#: beta), LeakyRelu (alpha); the others ignore them. HardSwish is x·max(0, min(1, x/6 + 1/2)); Gelu is the erf form.
ACTIVATION: Final[dict[str, int]] = {
    "": NONE, "Relu": RELU, "Clip": CLIP, "HardSwish": HARD_SWISH, "HardSigmoid": HARD_SIGMOID, "Sigmoid": SIGMOID,
    "LeakyRelu": LEAKY_RELU, "Gelu": GELU, "GeluTanh": GELU_TANH, "Silu": SILU, "Swish": SILU, "Tanh": TANH,
}  # fmt: skip

#: One input, one output, float32. Elu takes alpha.
UNARY: Final[dict[str, int]] = {
    **{name: code for name, code in ACTIVATION.items() if name}, "Identity": NONE, "Erf": ERF, "Exp": EXP, "Log": LOG, "Sqrt": SQRT,
    "Neg": NEG, "Abs": ABS, "Reciprocal": RECIPROCAL, "Elu": ELU, "Softplus": SOFTPLUS, "Sin": SIN, "Cos": COS, "Floor": FLOOR,
    "Ceil": CEIL, "Round": ROUND, "Sign": SIGN, "Mish": MISH,
}  # fmt: skip

ADD: Final = 40
SUB: Final = 41
MUL: Final = 42
DIV: Final = 43
POW: Final = 44
MAX: Final = 45
MIN: Final = 46
MOD: Final = 47
FMOD: Final = 48
PRELU: Final = 49
RSUB: Final = 50
RDIV: Final = 51

#: Two inputs, one output of the same type. Mod has the sign of the divisor, FMod that of the dividend; PRelu's second
#: operand is the slope; RSub is b - a and RDiv is b / a (for a chain whose running value is the second operand).
BINARY: Final[dict[str, int]] = {
    "Add": ADD, "Sub": SUB, "Mul": MUL, "Div": DIV, "Pow": POW, "Max": MAX, "Min": MIN, "Mod": MOD, "FMod": FMOD, "PRelu": PRELU,
    "RSub": RSUB, "RDiv": RDIV,
}  # fmt: skip

EQUAL: Final = 60
LESS: Final = 61
LESS_EQUAL: Final = 62
GREATER: Final = 63
GREATER_EQUAL: Final = 64
COMPARE: Final[dict[str, int]] = {
    "Equal": EQUAL, "Less": LESS, "LessOrEqual": LESS_EQUAL, "Greater": GREATER, "GreaterOrEqual": GREATER_EQUAL,
}  # fmt: skip

AND: Final = 70
OR: Final = 71
XOR: Final = 72
LOGICAL: Final[dict[str, int]] = {"And": AND, "Or": OR, "Xor": XOR}

SUM: Final = 80
MEAN: Final = 81
MAXIMUM: Final = 82
MINIMUM: Final = 83
PROD: Final = 84
L1: Final = 85
L2: Final = 86
SUM_SQUARE: Final = 87
LOG_SUM_EXP: Final = 88
#: Reductions by ONNX name.
REDUCE: Final[dict[str, int]] = {
    "ReduceSum": SUM, "ReduceMean": MEAN, "ReduceMax": MAXIMUM, "ReduceMin": MINIMUM, "ReduceProd": PROD, "ReduceL1": L1,
    "ReduceL2": L2, "ReduceSumSquare": SUM_SQUARE, "ReduceLogSumExp": LOG_SUM_EXP,
}  # fmt: skip

REFLECT: Final = 1
EDGE: Final = 2
WRAP: Final = 3
#: Padding modes that repeat the tensor's own elements.
PAD_MODE: Final[dict[str, int]] = {"reflect": REFLECT, "edge": EDGE, "wrap": WRAP}
