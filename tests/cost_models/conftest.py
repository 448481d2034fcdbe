"""Small graphs and a SoC with round figures, so that costs can be computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hetsched.graph import DType, Graph, Op, Quantization, Role, Tensor, WeightRef
from hetsched.soc_files import validate_soc
from hetsched.socs import SoC


def _f(value: float) -> dict[str, Any]:
    return {"value": value, "estimated": "round figure for tests"}


def _processor(name: str, kind: str, peaks: dict[str, float], **extra: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "model": name.upper(),
        "bandwidth_bytes_s": _f(10e9),
        "onchip_bytes": _f(1e6),
        "launch_s": _f(1e-4),
        "op_overhead_s": _f(1e-6),
        "vector_bytes_s": _f(100e9),
        "utilisation": {k: _f(0.5) for k in ("conv1x1", "conv", "grouped", "depthwise", "gemm", "matmul")},
        "clusters": [
            {
                "name": name,
                "cores": [0, 1, 2, 3] if kind == "cpu" else [],
                "operating_points": [{"hz": 1e9, "v": 0.6}, {"hz": 2e9, "v": 0.8}],
                "operating_points_source": "round figures for tests",
                "peak_ops_s": {k: _f(v) for k, v in peaks.items()},
                "dynamic_w": _f(2.0),
                "leakage_w": _f(0.0),
            }
        ],
        **extra,
    }


def _link(a: str, b: str, sync: float, coherent: bool, handle: str | None = "dma-buf") -> dict[str, Any]:
    cost = 0.0 if coherent else 1.0
    return {
        "between": [a, b],
        "sync_s": _f(sync),
        "coherent": coherent,
        "cache_maintenance_s": _f(1e-5 * cost),
        "cache_maintenance_s_per_byte": _f(1e-10 * cost),
        "handle": handle,
    }


def round_soc(**changes: Any) -> SoC:
    """A SoC with two CPU queues, a GPU and an NPU, all figures round; ``changes`` replace top-level fields."""
    raw: dict[str, Any] = {
        "id": "round",
        "name": "Round",
        "vendor": "test",
        "family": "test",
        "queues": {"cpu:0": "cpu:0-1", "cpu:1": "cpu:2-3", "gpu": "gpu", "npu": "npu"},
        "base_w": _f(1.0),
        "memory": {
            "kind": "LPDDR5",
            "capacity_bytes": _f(8e9),
            "peak_bytes_s": _f(20e9),
            "reachable_bytes_s": _f(16e9),
            "system_cache_bytes": _f(1e6),
            "energy_j_per_byte": _f(1e-11),
        },
        "links": [_link("cpu", "gpu", 4e-4, True), _link("cpu", "npu", 1e-4, False), _link("gpu", "npu", 4e-4, False, None)],
        "processors": [
            _processor("cpu", "cpu", {"f32": 100e9, "i8": 400e9}),
            _processor("gpu", "gpu", {"f32": 500e9, "f16": 1000e9}, support="adreno", float_dtype="f16", layout="nhwc"),
            _processor("npu", "npu", {"f16": 2000e9, "i8": 8000e9}, support="hexagon", float_dtype="f16", layout="nhwc"),
        ],
        "thermal": {
            "nodes": [{"name": "case", "capacity_j_per_k": _f(100)}],
            "resistances": [{"between": ["case", "ambient"], "k_per_w": _f(10)}],
        },
    }
    return validate_soc({**raw, **changes}, "the test SoC")


def make_graph(
    ops: list[Op], shapes: dict[str, tuple[int, ...]], dtypes: dict[str, DType], constants: set[str], outputs: tuple[str, ...],
    quantized: set[str],
) -> Graph:  # fmt: skip
    """A graph from op list and shapes; whatever nobody writes and is not constant is an input."""
    written = {o for op in ops for o in op.outputs}
    inputs = tuple(n for n in shapes if n not in written and n not in constants)
    tensors: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        dtype = dtypes.get(name, DType.F32)
        data = WeightRef(length=1 << 30) if name in constants else None
        quant = Quantization("scale") if name in quantized else None
        role = Role.WEIGHT if data else Role.ACTIVATION
        tensors[name] = Tensor(name, shape, dtype, role, quant, data)
    if quantized:
        tensors["scale"] = Tensor("scale", (), DType.F32, Role.WEIGHT, None, WeightRef(array=np.ones((), np.float32)))
    return Graph("test", tensors, tuple(ops), inputs, outputs)


@pytest.fixture
def soc() -> SoC:
    return round_soc()


@pytest.fixture
def graph_of() -> Callable[..., Graph]:
    """``graph_of([(type, inputs, outputs, attrs)], {name: shape}, ...)``."""

    def build(
        ops: list[tuple[Any, ...]], shapes: dict[str, tuple[int, ...]], *, constants: tuple[str, ...] = (),
        dtypes: dict[str, DType] | None = None, outputs: tuple[str, ...] | None = None, quantized: tuple[str, ...] = (),
    ) -> Graph:  # fmt: skip
        built = [
            Op(f"op{i}", o[0], tuple(o[1]), tuple(o[2]), o[3] if len(o) > 3 else {}, body=o[4] if len(o) > 4 else ())
            for i, o in enumerate(ops)
        ]
        return make_graph(built, shapes, dtypes or {}, set(constants), outputs or built[-1].outputs, set(quantized))

    return build
