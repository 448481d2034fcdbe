"""Plans made by hand: every tensor at its own offset, every crossing fenced, no solver involved."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hetsched.graph import Graph, Op
from hetsched.plans import Buffer, Fence, Placement, Plan, PlanSegment, Prediction
from hetsched.runtime.support import RULES
from hetsched.segments import runs

sys.path.append(str(Path(__file__).parent))  # for the modules beside the tests
ALIGNMENT = 64


def hand_plan(
    graph: Graph,
    queue_of: Callable[[int], str] = lambda i: "cpu:0",
    precision: Callable[[int], str] = lambda i: "f32",
    mode: str = "spin",
    seconds: float = 1e-5,
    delegate: str = "numba",
) -> Plan:
    """Ops in graph order; ``queue_of`` and ``precision`` take the op's index."""
    names = [op.name for op in graph.ops]
    queues = sorted({queue_of(i) for i in range(len(names))})
    groups = runs(range(len(names)), [queues.index(queue_of(i)) for i in range(len(names))])
    owner = {i: s for s, group in enumerate(groups) for i in group}
    feeds = {(owner[int(p)], owner[i]) for i in range(len(names)) for p in graph.predecessors.row(i) if queue_of(int(p)) != queue_of(i)}
    offset, buffers = 0, []
    for name in dict.fromkeys([*graph.inputs, *(o for op in graph.ops for o in op.outputs if o)]):
        nbytes = graph.tensors[name].nbytes
        buffers.append(Buffer(tensor=name, offset=offset, nbytes=nbytes, first=0, last=max(len(groups) - 1, 0)))
        offset += -(-nbytes // ALIGNMENT) * ALIGNMENT
    total = seconds * len(names)
    segments = tuple(
        PlanSegment(
            index=s, queue=queue_of(group[0]), ops=tuple(names[i] for i in group), start_s=0.0, end_s=total, launch_s=0.0,
            transfer_s=0.0, work_s=seconds * len(group), energy_j=0.0,
        )
        for s, group in enumerate(groups)
    )  # fmt: skip
    placements = tuple(
        Placement(
            op=op.name, type=op.type, origin=op.origin, queue=queue_of(i), precision=precision(i), delegate=delegate, seconds=seconds,
            energy_j=0.0, cause="by hand",
        )
        for i, op in enumerate(graph.ops)
    )  # fmt: skip
    prediction = Prediction(
        latency_s=total, latency_interval_s=(total, total), serial_s=total, energy_j=0.0, peak_memory_bytes=offset, weight_bytes=0,
        arena_bytes=offset,
    )  # fmt: skip
    return Plan(
        solver="hand", objective="latency", status="heuristic", bound_s=0.0, gap=1.0, order=tuple(names), placements=placements,
        segments=segments, fences=tuple(Fence(signal=a, wait=b, sync_s=1e-6, mode=mode) for a, b in sorted(feeds)),  # type: ignore[arg-type]
        buffers=tuple(buffers), arena_bytes=offset, prediction=prediction,
    )  # fmt: skip


@pytest.fixture
def plan_by_hand() -> Callable[..., Plan]:
    return hand_plan


@pytest.fixture
def alternate() -> Callable[[int], str]:
    """Ops on two queues in turn. Both are on cores that exist on the smallest machine."""
    import os

    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    names = [f"cpu:{cores[0]}", f"cpu:{cores[-1]}"] if len(cores) > 1 else ["cpu:0", "cpu"]
    return lambda i: names[i % 2]


def _chain(*types: str, width: int = 8) -> Graph:
    from hetsched.graph import DType, Op, Role, Tensor

    tensors: dict[str, Any] = {"x": Tensor("x", (width,), DType.F32, Role.INPUT)}
    ops, last = [], "x"
    for i, kind in enumerate(types):
        role = Role.OUTPUT if i == len(types) - 1 else Role.ACTIVATION
        tensors[f"t{i}"] = Tensor(f"t{i}", (width,), DType.F32, role)
        ops.append(Op(f"op{i}", kind, (last,), (f"t{i}",), origin=(f"/user/node_{i}",)))
        last = f"t{i}"
    return Graph("chain", tensors, tuple(ops), ("x",), (last,))


@pytest.fixture
def chain() -> Callable[..., Graph]:
    """A chain of unary ops ``op0, op1, …`` on ``[width]`` floats, from ``x`` to the last ``t<i>``."""
    return _chain


@pytest.fixture(scope="session")
def against_ort(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Any, Any]]:
    """Run ONNX nodes through loader, lowering and workers, and with ONNX Runtime.

    ``against_ort(nodes, feeds, constants={}, precision="f32", passes=False, opset=21)`` returns ``(ours, theirs)``, arrays by output
    name; ``nodes`` is a list of ``(type, inputs, outputs, attributes)`` and the last node's outputs are the graph's.
    """
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    from hetsched.frontends import load
    from hetsched.runtime import compile as compile_plan

    folder = tmp_path_factory.mktemp("nodes")
    count = iter(range(1_000_000))

    def run(
        nodes: list[Any], feeds: dict[str, Any], constants: dict[str, Any] | None = None, precision: str = "f32", passes: bool = False,
        opset: int = 21,
    ) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
        import onnxruntime as ort

        protos = [helper.make_node(t, i, o, name=f"n{k}", **a) for k, (t, i, o, a) in enumerate(nodes)]
        inputs = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()]
        outputs = [onnx.ValueInfoProto(name=o) for o in nodes[-1][2]]
        values = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
        graph = helper.make_graph(protos, "nodes", inputs, outputs, values)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        path = folder / f"m{next(count)}.onnx"
        onnx.save(model, path)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        theirs = dict(zip(names, session.run(names, feeds), strict=True))
        loaded = load(path)
        if passes:
            from hetsched.passes import for_soc, standard
            from hetsched.soc_files import load_soc

            def kernel(op: Op, graph: Graph) -> bool:
                return op.type in RULES and RULES[op.type](op, graph) is None

            loaded = for_soc(standard(loaded), load_soc("snapdragon-8-gen-3"), kernel)
        place = (lambda i: precision) if isinstance(precision, str) else precision
        with compile_plan(loaded, hand_plan(loaded, precision=place)) as executable:
            ours = executable.run(feeds).outputs
        path.unlink()
        return ours, theirs

    return run
