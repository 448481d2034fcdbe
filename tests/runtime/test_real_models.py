"""The models that 'make models' brings, run and checked op by op on two queues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hetsched.frontends import load
from hetsched.passes import standard, undo
from hetsched.plans import Plan
from hetsched.runtime import check, make_inputs, supported
from hetsched.runtime import compile as compile_plan

pytestmark = pytest.mark.real_models
MODELS = Path(__file__).parents[2] / "models"
OPTIONS: dict[str, dict[str, Any]] = {
    "pp-ocrv4-det": {"shapes": {"x": [1, 3, 160, 160]}},
    "minilm-l3-onnx": {"dims": {"sequence_length": 32}},
}


#: Composites that no kernel of this project runs (``hetsched.passes.for_soc`` undoes them for ``host``).
WITHOUT_KERNELS = ("Attention", "MergedMatMul", "SkipLayerNorm")


@pytest.mark.parametrize(
    ("name", "delegate"),
    [
        *((n, "numba") for n in ("pp-ocrv4-det", "magika", "minilm-l3-onnx", "mobilenet_v2", "mobilenet_v2_qdq", "smart-turn")),
        *((n, "ort") for n in ("magika", "mobilenet_v2_qdq", "smart-turn")),
    ],
)
def test_model(name: str, delegate: str, plan_by_hand: Callable[..., Plan], alternate: Callable[[int], str]) -> None:
    path = MODELS / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"{path.name} is absent: run 'make models'")
    graph = undo(standard(load(path, **OPTIONS.get(name, {}))), WITHOUT_KERNELS)
    quantized = any(t.quantization is not None for t in graph.tensors.values())

    def precision(i: int) -> str:
        return "w8a8" if quantized and supported(graph.ops[i], graph, "w8a8") is None else "f32"

    # Blocks of ops in turn on two queues: many fences, but not one after every op.
    plan = plan_by_hand(graph, lambda i: alternate(i // 5), precision, delegate=delegate)
    feeds = make_inputs(graph, 0)
    with compile_plan(graph, plan) as executable:
        report = check(graph, plan, feeds, executable.run(feeds, observe=True))
        again = executable.run(feeds, repeat=2)
    report.raise_if_failed()
    assert len(report.checks) > 0.9 * len(graph.ops)
    assert len(again.latencies_s) == 2
    judged = [c for c in report.checks if c.verdict == "ok"]
    assert len(judged) >= (1 if quantized else 0.7 * len(graph.ops))
