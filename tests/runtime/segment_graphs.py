"""Nodes of every kind that segments are written with, as graphs in ONNX's text form, for the delegates that write other formats."""

from __future__ import annotations

import numpy as np

# Every line is a node of its own output; one package holds them all, because writing one takes most of the time.
ARITHMETIC = """
    a = Relu(x)  b = Sigmoid(x)  c = Tanh(x)  d = Erf(x)  e = Abs(x)  f = Neg(x)  g = LeakyRelu <alpha = 0.3> (x)  h = Elu(x)
    i = HardSigmoid(x)  j = HardSwish(x)  k = Clip(x, low, high)  l = Softmax <axis = 1> (x)  m = PRelu(x, slope)
    n = ReduceMean <keepdims = 0> (x, axes)  o = ReduceMax(x, axes)  p = Add(x, slope)  q = Sub(slope, x)  r = Div(x, slope)
    s = Max(x, slope, half)  u = Softplus(x)  v = Exp(x)  positive = Abs(x)  shifted = Add(positive, half)  w = Sqrt(shifted)
    ab = Log(shifted)  ac = Reciprocal(shifted)  ad = Pow(shifted, half)  cond = Greater(x, half)  ae = Where(cond, x, slope)
    af = Gelu(x)  ag = Gelu <approximate = "tanh"> (x)  ah = Clip(x)"""
MOVEMENT = """
    a = Reshape(x, shape)  b = Transpose <perm = [0, 2, 3, 1]> (x)  c = Concat <axis = 1> (x, x)  d = Slice(x, from, to, axes, steps)
    e = Slice(x, back_from, back_to, axes, back_steps)  f = Pad(x, pads, half)  g = Gather <axis = 2> (x, rows)  h = Flatten(x)
    part, rest = Split <axis = 1, num_outputs = 2> (x)  i = Relu(part)  j = Relu(rest)  k = Tile(x, reps)
    l = DepthToSpace <blocksize = 2> (x)  m = DepthToSpace <blocksize = 2, mode = "CRD"> (x)
    n = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , twice)
    o = Resize <mode = "linear"> (x, , twice)  p = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , twice)
    q = GlobalAveragePool(x)  r = MaxPool <kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]> (x)
    s = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)  t = Expand(one, wide)"""
WINDOWS = """
    a = Conv <strides = [2, 1], pads = [1, 0, 0, 1], dilations = [1, 2]> (x, w, bias)
    b = Conv <group = 4, auto_pad = "SAME_UPPER", strides = [2, 2]> (x, each)
    c = ConvTranspose <strides = [2, 2], pads = [1, 0, 0, 1]> (x, turned)
    d = BatchNormalization(x, one, two, one, two)  e = LayerNormalization <axis = -1> (x, row, row)  f = InstanceNormalization(x, one, two)
    g = RMSNormalization(x, row)  flat = Flatten <axis = 3> (x)  h = Gemm <alpha = 0.5, transB = 1> (flat, b2, c2)  i = MatMul(flat, b3)"""
QDQ = """
    g (float[1,2,4,4] x) => (float[1,3,4,4] y) <float s = {0.05}, uint8 z = {120}, float[3] t = {0.01, 0.02, 0.03}, float u = {0.1},
        int8[3,2,1,1] w = {10, -20, 127, 3, -128, 5}, int32[3] b = {100, -50, 7}, float[3] bs = {0.0005, 0.001, 0.0015},
        int8[3] zero = {0, 0, 0}, int32[3] izero = {0, 0, 0}> {
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  v = DequantizeLinear <axis = 0> (w, t, zero)
        c = DequantizeLinear <axis = 0> (b, bs, izero)  k = Conv(d, v, c)  l = QuantizeLinear(k, u, z)  y = DequantizeLinear(l, u, z) }"""


def outputs(lines: str, *inner: str) -> str:
    """The outputs of a table of nodes."""
    names = [n.strip() for part in lines.replace("\n", "  ").split("  ") if "=" in part for n in part.split("=")[0].split(",")]
    return ", ".join(f"float[] {n}" for n in names if n not in inner)


def arithmetic() -> str:
    """A graph of the nodes of :data:`ARITHMETIC`."""
    consts = "float[3,1,1] slope = {0.5, -2, 3}, float half = {0.25}, float low = {-0.5}, float high = {0.75}, int64[2] axes = {2, 3}"
    return f"g (float[1,3,4,5] x) => ({outputs(ARITHMETIC, 'positive', 'shifted', 'cond')}) <{consts}> {{{ARITHMETIC}\n}}"


def movement(*left_out: str) -> str:
    """A graph of the nodes of :data:`MOVEMENT`, but those with these results."""
    consts = (
        "int64[2] shape = {4, 30}, int64[2] from = {1, -4}, int64[2] to = {4, 5}, int64[2] axes = {1, 3}, int64[2] steps = {1, 2}, "
        "int64[2] back_from = {3, 4}, int64[2] back_to = {0, -9}, int64[2] back_steps = {-1, -2}, "
        "int64[8] pads = {0, 0, 1, 2, 0, 0, 0, 3}, float half = {0.25}, int64[2] rows = {-1, 0}, int64[4] reps = {1, 1, 2, 1}, "
        "float[4] twice = {1, 1, 2, 2}, float[1,1] one = {3}, int64[2] wide = {2, 4}"
    )
    return f"g (float[1,4,6,5] x) => ({outputs(MOVEMENT, 'part', 'rest', *left_out)}) <{consts}> {{{MOVEMENT}\n}}"


def windows(*left_out: str) -> str:
    """A graph of convolutions, norms and products, but those with these results."""
    rng = np.random.default_rng(2)

    def values(name: str, *shape: int, positive: bool = False) -> str:
        drawn = rng.standard_normal(shape).reshape(-1)
        drawn = np.abs(drawn) + 0.5 if positive else drawn
        return f"float[{','.join(map(str, shape))}] {name} = {{{', '.join(f'{v:.4f}' for v in drawn)}}}"

    consts = ", ".join((
        values("w", 6, 4, 3, 2), values("bias", 6), values("each", 4, 1, 3, 3), values("turned", 4, 3, 3, 2),
        values("one", 4, positive=True), values("two", 4, positive=True), values("row", 5), values("b2", 7, 5), values("c2", 7),
        values("b3", 5, 3),
    ))  # fmt: skip
    return f"g (float[1,4,7,5] x) => ({outputs(WINDOWS, 'flat', *left_out)}) <{consts}> {{{WINDOWS}\n}}"
