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


#: Forms that a writer easily gets wrong, each a graph of its own: written right, or refused (by name, where that is in order).
TRAPS = {
    "slice_to_the_end": """g (float[2,6] x) => (float[2,5] y) <int64[1] s = {1}, int64[1] e = {9223372036854775807}, int64[1] a = {1}> {
        y = Slice(x, s, e, a) }""",
    "one_bound": "g (float[8] x) => (float[8] y) <float k = {1000000}, float l = {1}> { b = Mul(x, k) y = Clip(b, l) }",
    "computed_indices_from_the_end": """g (float[5,3] x, float[4] f) => (float[4,3] y) <float l = {-2}, float h = {-1}> {
        c = Clip(f, l, h) i = Cast <to = 7> (c) y = Gather(x, i) }""",
    "a_column_added": """g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1, 2, 3, 4}, float[2,1] c = {5, -5}> {
        y = Gemm <transB = 1> (x, w, c) }""",
    "a_matrix_added": """g (float[2,2] x) => (float[2,3] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2,3] c = {5, -5, 1, 2, 3, 4}> {
        y = Gemm <transB = 1, beta = 2.0> (x, w, c) }""",
    "wide_integers": """g (float[4] x) => (int64[4] y) <int64[4] k = {1, -2, 3, 4}, int64 l = {-1}> {
        c = Cast <to = 7> (x) a = Add(c, k) y = Clip(a, l) }""",
    "integers_beyond_32_bits": "g (float[2] x) => (int64[2] y) <int64[2] k = {1, 4294967297}> { c = Cast <to = 7> (x) y = Add(c, k) }",
    "whole_exponent": "g (float[4] x) => (float[4] y) <int64 k = {2}> { y = Pow(x, k) }",
    "remainders_with_a_sign": "g (float[4] x, float[4] z) => (float[4] y) { y = Mod <fmod = 1> (x, z) }",
    "truth": "g (float[4] x) => (bool[4] y) <float z = {0}> { y = Greater(x, z) }",
    "words_of_the_format": "g (float[4] func) => (float[4] tensor) { tensor = Relu(func) }",
    "factors_beside_the_sizes": """g (float[1,1,5,5] x) => (float[1,1,6,6] y) <float[4] s = {1, 1, 1.3, 1.3}> {
        y = Resize <mode = "linear"> (x, , s) }""",
    "averages_while_shrinking": """g (float[1,1,8,8] x) => (float[1,1,4,4] y) <float[4] s = {1, 1, 0.5, 0.5}> {
        y = Resize <mode = "linear", antialias = 1> (x, , s) }""",
    "nearest_below": """g (float[1,1,3,3] x) => (float[1,1,6,6] y) <float[4] s = {1, 1, 2, 2}> {
        y = Resize <mode = "nearest", nearest_mode = "floor"> (x, , s) }""",
    "transposed_to_a_shape": """g (float[1,1,3,3] x) => (float[1,1,6,6] y) <float[1,1,3,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
        y = ConvTranspose <strides = [2, 2], output_shape = [6, 6]> (x, w) }""",
    "scales_along_the_sum": """g (float[3,2] x) => (float[3,2] y) <float s = {0.05}, uint8 z = {120}, float[2] t = {0.01, 0.1},
        int8[2] o = {0, 0}, float u = {0.2}, int8[2,2] w = {10, -20, 127, 3}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) v = DequantizeLinear <axis = 0> (w, t, o)
        m = MatMul(d, v) l = QuantizeLinear(m, u, z) y = DequantizeLinear(l, u, z) }""",
    "two_scales": """g (float[8] x) => (float[8] y) <float s = {0.05}, int8 z = {3}, float u = {0.2}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) e = DequantizeLinear(q, u, z) a = Relu(d) b = Relu(e) y = Sub(a, b) }""",
}
#: Largest difference where a result is quantized: one step of it.
STEPS = {"scales_along_the_sum": 0.2001}
