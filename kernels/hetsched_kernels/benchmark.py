"""``python -m hetsched_kernels.benchmark``: kernels beside their peers on one thread, as what | goal | measured | ok.

Goals are fractions of the peak that this machine reaches in registers, or speed-ups over numpy; ONNX Runtime is timed too where
it is installed. Runs are interleaved and the medians compared. Exits 1 when something falls short.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from hetsched_kernels import codes, conv, conv_i8, elementwise, gemm, gemm_i8, measure, movement, nhwc, nhwc_conv, nhwc_depthwise, quantize
from hetsched_kernels.arrays import NO_F32, Array
from hetsched_kernels.benchmark_peers import REPEATED, ort_runner, quantized_convolution_runner
from hetsched_kernels.program import Call, compile_program, counters, run_program
from hetsched_kernels.window import conv_geometry, conv_output

_ROUNDS = 15


@dataclass(frozen=True)
class Row:
    """One line of the table: how fast, in operations a second, beside its peak (or its peer) and the fraction wanted."""

    what: str
    rate: float
    reference: float
    goal: float
    unit: str

    @property
    def ok(self) -> bool:
        """Whether the goal is met."""
        return self.rate >= self.goal * self.reference

    def text(self) -> str:
        """The line."""
        reached = self.rate / self.reference
        verdict = "ok" if self.ok else "FALLS SHORT"
        return f"{self.what:46s} | {self.goal:6.0%} | {reached:6.0%} ({self.rate / 1e9:7.1f} {self.unit}) | {verdict}"


def medians(functions: Sequence[Callable[[], Any]]) -> list[float]:
    """Median seconds of thread time of each function, interleaved so that all see the same machine, each on its own warm caches."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(_ROUNDS):
        for function, out in zip(functions, times, strict=True):
            function()
            start = time.thread_time()
            function()
            out.append(time.thread_time() - start)
    return [median(t) for t in times]


def peaks() -> tuple[float, float]:
    """Float32 and int8 operations a second of one core, in registers."""
    rounds = 200_000
    seconds = medians([lambda: measure.peak_f32(rounds), lambda: measure.peak_i8(rounds)])
    return measure.peak_f32(1) * rounds / seconds[0], measure.peak_i8(1) * rounds / seconds[1]


def _gemm_rows(rng: np.random.Generator) -> list[Row]:
    rows = []
    for m, n, k in ((512, 512, 512), (128, 384, 1536), (256, 1024, 1024)):
        a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
        packed, out, scratch = gemm.pack_b_f32(b), np.empty(m * n, np.float32), np.empty(gemm.gemm_f32_scratch(m, n, k), np.float32)
        left = a.reshape(-1)
        q = rng.integers(0, 256, m * k).astype(np.uint8)
        weights = gemm_i8.pack_b_i8(rng.integers(-128, 128, (k, n)).astype(np.int8))
        bytes_ = np.empty(gemm_i8.gemm_i8_scratch(m, n, k), np.uint8)
        one, zero = np.ones(1, np.float32), np.full(1, 128, np.int32)

        def f32(m: int = m, n: int = n, k: int = k, args: Any = (left, packed, NO_F32, out, scratch)) -> None:
            gemm.gemm_f32(*args, m, n, k, codes.RELU, 0.0, 0.0)

        def i8(m: int = m, n: int = n, k: int = k, args: Any = (q, one, zero, *weights, one, NO_F32, out, bytes_)) -> None:
            gemm_i8.gemm_i8_f32(*args, m, n, k, False, codes.RELU, 0.0, 0.0)

        rows += _against_peak(f"gemm {m}x{n}x{k}", f32, i8, 2 * m * n * k)
        rows += _against_ort(f"gemm {m}x{n}x{k}", f32, ort_runner("MatMul", a, b, {}), 2 * m * n * k)
    return rows


