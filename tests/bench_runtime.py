#!/usr/bin/env python3
"""Whole models on this machine's kernels beside ONNX Runtime, which runs the same file, on one thread and on two.

    python tests/bench_runtime.py [NAME ...] [--rounds N] [--threads 1|2] [--profile]

Both run in turn, many times; the ratio of each pair counts, and the median of the ratios. One thread: processor time, which
other users of the machine disturb least; two: wall time, and before every timed run a rest and a run that is not timed, because
threads of the one that ran before still spin for a while and hold a core.

INT8 models without a file of their own are quantized here by ONNX
Runtime's static quantization (Q/DQ, int8 weights per channel, uint8 activations), with seeded random samples: their speed
is what is compared. ``--profile`` prints the operator types of ours, most expensive first.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from runtime.conftest import hand_plan

import hetsched
from hetsched.graph import Graph
from hetsched.passes import standard, undo
from hetsched.plans import Plan
from hetsched.runtime import Executable, compile, make_inputs, supported

ROOT = Path(__file__).parent.parent
#: Composites that no kernel of this project runs.
WITHOUT_KERNELS = ("MergedMatMul", "SkipLayerNorm")
#: After so long no thread spins any more: ONNX Runtime's do for about 40 ms after a run.
_REST_S = 0.06
FOLDERS = (ROOT / "models", ROOT.parent / "shared" / "models" / "real")


@dataclass(frozen=True)
class Model:
    """A model to run: its file, open dims, whether it is quantized here first, and how fast it must be, ONNX Runtime being 1."""

    name: str
    file: str
    goal: float
    dims: tuple[tuple[str, int], ...] = ()
    quantize: bool = False
    fill: bool = False


OCR = (("p2o.DynamicDimension.1", 480), ("p2o.DynamicDimension.2", 480))
MODELS = (
    Model("MobileNetV2 INT8", "mobilenet_v2_qdq.onnx", 1.0),
    Model("ResNet-50 INT8", "onnx_light__light_resnet50.onnx", 1.0, quantize=True, fill=True),
    Model("PP-OCRv4 det INT8", "pp-ocrv4-det.onnx", 1.0, OCR, quantize=True),
    Model("MobileNetV2 float32", "mobilenet_v2.onnx", 0.8),
    Model("ResNet-50 float32", "onnx_light__light_resnet50.onnx", 0.8, fill=True),
    Model("MiniLM float32", "minilm-l3-onnx.onnx", 0.8, (("sequence_length", 128),)),
)


def filled(path: Path, to: Path) -> Path:
    """A copy of a model whose weights are computed from shapes, with seeded weights of useful size instead."""
    import onnx
    from onnx import numpy_helper

    model, rng = onnx.load(path), np.random.default_rng(0)
    shapes = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            kept.append(node)
            continue
        shape = [int(v) for v in shapes[node.input[0]]]
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        values = rng.standard_normal(shape) * np.sqrt(2 / fan) if len(shape) > 1 else rng.random(shape) * 0.5 + 0.5
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    constants = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    onnx.save(_renewed(model), to)
    return to


def _renewed(model: Any) -> Any:
    """The model in operator set 13, which scales per channel need; what these models use means the same there."""
    model.ir_version, model.opset_import[0].version = 8, max(model.opset_import[0].version, 13)
    return model


def quantized(path: Path, to: Path, feeds: dict[str, Any]) -> Path:
    """The model with Q/DQ around its operators, by ONNX Runtime's own tool."""
    import logging

    import onnx
    import onnxruntime as ort
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        left = iter([feeds])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.left, None)

    logging.getLogger().setLevel(logging.ERROR)
    ort.set_default_logger_severity(4)
    ready = to.with_suffix(".ready.onnx")
    onnx.save(_renewed(onnx.load(path)), to)
    quant_pre_process(to, ready, skip_symbolic_shape=True)
    quantize_static(
        ready, to, Samples(), quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8
    )  # fmt: skip
    return to


def prepared(model: Model, folder: Path) -> Path | None:
    """The file to run; None where the model is not here."""
    path = next((f / model.file for f in FOLDERS if (f / model.file).is_file()), None)
    if path is None:
        return None
    if model.fill:
        path = filled(path, folder / f"{model.name} filled.onnx".replace(" ", "_"))
    if model.quantize:
        graph = hetsched.load(path, dims=dict(model.dims))
        path = quantized(path, folder / f"{model.name}.onnx".replace(" ", "_"), make_inputs(graph, 0))
    return path


def ours(stack: ExitStack, path: Path, model: Model, threads: int) -> tuple[Executable, dict[str, Any]]:
    """The model on one queue of ``threads`` cores, compiled; nothing is planned, so that no calibration is needed."""
    graph = undo(standard(hetsched.load(path, dims=dict(model.dims))), WITHOUT_KERNELS)
    cores = sorted(os.sched_getaffinity(0))[:threads]
    quantized = any(t.quantization is not None for t in graph.tensors.values())

    def precision(i: int) -> str:
        return "w8a8" if quantized and supported(graph.ops[i], graph, "w8a8") is None else "f32"

    plan = hand_plan(graph, lambda i: "cpu:" + ",".join(map(str, cores)), precision)
    return stack.enter_context(compile(graph, shared(plan, graph))), make_inputs(graph, 0)


