"""Custom operators run on the CPU only, whatever a table says of all the others; reasons are those of the last precision tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hetsched.app.inputs import soc
from hetsched.errors import InfeasibleError
from hetsched.graph import DType, Graph, Op, Quantization, Role, Tensor, WeightRef
from hetsched.partition import Problem, solve
from hetsched_cost_models import build_table


@pytest.mark.parametrize("chip", ["apple-a17-pro", "snapdragon-8-gen-3"])
@pytest.mark.parametrize(("domain", "kind"), [("tflite", "PosenetDecoderOp"), ("my.company", "Gelu"), ("com.microsoft", "Rarity")])
def test_custom_operators_are_refused_on_every_accelerator(graph_of: Callable[..., Graph], chip: str, domain: str, kind: str) -> None:
    graph = graph_of([("Relu", ["x"], ["a"], {}), ("Relu", ["a"], ["y"], {})], {"x": (1, 8, 4, 4), "a": (1, 8, 4, 4), "y": (1, 8, 4, 4)})
    graph = graph.replace(ops=(graph.ops[0], replace(graph.ops[1], type=kind, domain=domain)))
    table = build_table(graph, soc(chip))
    for op, allowed in ((0, {"cpu", "gpu", "npu"}), (1, {"cpu"})):
        assert {table.queues[table.alt_queue[a]].kind for a in range(table.alt_start[op], table.alt_start[op + 1])} == allowed
    assert {r.reason for r in table.refusals[1]} == {f"a custom operator runs on the CPU only, and {kind} of domain {domain!r} is one"}


def test_the_reason_why_an_operator_has_no_place_is_not_that_of_its_integers() -> None:
    import numpy as np

    meaning = Quantization("s")
    tensors = {
        "x": Tensor("x", (1, 8), DType.I8, Role.INPUT, meaning), "y": Tensor("y", (1, 8), DType.I8, Role.OUTPUT, meaning),
        "s": Tensor("s", (), DType.F32, Role.WEIGHT, None, WeightRef(array=np.float32(0.1).reshape(()))),
    }  # fmt: skip
    graph = Graph("g", tensors, (Op("sine", "Sinh", ("x",), ("y",)),), ("x",), ("y",))
    table = build_table(graph, soc("snapdragon-8-gen-3"))
    assert any("dequantized to float" in r.reason for r in table.refusals[0])
    with pytest.raises(InfeasibleError, match="sine cannot run on gpu: Sinh is not in the operator list"):
        solve(Problem(table=table), "single:gpu")
