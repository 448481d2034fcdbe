"""Whole models on the GPU and on both processors in one run, op by op against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard, undo
from hetsched.plans import Plan
from hetsched.runtime import check, make_inputs, supported
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates import load_delegate

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.real_models,
    pytest.mark.skipif(not load_delegate("wgpu").probe().available, reason="there is no WebGPU adapter"),
]
OPTIONS: dict[str, dict[str, Any]] = {
    "pp-ocrv4-det": {"shapes": {"x": [1, 3, 96, 96]}},
    "minilm-l3-onnx": {"dims": {"sequence_length": 32}},
}
#: Composites that the host's kernels do not run.
WITHOUT_KERNELS = ("Attention", "MergedMatMul", "SkipLayerNorm")


def graph_of(name: str) -> Graph:
    path = ROOT / "models" / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"{path.name} is absent: run 'make models'")
    return standard(load(path, **OPTIONS.get(name, {})))


def feeds_of(graph: Graph) -> dict[str, Any]:
    """Seeded noise; for the text detector dark strokes on a light ground, since its answer to noise is nothing but rounding."""
    feeds = make_inputs(graph, 0)
    if "x" in feeds:
        picture, size = np.full_like(feeds["x"], 2.0), feeds["x"].shape[-1]
        for left in range(10, size - 12, 6):
            picture[:, :, size // 2 - 7 : size // 2 + 7, left : left + 2] = -2.0
        feeds["x"] = picture
    return feeds


def precisions(graph: Graph, wanted: str) -> Callable[[int], str]:
    gpu = load_delegate("wgpu")
    return lambda i: wanted if gpu.supports(graph.ops[i], graph, wanted) is None else "f32"


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("mobilenet_v2", "f32"), ("mobilenet_v2", "f16"), ("mobilenet_v2_qdq", "w8a8"), ("minilm-l3-onnx", "f32"),
        ("minilm-l3-onnx", "f16"), ("pp-ocrv4-det", "f32"),
    ],
)  # fmt: skip
def test_model_on_the_gpu(name: str, precision: str, plan_by_hand: Callable[..., Plan]) -> None:
    graph = graph_of(name)
    place = precisions(graph, precision)
    assert sum(place(i) == precision for i in range(len(graph.ops))) > 0.9 * len(graph.ops)
    plan = plan_by_hand(graph, lambda i: "gpu", place, delegate="wgpu")
    feeds = feeds_of(graph)
    with compile_plan(graph, plan, delegate="wgpu") as executable:
        report = check(graph, plan, feeds, executable.run(feeds, observe=True))
        again = executable.run(feeds)
    report.raise_if_failed()
    assert len(report.checks) > 0.9 * len(graph.ops)
    judged = [c for c in report.checks if c.verdict == "ok"]
    assert len(judged) >= (0.9 * len(report.checks) if precision == "f32" else 1)
    assert sorted(again.outputs) == sorted(graph.outputs)


@pytest.mark.parametrize(("name", "precision"), [("mobilenet_v2", "f32"), ("mobilenet_v2_qdq", "w8a8"), ("minilm-l3-onnx", "f32")])
def test_model_on_cpu_and_gpu(name: str, precision: str, plan_by_hand: Callable[..., Plan], alternate: Callable[[int], str]) -> None:
    graph = undo(graph_of(name), WITHOUT_KERNELS)
    gpu = precisions(graph, precision)

    def host(i: int) -> str:
        return precision if supported(graph.ops[i], graph, precision) is None else "f32"

    def on_gpu(i: int) -> bool:
        return i // 7 % 2 == 1

    plan = plan_by_hand(graph, lambda i: "gpu" if on_gpu(i) else alternate(0), lambda i: gpu(i) if on_gpu(i) else host(i))
    feeds = make_inputs(graph, 0)
    with compile_plan(graph, plan, delegate={"gpu": "wgpu"}) as executable:
        result = executable.run(feeds, observe=True)
        report = check(graph, plan, feeds, result)
        ran = executable.run(feeds)
    report.raise_if_failed()
    assert {c.queue for c in report.checks} == {"gpu", alternate(0)}
    assert {s.queue for s in ran.trace.spans if s.kind == "segment"} == {"gpu", alternate(0)}
    assert ran.copied_bytes > 0


@pytest.mark.corpus
def test_resnet_50_with_seeded_weights(tmp_path: Path, plan_by_hand: Callable[..., Plan]) -> None:
    path = ROOT.parent / "shared" / "models" / "graphs" / "resnet50.onnx"
    if not path.is_file():
        pytest.skip("the shared corpus is absent")
    model = onnx.load(path, load_external_data=False)
    del model.graph.value_info[:]
    for axis in (2, 3):  # a smaller picture, for a software adapter
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = 64
    rng = np.random.default_rng(0)
    variances = {node.input[4] for node in model.graph.node if node.op_type == "BatchNormalization"}
    for stored in model.graph.initializer:
        if stored.data_location == onnx.TensorProto.EXTERNAL:
            fan = np.prod(stored.dims[1:]) if len(stored.dims) > 1 else 100
            values = rng.standard_normal(stored.dims) * np.sqrt(2 / fan) + (len(stored.dims) == 1)
            kept = np.abs(values) if stored.name in variances else values
            stored.CopyFrom(onnx.numpy_helper.from_array(kept.astype(np.float32), stored.name))
    onnx.save(model, tmp_path / "resnet50.onnx")
    graph = standard(load(tmp_path / "resnet50.onnx"))
    plan = plan_by_hand(graph, lambda i: "gpu", delegate="wgpu")
    feeds = make_inputs(graph, 0)
    with compile_plan(graph, plan, delegate="wgpu") as executable:
        report = check(graph, plan, feeds, executable.run(feeds, observe=True))
    report.raise_if_failed()
    assert len([c for c in report.checks if c.verdict == "ok"]) > 60