def shared(plan: Plan, graph: Graph) -> Plan:
    """The plan with tensors of which never two are needed at once in the same bytes, as planned ones have them."""
    life: dict[str, list[int]] = {n: [-1] for n in graph.inputs}
    for i, op in enumerate(graph.ops):
        for name in (*op.inputs, *op.outputs):
            if name and not graph.tensors[name].is_constant:
                life.setdefault(name, []).append(i)
    for name in graph.outputs:
        life[name].append(len(graph.ops))
    placed: list[Any] = []
    for b in sorted(plan.buffers, key=lambda b: -b.nbytes):
        first, last = min(life[b.tensor]), max(life[b.tensor])
        taken = sorted((p.offset, p.offset + p.nbytes) for p in placed if min(life[p.tensor]) <= last and first <= max(life[p.tensor]))
        offset = 0
        for low, high in taken:
            if offset + b.nbytes <= low:
                break
            offset = max(offset, -(-high // 64) * 64)
        placed.append(b.model_copy(update={"offset": offset}))
    return plan.model_copy(update={"buffers": tuple(placed), "arena_bytes": max(p.offset + p.nbytes for p in placed)})


def theirs(path: Path, threads: int) -> Any:
    """A session of ONNX Runtime with all optimisations."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 4
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class Row:
    """A model on some threads: milliseconds of both, and the median of how many times as fast ours is."""

    model: Model
    threads: int
    our_ms: float
    their_ms: float
    ratio: float

    @property
    def ok(self) -> bool:
        """Whether the goal is met."""
        return self.ratio >= self.model.goal

    def text(self) -> str:
        """A line of the table."""
        what = f"{self.model.name}, {self.threads} thread{'s' if self.threads > 1 else ''}"
        measured = f"{self.ratio:.2f}x ({self.our_ms:.2f} ms, ONNX Runtime {self.their_ms:.2f} ms)"
        return f"{what:32s} | {self.model.goal:.1f}x ONNX Runtime | {measured:44s} | {'ok' if self.ok else 'FALLS SHORT'}"


def rows(wanted: list[Model], threads: list[int], rounds: int, profile: bool, folder: Path) -> Iterator[Row]:
    """Measure one model after another."""
    for model in wanted:
        path = prepared(model, folder)
        if path is None:
            print(f"{model.name}: {model.file} is not here; run 'make models'", file=sys.stderr)
            continue
        for count in threads:
            with ExitStack() as stack:
                executable, feeds = ours(stack, path, model, count)
                session = theirs(path, count)
                yield replace(_measured(executable, feeds, session, count, rounds), model=model)
                if profile:
                    print_profile(executable, feeds)


def _measured(executable: Executable, feeds: dict[str, Any], session: Any, threads: int, rounds: int) -> Row:
    def timed(call: Callable[[], object]) -> float:
        if threads > 1:
            time.sleep(_REST_S)
            call()
        start = clock()
        call()
        return clock() - start

    clock = time.process_time if threads == 1 else time.perf_counter
    calls = partial(executable.run, feeds, trace=False), partial(session.run, None, feeds)
    pairs = [(timed(calls[0]), timed(calls[1])) for _ in range(rounds + 3)]
    mine, other = zip(*pairs[3:], strict=True)
    return Row(MODELS[0], threads, 1e3 * median(mine), 1e3 * median(other), median(b / a for a, b in pairs[3:]))


def print_profile(executable: Executable, feeds: dict[str, Any]) -> None:
    """Milliseconds of every operator's fastest run, by type and precision."""
    spans = [s for s in executable.run(feeds, repeat=20).trace.spans if s.kind == "op"]
    fastest: dict[str, float] = {}
    for s in spans:
        fastest[s.name] = min(fastest.get(s.name, 1e9), s.end_s - s.start_s)
    plan = executable.plan
    assert isinstance(plan, Plan)
    placed = {p.op: f"{p.type} {p.precision} {p.delegate}" for p in plan.placements}
    sums, counts = Counter[str](), Counter[str]()
    for name, seconds in fastest.items():
        sums[placed[name]] += seconds  # type: ignore[assignment]
        counts[placed[name]] += 1
    for kind, seconds in sums.most_common(12):
        print(f"    {1e3 * seconds:8.3f} ms  {counts[kind]:4d}  {kind}")
    for name, seconds in sorted(fastest.items(), key=lambda item: -item[1])[:12]:
        op = executable.graph.ops[executable.graph.op_index[name]]
        shapes = " ".join(str(list(executable.graph.tensors[n].shape)) for n in (*op.inputs[:2], op.outputs[0]) if n)
        print(f"    {1e6 * seconds:8.0f} µs  {op.type:18s} {shapes} {op.attr_int('group', 1)}  {name[:40]}")


def main() -> int:
    """Print the table; 0 if every goal is met."""
    parser = argparse.ArgumentParser(description="Whole models beside ONNX Runtime.")
    parser.add_argument("names", nargs="*", help="parts of model names; all without")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, choices=(1, 2))
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    wanted = [m for m in MODELS if not args.names or any(n.lower() in m.name.lower() for n in args.names)]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        threads = [args.threads] if args.threads else [1, 2]
        for row in rows(wanted, threads, args.rounds, args.profile, Path(folder)):
            found.append(row)
            print(row.text(), flush=True)
    met = sum(r.ok for r in found)
    print(f"{met} of {len(found)} goals met")
    return 0 if found and met == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