def _conv_rows(rng: np.random.Generator) -> list[Row]:
    rows = []
    same = (1, 1, 1, 1)
    cases: list[tuple[str, Array, float]] = [
        ("conv 1x1 64-64 56x56", conv_geometry(1, 64, 56, 56, 64, 1, 1), 0.6),
        ("conv 1x1 256-512 14x14", conv_geometry(1, 256, 14, 14, 512, 1, 1), 0.6),
        ("conv 3x3 64-64 56x56", conv_geometry(1, 64, 56, 56, 64, 3, 3, (1, 1), same), 0.6),
        ("conv 3x3 depthwise 96 80x80", conv_geometry(1, 96, 80, 80, 96, 3, 3, (1, 1), same, groups=96), 0.08),
    ]
    for name, g, goal in cases:
        c, h, w, m, kh, kw, groups = (int(g[i]) for i in (1, 2, 3, 4, 5, 6, 15))
        shape, size = (m, c // groups, kh, kw), m * int(np.prod(conv_output(g)))
        x, weights = rng.standard_normal(c * h * w).astype(np.float32), rng.standard_normal(shape).astype(np.float32)
        args = (
            x,
            conv.pack_conv_f32(weights, groups),
            NO_F32,
            np.empty(size, np.float32),
            np.empty(conv.conv2d_f32_scratch(g), np.float32),
            g,
        )
        packed = conv_i8.pack_conv_i8(rng.integers(-128, 128, shape).astype(np.int8), groups)
        scales = np.full(m, 1e-3, np.float32)
        q = rng.integers(0, 256, c * h * w).astype(np.uint8)
        bytes_ = (q, *packed, scales, NO_F32, np.empty(size, np.uint8), np.empty(conv_i8.conv2d_i8_scratch(g), np.uint8), g)

        def f32(args: Any = args) -> None:
            conv.conv2d_f32(*args, codes.RELU, 0.0, 0.0)

        def i8(args: Any = bytes_) -> None:
            conv_i8.conv2d_i8_q8(*args, 128, False, codes.RELU, 0.0, 0.0, 0.05, 3, False)

        work = 2 * size * (c // groups) * kh * kw
        rows += _against_peak(name, f32, i8, work, goal)
        attributes = {"strides": [int(g[7]), int(g[8])], "pads": [int(v) for v in g[9:13]], "group": groups}
        rows += _against_ort(name, f32, ort_runner("Conv", x.reshape(1, c, h, w), weights, attributes), work)
    return rows


def _image_rows(rng: np.random.Generator) -> list[Row]:
    """Channels-last 8-bit convolutions beside chains of QLinearConv."""
    rows = []
    cases = (
        ("conv 1x1 64-64 56x56", conv_geometry(1, 64, 56, 56, 64, 1, 1), 1.0),
        ("conv 1x1 256-256 14x14", conv_geometry(1, 256, 14, 14, 256, 1, 1), 1.0),
        ("conv 3x3 64-64 56x56", conv_geometry(1, 64, 56, 56, 64, 3, 3, (1, 1), (1, 1, 1, 1)), 1.0),
        ("conv 3x3 256-256 14x14", conv_geometry(1, 256, 14, 14, 256, 3, 3, (1, 1), (1, 1, 1, 1)), 1.0),
        ("depthwise 3x3 64 80x80", conv_geometry(1, 64, 80, 80, 64, 3, 3, (1, 1), (1, 1, 1, 1), groups=64), 2.5),
        ("depthwise 3x3 576 14x14", conv_geometry(1, 576, 14, 14, 576, 3, 3, (1, 1), (1, 1, 1, 1), groups=576), 2.5),
    )
    for name, g, goal in cases:
        n, c, h, w, m, kh, kw = (int(v) for v in g[:7])
        groups, size = int(g[15]), n * m * int(np.prod(conv_output(g)))
        x, weights = rng.integers(0, 256, (n, c, h, w)).astype(np.uint8), rng.integers(-127, 128, (m, c // groups, kh, kw)).astype(np.int8)
        ours = _image_runner(x, weights, g)
        attributes = {"kernel_shape": [kh, kw], "pads": [int(v) for v in g[9:13]], "group": groups}
        theirs = quantized_convolution_runner(x, weights, attributes)
        if theirs is not None:
            seconds, work = medians([ours, theirs]), 2 * size * (c // groups) * kh * kw
            rows.append(Row(f"{name} int8, against ORT", work * REPEATED / seconds[0], work * REPEATED / seconds[1], goal, "GOP/s"))
    return rows


def _aligned(x: Array) -> Array:
    """A copy that starts on a cache line, as weights and tensors do when a plan runs."""
    room = np.empty(x.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    out = room[start : start + x.nbytes].view(x.dtype)
    out[:] = x
    return out


def _image_runner(x: Array, w: Array, g: Array) -> Callable[[], None]:
    """A channels-last 8-bit convolution, :data:`REPEATED` times in a program, as a plan runs it."""
    c, m, positions = int(g[1]), w.shape[0], int(g[0] * np.prod(conv_output(g)))
    stored = _aligned(np.concatenate([x.transpose(0, 2, 3, 1).reshape(-1), np.zeros(nhwc.SLACK, np.uint8)]))
    out = _aligned(np.zeros(positions * m, np.uint8))
    factors, shifts = np.full(m, 1e-3, np.float32), np.zeros(m, np.float32)
    calls = []
    if int(g[15]) > 1:
        scratch = _aligned(np.zeros(nhwc_depthwise.depthwise_nhwc_scratch(g), np.uint8))
        parts = (*nhwc_depthwise.pack_depthwise_nhwc(w, 128), nhwc_depthwise.terms(factors), nhwc_depthwise.terms(shifts))
        args = (stored, *map(_aligned, parts), out, scratch, g, 128, 0, 255, 128, 0, int(g[0] * g[16]))
        return _repeated([Call(nhwc_depthwise.depthwise_nhwc_i8, (), args)])
    geometry = g
    if nhwc.worth_padding(g):
        top, left, bottom, right = (int(v) for v in g[9:13])
        geometry, image = nhwc.padded(g), _aligned(np.zeros(nhwc.padded_elements(g) + nhwc.SLACK, np.uint8))
        sizes = (int(g[0]), int(g[2]), int(g[3]) * c, top, bottom, left * c, right * c)
        calls.append(Call(nhwc.pad_nhwc, ("uint8",), (stored, image, *sizes, np.full(1, 128, np.uint8))))
        stored = image
    scratch = _aligned(np.zeros(nhwc_conv.conv2d_nhwc_scratch(g), np.uint8))
    weights = [_aligned(v) for v in (*nhwc_conv.pack_conv_nhwc(w, 128), nhwc_conv.terms(factors), nhwc_conv.terms(shifts))]
    tail = (geometry, c, 128, codes.NONE, 0.0, 0.0, 0, 255, 1.0, 128, 0, positions)
    return _repeated([*calls, Call(nhwc_conv.conv2d_nhwc_i8, (), (stored, *weights, out, scratch, *tail))])


def _repeated(calls: list[Call]) -> Callable[[], None]:
    """The calls one after another, :data:`REPEATED` times."""
    program = compile_program([(call,) for call in calls] * REPEATED)
    count, stop, stamps = len(calls) * REPEATED, np.zeros(1, np.int64), np.zeros(0, np.int64)

    def run() -> None:
        run_program(program.table, program.steps, counters(count), stop, stamps, 0, count, 1, 0)

    return run


def _against_peak(name: str, f32: Callable[[], None], i8: Callable[[], None], work: int, goal: float = 0.6) -> list[Row]:
    rounds = 50_000
    seconds = medians([f32, i8, lambda: measure.peak_f32(rounds), lambda: measure.peak_i8(rounds)])
    f32_peak, i8_peak = measure.peak_f32(1) * rounds / seconds[2], measure.peak_i8(1) * rounds / seconds[3]
    i8_goal = 0.01 if goal < 0.5 else 0.2 if "1x1" in name else goal - 0.1
    return [
        Row(f"{name} f32", work / seconds[0], f32_peak, goal, "GFLOP/s"),
        Row(f"{name} int8", work / seconds[1], i8_peak, i8_goal, "GOP/s"),
    ]


def _against_ort(name: str, ours: Callable[[], None], theirs: Callable[[], Any] | None, work: int) -> list[Row]:
    """One row against ONNX Runtime, none where it is not installed."""
    if theirs is None:
        return []
    seconds = medians([ours, theirs])
    return [Row(f"{name} f32, against ORT", work / seconds[0], work / seconds[1], 0.9, "GFLOP/s")]


def _numpy_rows(rng: np.random.Generator) -> list[Row]:
    x = rng.standard_normal(1 << 16).astype(np.float32)
    out, q = np.empty_like(x), np.empty(x.size, np.uint8)
    scales, zeros = np.empty(32, np.float32), np.empty(32, np.int32)
    plane = x.reshape(64, 1024)
    source, target, strides = x.view(np.uint32), out.view(np.uint32), np.array([1, 1024], np.int64)
    to, shape = np.array([64, 1], np.int64), np.array([1024, 64], np.int64)

    def quantized() -> Any:
        scale = np.abs(x.reshape(32, -1)).max(1, keepdims=True) / np.float32(127)
        return np.rint(x.reshape(32, -1) / scale).astype(np.int8)

    pairs: list[tuple[str, Callable[[], Any], Callable[[], Any], float]] = [
        ("exp", lambda: elementwise.unary_f32(x, out, codes.EXP, 0.0, 0.0), lambda: np.exp(x), 0.6),
        ("tanh", lambda: elementwise.unary_f32(x, out, codes.TANH, 0.0, 0.0), lambda: np.tanh(x), 0.4),
        ("sigmoid", lambda: elementwise.unary_f32(x, out, codes.SIGMOID, 0.0, 0.0), lambda: 1 / (1 + np.exp(-x)), 1.5),
        ("dynamic quantization per token", lambda: quantize.quantize_rows(x, q, scales, zeros, 32, 2048, True, True), quantized, 2.0),
        (
            "transpose 64x1024",
            lambda: movement.copy_strided(source, 0, strides, target, 0, to, shape),
            lambda: np.ascontiguousarray(plane.T),
            1.0,
        ),
    ]
    rows = []
    for name, ours, theirs, goal in pairs:
        seconds = medians([ours, theirs])
        rows.append(Row(f"{name}, against numpy", x.size / seconds[0], x.size / seconds[1], goal, "Gelem/s"))
    return rows


def main() -> int:
    """Print the table; 0 when every goal is met."""
    rng = np.random.default_rng(0)
    f32, i8 = peaks()
    print(f"peak in registers: {f32 / 1e9:.0f} GFLOP/s float32, {i8 / 1e9:.0f} GOP/s int8")
    print(f"{'what':46s} |  goal  | measured                 | ok")
    rows = [*_gemm_rows(rng), *_conv_rows(rng), *_image_rows(rng), *_numpy_rows(rng)]
    for row in rows:
        print(row.text())
    short = sum(not row.ok for row in rows)
    print(f"{len(rows) - short} of {len(rows)} goals met")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
