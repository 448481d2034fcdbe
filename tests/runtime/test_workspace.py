"""The planner's workspace of an op is what its lowering takes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.app.inputs import load
from hetsched.partition.workspace import SMALL, kept_last, workspace_of
from hetsched.plans import PlanSegment
from hetsched.runtime.arena import ALIGNMENT
from hetsched.runtime.delegates.base import SegmentJob
from hetsched.runtime.lower import lower
from hetsched.runtime.support import supported

MODELS = Path(__file__).parents[2] / "models"
SEGMENT = PlanSegment(index=0, queue="cpu:0", ops=(), start_s=0, end_s=0, launch_s=0, transfer_s=0, work_s=0, energy_j=0)


class Counting:
    """Scratch that counts what is taken."""

    taken = 0

    def take(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self.taken += -(-math.prod(shape) * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT
        return np.empty(shape, dtype)


DIMS: dict[str, dict[str, int]] = {
    "mobilenet_v2": {}, "mobilenet_v2_qdq": {}, "minilm-l3-onnx": {"sequence_length": 256}, "pp-ocrv4-det": {"x.2": 160, "x.3": 160},
}  # fmt: skip


@pytest.mark.parametrize("name", DIMS)
@pytest.mark.parametrize("precision", ["f32", "w8a8"])
def test_estimates_follow_the_kernels(name: str, precision: str) -> None:
    path = MODELS / f"{name}.onnx"
    if not path.is_file():
        pytest.skip("the real models are absent: make models")
    graph = load(path, DIMS[name], [])
    buffers = {t.name: np.zeros(t.shape, t.dtype.numpy) for t in graph.tensors.values() if not t.is_constant}
    large, last = 0, kept_last(graph, precision)
    for op in graph.ops:
        if supported(op, graph, precision) is not None:
            continue
        scratch = Counting()
        lower(op, SegmentJob(graph, SEGMENT, (op,), {op.name: precision}, {}, buffers, {}, scratch, last), [])  # type: ignore[arg-type]
        guess = workspace_of(graph, op, precision, last)
        assert 0.95 * scratch.taken - 2 * SMALL <= guess <= 1.2 * scratch.taken + SMALL, (op.name, op.type, guess, scratch.taken)
        large += scratch.taken > 4 * SMALL
    # Products read constants where they lie, and so do convolutions of images that are kept channels last.
    assert large > 0 or (name, precision) in (("minilm-l3-onnx", "f32"), ("mobilenet_v2_qdq", "w8a8"))
