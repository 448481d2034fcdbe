"""``python -m hetsched_kernels.benchmark_language``: the language kernels beside this machine's read bandwidth and ONNX Runtime.

Weights are cold: a run goes through several of them, each with values of its own (ONNX Runtime stores equal ones once), more than
the caches hold, and so does what is run in between; the bandwidth is that of as many bytes. One thread, thread CPU time, medians.
Exits 1 when something falls short. ONNX Runtime and ggml (the package llama_cpp) are peers where they are installed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from hetsched_kernels import measure
from hetsched_kernels.arrays import NO_F32, Array
from hetsched_kernels.benchmark import Row, medians
from hetsched_kernels.benchmark_ggml import repacked_runner
from hetsched_kernels.benchmark_language_peers import dynamic_product_runner, dynamic_quantize_runner, n_bits_runner
from hetsched_kernels.cache_attention import attend_cache, attend_scratch
from hetsched_kernels.comparison_language import gguf_blocks
from hetsched_kernels.few_bits import GROUP, K, N, PackedGroups, aligned_bytes, pack_groups
from hetsched_kernels.gemm_groups import gemm_groups_f32, gemm_groups_scratch
from hetsched_kernels.gemm_i8 import gemm_i8_f32, gemm_i8_scratch, pack_b_i8
from hetsched_kernels.gemm_w4a16 import gemm_w4a16, pair_bf16
from hetsched_kernels.gguf_groups import gguf_groups
from hetsched_kernels.groups import Groups
from hetsched_kernels.kv_cache import append_tokens, cache_bytes, cache_geometry
from hetsched_kernels.quantize import quantize_rows
from hetsched_kernels.quantize_groups import quantize_groups

#: Bytes that a round of cold weights reads.
_COLD = 512 << 20
_SIDE, _TURNS = 4096, 10


def _cold(functions: Sequence[Callable[[], Any]]) -> list[float]:
    """Median seconds of thread time of functions that each read more than the caches hold, in turn; the first turn is not counted."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(_TURNS):
        for function, out in zip(functions, times, strict=True):
            start = time.thread_time()
            function()
            out.append(time.thread_time() - start)
    return [median(t[1:]) for t in times]


