"""``python -m hetsched_kernels.benchmark_language``: the language kernels beside this machine's read bandwidth and ONNX Runtime.

Weights are cold: every run goes through several copies, more than the caches hold, and the bandwidth is measured over as many
bytes. Runs are interleaved, one thread, thread CPU time, medians. Exits 1 when something falls short.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hetsched_kernels import measure
from hetsched_kernels.arrays import NO_F32, Array
from hetsched_kernels.benchmark import Row, medians
from hetsched_kernels.benchmark_language_peers import dynamic_quantize_runner, n_bits_runner
from hetsched_kernels.comparison_language import gguf_blocks
from hetsched_kernels.few_bits import GROUP, K, N, PackedGroups, aligned_bytes, pack_groups
from hetsched_kernels.gemm_groups import gemm_groups_f32, gemm_groups_scratch
from hetsched_kernels.gguf_groups import gguf_groups
from hetsched_kernels.groups import Groups
from hetsched_kernels.kv_cache import append_tokens, attend_cache, attend_scratch, cache_bytes, cache_geometry
from hetsched_kernels.quantize import quantize_rows
from hetsched_kernels.quantize_groups import quantize_groups

#: Bytes that a round of cold weights reads.
_COLD = 320 << 20
_SIDE = 4096


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


def _reader(nbytes: int) -> Callable[[], Any]:
    data = np.ones(nbytes // 4, np.float32)
    return lambda: measure.read_bandwidth(data)


def _gemv_rows(rng: np.random.Generator) -> list[Row]:
    rows = []
    x = rng.standard_normal((1, _SIDE)).astype(np.float32)
    for group in (32, 128):
        codes = rng.integers(0, 16, (_SIDE, _SIDE)).astype(np.uint8)
        scales = (rng.random((_SIDE, _SIDE // group)) * 0.02 + 0.001).astype(np.float16).astype(np.float32)
        packed = _copies(pack_groups(Groups(codes, 4, group, scales)))
        rows += _against_bandwidth(f"W4A8 GEMV {_SIDE}x{_SIDE} g{group}", packed, x, 0.8)
        peer = n_bits_runner(codes, scales, group, x, 4, len(packed))
        if peer is not None:
            seconds = medians([_product(packed, 1, x), peer])
            work = 2 * codes.size * len(packed)
            rows.append(Row(f"W4A8 GEMV g{group}, against ORT accuracy 4", work / seconds[0], work / seconds[1], 1.4, "GOP/s"))
    for kind, goal in (("Q8_0", 0.8), ("Q4_1", 0.8), ("Q5_0", 0.7), ("Q4_K", 0.7), ("Q6_K", 0.6), ("TQ2_0", 0.8)):
        weight = gguf_groups(kind, gguf_blocks(rng, kind, _SIDE, _SIDE), _SIDE, _SIDE)
        rows += _against_bandwidth(f"{kind} GEMV {_SIDE}x{_SIDE}", _copies(pack_groups(weight)), x, goal)
    return rows


def _against_bandwidth(name: str, packed: list[PackedGroups], x: Array, goal: float) -> list[Row]:
    size = packed[0].data.size * len(packed)
    seconds = medians([_product(packed, 1, x), _reader(size)])
    return [Row(f"{name}, of bandwidth", size / seconds[0], size / seconds[1], goal, "GB/s")]


def _gemm_rows(rng: np.random.Generator) -> list[Row]:
    rounds, rows = 50_000, []
    for group in (32, 128):
        codes = rng.integers(0, 16, (2048, 2048)).astype(np.uint8)
        scales = (rng.random((2048, 2048 // group)) * 0.02 + 0.001).astype(np.float16)
        x = rng.standard_normal((128, 2048)).astype(np.float32)
        work = 2 * codes.size * len(x)
        ours = _product([pack_groups(Groups(codes, 4, group, scales))], len(x), x)
        seconds = medians([ours, lambda: measure.peak_i8(rounds)])
        peak = measure.peak_i8(1) * rounds / seconds[1]
        rows.append(Row(f"W4A8 GEMM 128x2048x2048 g{group}", work / seconds[0], peak, 0.4, "GOP/s"))
        peer = n_bits_runner(codes, scales.astype(np.float32), group, x, 4, 1)
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

        seconds = medians([ours, _reader(cache.size)])
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
    for make in (_gemv_rows, _gemm_rows, _attention_rows, _quantize_rows):
        for row in make(rng):
            print(row.text(), flush=True)
            short, count = short + (not row.ok), count + 1
    print(f"{count - short} of {count} goals met")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
