"""What is fitted, from where, and what is set beforehand.

A fitted parameter starts at a prior value and is held near it by a ridge on its logarithm: to be off by its ``spread`` costs as
much as one model that is 15 % off. The rest is fixed: freeing it does not lower the error on families that were left out.
"""

from __future__ import annotations

#: Name -> (prior, spread of its logarithm, what it is). Times are seconds on the Snapdragon 8 Gen 3.
FITTED: dict[str, tuple[float, float, str]] = {
    "rate/f16": (0.8, 0.4, "MACs in float16 over the SoC file's peak"),
    "rate/w8a8": (0.8, 0.4, "MACs in INT8 over the SoC file's peak"),
    "rate/w8a16": (0.4, 0.4, "MACs of 16-bit by 8-bit integers over the SoC file's INT8 peak"),
    "rate/grouped": (0.5, 1, "rate of packed groups over that of a plain convolution"),
    "rate/matmul": (0.5, 0.8, "rate of products of two activations over that of a plain convolution"),
    "vector": (1.0, 0.8, "vector bytes per second over the SoC file's"),
    "layout": (1.5, 0.6, "cost of data movement and rows of tokens in ONNX Runtime's partitions"),
    "vector/function": (1.4, 0.6, "cost per byte of transcendental functions over elementwise"),
    "vector/norm": (2.2, 0.8, "cost per byte of normalisations over elementwise"),
    "vector/softmax": (3.0, 0.8, "cost per byte of softmax over elementwise"),
    "vector/conv": (0.5, 0.8, "cost per byte that a convolution writes over elementwise"),
    "vector/depthwise": (2.0, 0.8, "cost per byte of depthwise convolutions over elementwise"),
    "vector/gemm": (1.0, 0.8, "cost per byte that a product with constant weights writes over elementwise"),
    "vector/matmul": (1.0, 0.8, "cost per byte of products of two activations over elementwise"),
    "vector/join": (0.5, 1, "cost per byte of joining or splitting images at whole blocks of channels"),
    "norm/w8a8": (2.0, 0.8, "norms and softmax on INT8 over the same bytes in float"),
    "op_s": (0.5e-6, 1, "each operator that is no view"),
    "gemm_s": (5e-6, 1.4, "each product with constant weights: its layout changes"),
    "token_s": (1e-6, 1.4, "each operator on rows of tokens"),
    "pace/litert": (0.97, 0.2, "factor of TFLite's graphs on compute and dispatch"),
    "fixed/qnn/float": (0.23e-3, 0.8, "fixed cost of a graph"),
    "fixed/litert/float": (0.29e-3, 0.8, "fixed cost of a graph"),
    "fixed/ort/float": (0.08e-3, 0.8, "fixed cost of a graph"),
    "fixed/qnn/w8a8": (0.09e-3, 0.8, "fixed cost of a graph"),
    "fixed/litert/w8a8": (0.06e-3, 0.8, "fixed cost of a graph"),
    "fixed/ort/w8a8": (0.10e-3, 0.8, "fixed cost of a graph"),
    "fixed/qnn/w8a16": (0.32e-3, 0.8, "fixed cost of a graph"),
    "fixed/ort/w8a16": (0.12e-3, 0.8, "fixed cost of a graph"),
}
#: Name -> (value, basis).
FIXED: dict[str, tuple[float, str]] = {
    "rate/conv1x1": (1.0, "as a plain convolution: freed, it stays within 2 %"),
    "rate/gemm": (1.0, "as a plain convolution: freed, it goes to 1.05"),
    "prefetch": (0.5, "double buffering: half of the on-chip memory; freed, it goes to 0.46"),
    "vector/gemm_read": (0.5, "what a product reads, converted once; freed, it goes to 0.47"),
    "vector/view": (0.3, "a reshape of blocked tensors moves some of them; freed, it stays there"),
    "function/w8a8": (0.7, "integers look functions up in tables; freed, it goes to 0.65"),
    "function/w8a16": (0.7, "as in w8a8"),
    "conv/w8a8": (0.5, "requantization on the way out of the matrix unit; freed, it goes to 0.52"),
    "fixed_on_unit": (0.75, "of a fixed cost, the share that scales with the vector rate, not the host; of five, best on chips left out"),
    "reference/vector_bytes_s": (132e9, "the chip that dispatch times and fixed costs were fitted on: Snapdragon 8 Gen 3"),
    "reference/host_hz": (3.3024e9, "the chip that fixed costs were fitted on: Snapdragon 8 Gen 3's fastest core"),
}
