"""Operator types that share a kernel, by name. Imports nothing."""

UNARY = (
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal",
    "Relu", "Round", "Sigmoid", "Sign", "Silu", "Sin", "Softplus", "Sqrt", "Tanh",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod", "PRelu", "Sum")
COMPARISONS = {"Equal": "==", "Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">="}
LOGIC = {"And": "&", "Or": "|", "Xor": "!="}
COPIES = ("DequantizeLinear", "QuantizeLinear", "Identity")
VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
)  # fmt: skip