def _copies(packed: PackedGroups) -> list[PackedGroups]:
    count = max(_COLD // packed.data.size, 1)
    out = []
    for _ in range(count):
        data = aligned_bytes(packed.data.size)
        data[:] = packed.data
        out.append(PackedGroups(data, packed.shape))
    return out


def _product(packed: Sequence[PackedGroups], m: int, x: Array) -> Callable[[], None]:
    """Quantization of x and its product with every copy in turn."""
    shape = packed[0].shape
    depth, group, n = int(shape[K]), int(shape[GROUP]), int(shape[N])
    groups = depth // group
    q, scales, sums = np.empty(m * depth, np.uint8), np.empty(m * groups, np.float32), np.empty(m * groups, np.int32)
    out, scratch = np.empty(m * n, np.float32), np.empty(gemm_groups_scratch(shape), np.float32)
    flat = x.reshape(-1)

    def run() -> None:
        for weight in packed:
            quantize_groups(flat, NO_F32, q, scales, sums, NO_F32, m, x.shape[1], depth, group)
            gemm_groups_f32(q, scales, sums, weight.data, weight.shape, NO_F32, out, scratch, m, 0, n, 0, 0.0, 0.0)

    return run


def _product_bf16(packed: Sequence[PackedGroups], x: Array) -> Callable[[], None]:
    """The same for a row of x in bfloat16."""
    shape = packed[0].shape
    depth, group, n = int(shape[K]), int(shape[GROUP]), int(shape[N])
    pairs, sums = np.empty(depth // 2, np.int32), np.empty(depth // group, np.float32)
    out, scratch = np.empty(n, np.float32), np.empty(gemm_groups_scratch(shape), np.float32)
    flat = x.reshape(-1)

    def run() -> None:
        for weight in packed:
            pair_bf16(flat, pairs, sums, 1, flat.size, depth, group)
            gemm_w4a16(pairs, sums, weight.data, weight.shape, NO_F32, out, scratch, 1, 0, n, 0, 0.0, 0.0)

    return run


def _reader(nbytes: int) -> Callable[[], Any]:
    data = np.ones(nbytes // 4, np.float32)
    return lambda: measure.read_bandwidth(data)


def _gemv_rows(rng: np.random.Generator) -> list[Row]:
    rows = []
    x = rng.standard_normal((1, _SIDE)).astype(np.float32)
    for group in (32, 128):
        codes, scales = _random_groups(rng, _SIDE, group)
        packed = _copies(pack_groups(Groups(codes, 4, group, scales)))
        ours, halves = _product(packed, 1, x), _product_bf16(packed, x)
        for name, run, goal in ((f"W4A8 GEMV {_SIDE}² g{group}", ours, 0.8), (f"W4A16 GEMV {_SIDE}² g{group}", halves, 0.7)):
            rows.append(_against_bandwidth(name, packed, run, goal))
        for name, run, level, goal in (("W4A8", ours, 4, 1.4), ("W4A16", halves, 0, 3.5)):
            peer = n_bits_runner(codes, scales, group, x, level, len(packed))
            if peer is not None:
                name = f"{name} GEMV g{group}, against ORT accuracy {level}"
                rows.append(_against(name, run, peer, 2 * codes.size * len(packed), goal))
    return rows


def _blocks_rows(rng: np.random.Generator) -> list[Row]:
    """GGUF's blocks computed on directly."""
    rows, x = [], rng.standard_normal((1, _SIDE)).astype(np.float32)
    kinds = (("Q4_0", 0.8), ("Q8_0", 0.8), ("Q4_1", 0.8), ("Q5_0", 0.7), ("Q4_K", 0.7), ("Q6_K", 0.6), ("TQ2_0", 0.8))
    for kind, goal in kinds:
        blocks = gguf_blocks(rng, kind, _SIDE, _SIDE)
        packed = _copies(pack_groups(gguf_groups(kind, blocks, _SIDE, _SIDE)))
        ours = _product(packed, 1, x)
        name = "ternary (TQ2_0)" if kind == "TQ2_0" else kind
        rows.append(_against_bandwidth(f"{name} GEMV {_SIDE}²", packed, ours, goal))
        peer = repacked_runner([np.roll(blocks, 18 * i) for i in range(len(packed))], _SIDE, x) if kind == "Q4_0" else None
        if peer is not None:
            rows.append(_against("Q4_0 GEMV, against ggml repacked", ours, peer[0], 2 * _SIDE * _SIDE * len(packed), 1.1))
    return rows


def _random_groups(rng: np.random.Generator, side: int, group: int) -> tuple[Array, Array]:
    """4-bit codes and scales that are float16 numbers."""
    codes = rng.integers(0, 16, (side, side)).astype(np.uint8)
    scales = (rng.random((side, side // group)) * 0.02 + 0.001).astype(np.float16).astype(np.float32)
    return codes, scales


def _against_bandwidth(name: str, packed: Sequence[PackedGroups], run: Callable[[], Any], goal: float) -> Row:
    size = packed[0].data.size * len(packed)
    seconds = _cold([run, _reader(size)])
    return Row(f"{name}, of bandwidth", size / seconds[0], size / seconds[1], goal, "GB/s")


def _against(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], work: int, goal: float) -> Row:
    seconds = _cold([ours, theirs])
    return Row(name, work / seconds[0], work / seconds[1], goal, "GOP/s")


def _bytes_rows(rng: np.random.Generator) -> list[Row]:
    """Int8 products of float activations that are quantized on the way, token by token."""
    rows, rounds, k = [], 50_000, 2048
    for m, n in ((128, 3072), (512, 3072), (128, 8192)):
        x, scales = rng.standard_normal((m, k)).astype(np.float32), np.full(n, 0.01, np.float32)
        w = rng.integers(-127, 128, (k, n)).astype(np.int8)
        ours, work = _dynamic_product(x, w, scales), 2 * m * n * k
        seconds = medians([ours, lambda: measure.peak_i8(rounds)])
        peak = measure.peak_i8(1) * rounds / seconds[1]
        rows.append(Row(f"int8 GEMM {m}x{n}x{k} dynamic, of the peak of vectors", work / seconds[0], peak, 0.9, "GOP/s"))
        peer = dynamic_product_runner(x, w, scales)
        if peer is not None:
            seconds = medians([ours, peer])
            rows.append(Row(f"int8 GEMM {m}x{n}x{k} dynamic, against ORT", work / seconds[0], work / seconds[1], 1.05, "GOP/s"))
    return rows


def _dynamic_product(x: Array, w: Array, scales: Array) -> Callable[[], None]:
    (m, k), n = x.shape, w.shape[1]
    packed, flat, q = pack_b_i8(w), x.reshape(-1), np.empty(x.size, np.uint8)
    x_scales, zeros, out = np.empty(m, np.float32), np.empty(m, np.int32), np.empty(m * n, np.float32)
    scratch = np.empty(gemm_i8_scratch(m, n, k), np.uint8)

    def run() -> None:
        quantize_rows(flat, q, x_scales, zeros, m, k, True, False)
        gemm_i8_f32(q, x_scales, zeros, *packed, scales, NO_F32, out, scratch, m, n, k, False, 0, 0.0, 0.0)

    return run


def _gemm_rows(rng: np.random.Generator) -> list[Row]:
    rounds, rows = 50_000, []
    for group in (32, 128):
        codes, scales = _random_groups(rng, 2048, group)
        x = rng.standard_normal((128, 2048)).astype(np.float32)
        work = 2 * codes.size * len(x)
        ours = _product([pack_groups(Groups(codes, 4, group, scales))], len(x), x)
        seconds = medians([ours, lambda: measure.peak_i8(rounds)])
        peak = measure.peak_i8(1) * rounds / seconds[1]
        rows.append(Row(f"W4A8 GEMM 128x2048x2048 g{group}", work / seconds[0], peak, 0.4, "GOP/s"))
        peer = n_bits_runner(codes, scales, group, x, 4, 1)
        if peer is not None:
            seconds = medians([ours, peer])
            rows.append(Row(f"W4A8 GEMM g{group}, against ORT accuracy 4", work / seconds[0], work / seconds[1], 1.0, "GOP/s"))
    return rows


def _attention_rows(rng: np.random.Generator) -> list[Row]:
    tokens, rows = 4096, []
    for heads, shared, dim in ((32, 8, 128), (9, 3, 64)):
        geometry = cache_geometry(heads, shared, dim)
        per = -(-tokens // 64)
        layers = max(_COLD // cache_bytes(geometry, per), 1)
        one = aligned_bytes(cache_bytes(geometry, per))
        values = rng.standard_normal(tokens * shared * dim).astype(np.float32)
        append_tokens(values, values, one, np.arange(per), geometry, 0, tokens)
        cache = aligned_bytes(one.size * layers)
        cache.reshape(layers, -1)[:] = one
        q, out = rng.standard_normal(heads * dim).astype(np.float32), np.empty(heads * dim, np.float32)
        scratch = np.empty(attend_scratch(geometry), np.float32)
        tables = [np.arange(i * per, (i + 1) * per, dtype=np.int64) for i in range(layers)]

        def ours(tables: Any = tables, args: Any = (q, cache), rest: Any = (geometry, out, scratch), scale: float = dim**-0.5) -> None:
            for pages in tables:
                attend_cache(*args, pages, *rest, tokens, 0, scale, 0.0)

        seconds = _cold([ours, _reader(cache.size)])
        rate = cache.size / seconds[0], cache.size / seconds[1]
        rows.append(Row(f"attention INT8 K, INT4 V, {heads}/{shared} x {dim}, T {tokens}", *rate, 0.6, "GB/s"))
    return rows


def _quantize_rows(rng: np.random.Generator) -> list[Row]:
    x = rng.standard_normal((512, 2048)).astype(np.float32)
    flat, q = x.reshape(-1), np.empty(x.size, np.uint8)
    scales, sums = np.empty(x.size // 32, np.float32), np.empty(x.size // 32, np.int32)
    peer = dynamic_quantize_runner(x)
    if peer is None:
        return []
    ours: list[tuple[str, Callable[[], Any]]] = [
        ("per token", lambda: quantize_groups(flat, NO_F32, q, scales, sums, NO_F32, 512, 2048, 2048, 2048)),
        ("g32", lambda: quantize_groups(flat, NO_F32, q, scales, sums, NO_F32, 512, 2048, 2048, 32)),
        ("per tensor, as ONNX", lambda: quantize_rows(flat, q, scales, sums, 1, x.size, False, False)),
    ]
    rows = []
    for name, run in ours:
        seconds = medians([run, peer])
        rows.append(Row(f"quantize 512x2048 {name}, against ORT", x.size / seconds[0], x.size / seconds[1], 1.2, "Gelem/s"))
    return rows


def main() -> int:
    """Print the table; 0 when every goal is met."""
    rng = np.random.default_rng(0)
    print(f"{'what':58s} |  goal  | measured                 | ok")
    short = count = 0
    for make in (_gemv_rows, _blocks_rows, _gemm_rows, _bytes_rows, _attention_rows, _quantize_rows):
        for row in make(rng):
            print(row.text(), flush=True)
            short, count = short + (not row.ok), count + 1
    print(f"{count - short} of {count} goals met")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
