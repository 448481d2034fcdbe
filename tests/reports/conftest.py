"""A believable sample: an 80-op detector on CPU, GPU and NPU, ten hot simulated minutes, and a measured run."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from hetsched.graph import DType, Graph, Op, Role, Tensor
from hetsched.plans import (
    Baseline,
    Buffer,
    Choice,
    Deployment,
    Entry,
    Fence,
    Header,
    ModelRef,
    Placement,
    Plan,
    PlanSegment,
    Prediction,
    SoCRef,
)
from hetsched.reports import CheckItem
from hetsched.trace import Instant, Span, Trace

QUEUES = ("cpu:0-3", "gpu", "npu")
SPEED = {"cpu:0-3": 3.0, "gpu": 1.6, "npu": 1.0}


def sample_graph(blocks: int = 18, prefix: str = "/backbone") -> Graph:
    """A trunk of residual blocks (four ops each) with a pyramid that reads back from four depths."""
    tensors = {"x": Tensor("x", (1, 3, 640, 640), DType.F32, Role.INPUT)}
    ops: list[Op] = []

    def add(name: str, kind: str, inputs: tuple[str, ...], size: int, **attrs: object) -> str:
        out = f"{name}_out"
        tensors[out] = Tensor(out, (1, 8, size, size), DType.F16)
        ops.append(Op(f"{prefix}/{name}", kind, inputs, (out,), attrs, origin=(f"{prefix}/{name}", f"{prefix}/{name}/bn")))
        return out

    last, taps = "x", []
    for b in range(blocks):
        size = 320 >> min(4, b // 4)
        wide = add(f"block{b}/expand", "FusedConv", (last,), size, kernel_shape=(1, 1), activation="HardSwish")
        deep = add(f"block{b}/depthwise", "FusedConv", (wide,), size, kernel_shape=(5, 5), group=16, activation="HardSwish")
        thin = add(f"block{b}/project", "Conv", (deep,), size, kernel_shape=(1, 1))
        last = add(f"block{b}/add", "Add", (thin, last if b else thin), size)
        if b % 4 == 3:
            taps.append(last)
    up = last
    for k, tap in enumerate(reversed(taps)):
        side = add(f"neck{k}/lateral", "Conv", (tap,), 40 << min(k, 4), kernel_shape=(1, 1))
        up = add(f"neck{k}/merge", "Resize", (up, side), 40 << min(k, 4))
    out = add("head/prob", "Sigmoid", (up,), 640)
    tensors[out] = Tensor(out, (1, 1, 640, 640), DType.F32, Role.OUTPUT)
    return Graph("det", tensors, tuple(ops), ("x",), (out,))


def queue_for(i: int, op: Op) -> str:
    if op.type in ("Resize", "Sigmoid"):
        return "gpu"
    return "cpu:0-3" if op.type == "Add" and i % 29 == 3 else "npu"


def sample_plan(graph: Graph, solver: str = "auto") -> Plan:
    rng = random.Random(7)
    queues = [queue_for(i, op) for i, op in enumerate(graph.ops)]
    seconds = [SPEED[q] * rng.uniform(2e-5, 3e-4) * (0.1 if op.type == "Add" else 1) for q, op in zip(queues, graph.ops, strict=True)]
    groups: list[list[int]] = []
    for i, q in enumerate(queues):
        if groups and queues[groups[-1][0]] == q:
            groups[-1].append(i)
        else:
            groups.append([i])
    owner = {i: k for k, g in enumerate(groups) for i in g}
    segments, fences, end = [], [], []
    free = dict.fromkeys(QUEUES, 0.0)
    for k, group in enumerate(groups):
        q = queues[group[0]]
        feeds = sorted({owner[int(p)] for i in group for p in graph.predecessors.row(i)} - {k})
        start = max([free[q], *(end[f] + 4e-5 for f in feeds)])
        work = sum(seconds[i] for i in group)
        end.append(start + 6e-5 + 2e-5 * len(feeds) + work)
        free[q] = end[-1]
        names = tuple(graph.ops[i].name for i in group)
        segments.append(
            PlanSegment(
                index=k,
                queue=q,
                ops=names,
                start_s=start,
                end_s=end[-1],
                launch_s=6e-5,
                transfer_s=2e-5 * len(feeds),
                work_s=work,
                energy_j=work * 2.5,
                transfers=tuple(f"t{f}" for f in feeds),
            )
        )
        fences += [Fence(signal=f, wait=k, sync_s=4e-5, mode="spin") for f in feeds]
    buffers: list[Buffer] = []
    for i, op in enumerate(graph.ops):
        tensor = graph.tensors[op.outputs[0]]
        last = max((owner[int(c)] for c in graph.successors.row(i)), default=owner[i])
        offset = 0
        for b in sorted(buffers, key=lambda b: b.offset):
            if b.last >= owner[i] and b.offset < offset + tensor.nbytes and offset < b.offset + b.nbytes:
                offset = b.offset + b.nbytes
        buffers.append(Buffer(tensor=tensor.name, offset=offset, nbytes=tensor.nbytes, first=owner[i], last=last))
    arena = max(b.offset + b.nbytes for b in buffers)
    placements = tuple(
        Placement(
            op=op.name,
            type=op.type,
            origin=op.origin,
            queue=q,
            precision="f32" if q.startswith("cpu") else "f16",
            delegate={"cpu:0-3": "numba", "gpu": "wgpu", "npu": "qnn"}[q],
            seconds=s,
            energy_j=s * 2.5,
            cause="fastest alone, and its neighbours are here" if q == "npu" else "moving it to npu would add two crossings (+0.21 ms)",
            refusals=("npu f16: Resize with cubic coefficients is not supported",) if op.type == "Resize" else (),
            alternatives=tuple(
                Choice(
                    queue=c,
                    precision="f16",
                    seconds=s / SPEED[q] * SPEED[c],
                    energy_j=s,
                    plan_latency_s=end[-1] + (0 if c == q else 1e-4 * SPEED[c]),
                )
                for c in QUEUES
            ),
        )
        for op, q, s in zip(graph.ops, queues, seconds, strict=True)
    )
    latency = max(end)
    names = ("single:npu", "single:gpu", "single:cpu:0-3", "vendor", "rules", "heft", "frontier-dp")
    factors = (None, 1.9, 4.2, 1.55, 1.3, 1.12, 1.02)
    baselines = tuple(
        Baseline(
            solver=n,
            latency_s=f and latency * f,
            energy_j=f and latency * f * 2.2,
            segments=None if f is None else int(3 * f),
            reason="" if f else "op '/backbone/neck0/merge' can run nowhere on npu (Resize: cubic coefficients)",
        )
        for n, f in zip(names, factors, strict=True)
    )
    return Plan(
        solver=solver,
        objective="latency",
        status="feasible",
        bound_s=latency * 0.991,
        gap=0.009,
        order=tuple(op.name for op in graph.ops),
        placements=placements,
        segments=tuple(segments),
        fences=tuple(fences),
        buffers=tuple(buffers),
        arena_bytes=arena,
        prediction=Prediction(
            latency_s=latency,
            latency_interval_s=(0.7 * latency, 1.5 * latency),
            serial_s=1.1 * latency,
            simulated_s=1.04 * latency,
            energy_j=latency * 2.5,
            peak_memory_bytes=arena + 4_800_000,
            weight_bytes=4_800_000,
            arena_bytes=arena,
        ),
        baselines=baselines,
    )


def sample_deployment(graph: Graph, soc: str = "snapdragon-8-gen-3") -> Deployment:
    return Deployment(
        header=Header(hetsched="0.1.0"),
        model=ModelRef(path="models/det.onnx", sha256="ab" * 32, dims={"batch": 1}),
        soc=SoCRef(id=soc, sha256="cd" * 32),
        precision="float",
        parameters="2026-11",
        entries=(Entry(plan=sample_plan(graph)),),
    )


def sample_run(plan: Plan, origin: str, runs: int, stretch: float, seed: int) -> Trace:
    """Back-to-back inferences with every segment's spans, each a little different."""
    rng = random.Random(seed)
    trace = Trace(origin, "det", "snapdragon-8-gen-3", QUEUES)
    predicted = {p.op: p.seconds for p in plan.placements}
    begun = 0.0
    for run in range(runs):
        slow = stretch * (1 + 0.5 * run / max(1, runs - 1)) if origin == "simulated" else stretch * rng.uniform(0.97, 1.15)
        for s in plan.segments:
            start, at = begun + s.start_s * slow, begun + (s.start_s + s.launch_s + s.transfer_s) * slow
            trace.spans.append(Span(s.queue, "segment", f"segment {s.index}", start, begun + s.end_s * slow, s.index, run))
            trace.spans.append(Span(s.queue, "launch", "launch", start, start + s.launch_s * slow, s.index, run))
            left = s.work_s * slow
            for k, op in enumerate(s.ops):
                took = min(left, predicted[op] * slow * rng.uniform(0.6, 1.3)) if k < len(s.ops) - 1 else left
                left -= took
                trace.spans.append(Span(s.queue, "op", op, at, at + took, s.index, run, predicted[op]))
                at += took
        begun += plan.prediction.latency_s * slow * 1.02
    return trace


