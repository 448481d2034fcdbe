"""How long cost tables take: of one graph many times over, for the first time and again with other prices (``make bench-table``)."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hetsched
from hetsched.graph import Graph, Op
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table
from hetsched_cost_models.features import features_of

_SIZES = (100, 1_000, 10_000)
_CHIPS = ("snapdragon-8-gen-3", "dimensity-9300", "apple-a17-pro", "snapdragon-8-elite")
_REPEATS = 5


def copies(graph: Graph, count: int) -> Graph:
    """``count`` copies of a graph side by side, constants shared."""
    tensors, ops, inputs, outputs = dict(graph.tensors), [], [], []
    for k in range(count):

        def own(name: str, k: int = k) -> str:
            constant = name in graph.tensors and graph.tensors[name].is_constant
            return name if not name or constant else f"{name}#{k}"

        tensors.update((own(n), replace(t, name=own(n))) for n, t in graph.tensors.items())
        ops += [_renamed(op, own, k) for op in graph.ops]
        inputs += [own(n) for n in graph.inputs]
        outputs += [own(n) for n in graph.outputs]
    return Graph(graph.name, tensors, tuple(ops), tuple(inputs), tuple(outputs))


def _renamed(op: Op, own: Callable[[str], str], k: int) -> Op:
    body = tuple(_renamed(part, own, k) for part in op.body)
    return replace(op, name=f"{op.name}#{k}", inputs=tuple(map(own, op.inputs)), outputs=tuple(map(own, op.outputs)), body=body)


def _seconds(graph: Graph, chip: str) -> float:
    soc, start = load_soc(chip), time.thread_time()
    build_table(graph, soc)
    return time.thread_time() - start


def main(paths: list[str]) -> int:
    """Print one line a model and size: classes of operators alike, milliseconds of the first table and of later ones."""
    for path in paths:
        graph = hetsched.load(path)
        for size in _SIZES:
            many = copies(graph, -(-size // len(graph.ops)))
            first, later = _seconds(many, _CHIPS[0]), [_seconds(many, chip) for chip in _CHIPS]
            again = [_seconds(many, chip) for _ in range(_REPEATS) for chip in _CHIPS]
            row = {
                "model": Path(path).stem, "ops": len(many.ops), "alike": len(features_of(many).groups.example),
                "first_ms": round(first * 1e3, 1), "new_chip_ms": round(max(later) * 1e3, 1),
                "again_ms": round(statistics.median(again) * 1e3, 1), "again_worst_ms": round(max(again) * 1e3, 1),
            }  # fmt: skip
            print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["models/mobilenet_v2.onnx"]))
