"""16-bit integer activations with 8- or 4-bit weights: where they are offered, what they cost, and who refuses them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hetsched.costs import CostTable
from hetsched.errors import UnsupportedModelError
from hetsched.graph import Graph
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table

Build = Callable[..., Graph]
CHIP = load_soc("snapdragon-8-gen-3")


@pytest.fixture
def graph(graph_of: Build) -> Graph:
    shapes = {"x": (1, 64, 32, 32), "w": (128, 64, 3, 3), "y": (1, 128, 32, 32), "z": (1, 128, 32, 32)}
    return graph_of([("Conv", ["x", "w"], ["y"]), ("Sigmoid", ["y"], ["z"])], shapes, constants=("w",))


def _on(table: CostTable, kind: str) -> list[int]:
    return [a for a in range(len(table.alt_queue)) if table.queues[table.alt_queue[a]].kind == kind]


def test_npus_take_it_and_the_others_compute_in_float(graph: Graph) -> None:
    table = build_table(graph, CHIP, precision="w8a16")
    assert {table.alt_precision[a] for a in _on(table, "npu")} == {"w8a16"}
    assert {table.alt_precision[a] for a in _on(table, "cpu")} == {"f32"} and {table.alt_precision[a] for a in _on(table, "gpu")} == {"f16"}
    said = [r.reason for row in table.refusals for r in row if table.queues[r.queue].kind == "gpu"]
    assert said and all("16-bit activations" in why for why in said)
    assert any("own kernels do not run" in note for note in table.notes)


def test_weights_are_bytes_and_activations_two(graph: Graph) -> None:
    float_, wide, narrow = (build_table(graph, CHIP, precision=p) for p in ("float", "w8a16", "w8a8"))
    (conv, _), (float_conv, _), (narrow_conv, _) = (_on(t, "npu") for t in (wide, float_, narrow))
    assert wide.weight_bytes[conv] == pytest.approx(narrow.weight_bytes[narrow_conv]) != float_.weight_bytes[float_conv]
    held = {d.dtype: d_index for d_index, d in enumerate(wide.domains)}
    y = wide.tensor_names.index("y")
    assert wide.tensor_bytes[y, held["w8a16"]] == 2 * 128 * 32 * 32
    assert narrow.compute_s[narrow_conv] < wide.compute_s[conv]


def test_sixteen_bit_integers_are_converted_to_sixteen_bit_floats(graph: Graph) -> None:
    table = build_table(graph, CHIP, precision="w8a16")
    held = {(table.queues[d.queue].kind, d.dtype): i for i, d in enumerate(table.domains)}
    y, npu, gpu = table.tensor_names.index("y"), held["npu", "w8a16"], held["gpu", "f16"]
    assert table.conversion_s[y, npu, gpu] > 0 and table.conversion_s[y, gpu, npu] > 0


def test_the_runtime_has_a_fixed_cost_of_its_own_for_it(graph: Graph) -> None:
    launches = [build_table(graph, CHIP, precision=p, runtime="qnn").launch_s for p in ("float", "w8a8", "w8a16")]
    npu = next(i for i, q in enumerate(build_table(graph, CHIP).queues) if q.kind == "npu")
    assert len({float(s[npu]) for s in launches}) == 3
    assert all(np.array_equal(np.delete(s, npu), np.delete(launches[0], npu)) for s in launches)


@pytest.mark.parametrize("chip", ["apple-a17-pro", "dimensity-9300"])
def test_a_chip_without_a_rate_for_it_refuses(graph: Graph, chip: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"runs as w8a16 on {chip}"):
        build_table(graph, load_soc(chip), precision="w8a16")


def test_a_model_with_integers_of_its_own_keeps_them(graph_of: Build) -> None:
    graph = graph_of([("Relu", ["x"], ["y"])], {"x": (1, 8), "y": (1, 8)}, quantized=("x",))
    with pytest.raises(UnsupportedModelError, match="brings 8-bit activations of its own"):
        build_table(graph, CHIP, precision="w8a16")


def test_four_bit_weights_are_those_of_products(graph_of: Build) -> None:
    shapes = {"x": (8, 512), "w": (512, 1024), "y": (8, 1024), "v": (1024, 8), "s": (8, 8), "z": (8, 1024)}
    ops = [("MatMul", ["x", "w"], ["y"]), ("Transpose", ["y"], ["v"]), ("MatMul", ["y", "v"], ["s"]), ("Sigmoid", ["y"], ["z"])]
    graph = graph_of(ops, shapes, constants=("w",), outputs=("s", "z"))
    table, eight = build_table(graph, CHIP, precision="w4a16"), build_table(graph, CHIP, precision="w8a16")
    npu = _on(table, "npu")
    assert [table.alt_precision[a] for a in npu] == ["w4a16", "w8a16", "w8a16", "w8a16"]
    assert table.weight_bytes[npu[0]] == pytest.approx(eight.weight_bytes[npu[0]] * 4.5 / 8, rel=0.05)
    assert len({table.alt_domain[a] for a in npu}) == 1, "activations are held alike, so that nothing is converted between them"
    assert any("4-bit weights was fitted" in note for note in table.notes)
    assert table.interval[1] > eight.interval[1], "nothing with 4-bit weights was fitted"