def sample_heat(plan: Plan, ambient: float, seconds: float = 600.0) -> Trace:
    """Ten minutes back to back: temperatures rise, the clock steps down, latency follows."""
    trace = sample_run(plan, "simulated", 6, 1.0, 3)
    hot, level = ambient, 0
    for k in range(int(seconds * 4) + 1):
        t = k / 4
        top = 3.3e9 * (1 - 0.12 * level)
        hot += (ambient + 55 * (1 - 0.1 * level) - hot) / 120 / 4 + 0.06 * math.sin(t / 9)
        if k % 160 == 0 and k and hot > ambient + 28 + 4 * level and level < 5:
            level += 1
            trace.instants.append(Instant("throttle", "npu", t, f"{hot:.1f} °C: down to level {level}"))
        trace.counter("temperature/npu", "degC").sample(t, hot)
        trace.counter("temperature/cpu", "degC").sample(t, hot - 6 + math.sin(t / 17))
        trace.counter("temperature/case", "degC").sample(t, ambient + (hot - ambient) * 0.35)
        trace.counter("frequency/npu", "Hz").sample(t, top)
        trace.counter("frequency/gpu", "Hz").sample(t, 9e8 if k % 7 else 5e8)
        trace.counter("power/npu", "W").sample(t, 2.6 * (1 - 0.1 * level) * (0.4 + 0.6 * (k % 2)))
        trace.counter("latency/inference", "s").sample(t, plan.prediction.latency_s * (1 + 0.13 * level + 0.01 * math.sin(k)))
        trace.counter("bandwidth/dram", "B/s").sample(t, 2.1e10 * (1 - 0.08 * level))
    return trace


def sample_check(plan: Plan) -> CheckItem:
    """One op fails, on a constant reference."""
    rows = []
    for i, p in enumerate(plan.placements):
        row = {"op": p.op, "type": p.type, "cosine": 1 - 1e-6 * i, "snr_db": 90 - 0.5 * i, "max_abs": 1e-6 * i, "ok": i != 7}
        rows.append(row | ({"note": "the reference is constant"} if i == 7 else {}))
    return CheckItem(rows)


@dataclass(frozen=True)
class Sample:
    """The makers above, for tests."""

    graph: Callable[..., Graph] = sample_graph
    plan: Callable[..., Plan] = sample_plan
    deployment: Callable[..., Deployment] = sample_deployment
    run: Callable[..., Trace] = sample_run
    heat: Callable[..., Trace] = sample_heat
    check: Callable[..., CheckItem] = sample_check


@pytest.fixture(scope="session")
def sample() -> Sample:
    return Sample()


@pytest.fixture(scope="session")
def graph() -> Graph:
    return sample_graph()


@pytest.fixture(scope="session")
def deployment(graph: Graph) -> Deployment:
    return sample_deployment(graph)
