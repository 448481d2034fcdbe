"""The work of a tiled matrix unit, by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hetsched.graph import Graph
from hetsched_cost_models.alike import alike
from hetsched_cost_models.composites import Apart
from hetsched_cost_models.tiles import KINDS, tiles_of
from hetsched_cost_models.work import work_of

Build = Callable[..., Graph]


def _tiles(graph: Graph) -> Mapping[str, Any]:
    groups = alike(graph, graph.ops)
    t = tiles_of(graph, Apart(work_of(graph), groups), groups)
    return {
        **{f: getattr(t, f).tolist() for f in ("macs", "elems", "written", "once", "heads", "tokens")},
        "kind": [KINDS[k] for k in t.kind],
    }


def _conv(graph_of: Build, channels: int, out: int, kernel: int, group: int = 1, size: int = 10) -> Graph:
    shapes = {"x": (1, channels, size, size), "w": (out, channels // group, kernel, kernel), "y": (1, out, size, size)}
    return graph_of([("Conv", ["x", "w"], ["y"], {"group": group})], shapes, constants=("w",))


@pytest.mark.parametrize(
    ("channels", "out", "kernel", "group", "kind", "blocks"),
    [
        (64, 64, 3, 1, "conv", 64 * 64 * 9),  # whole blocks as they are
        (40, 33, 1, 1, "conv1x1", 64 * 64),  # both padded to two blocks
        (3, 32, 7, 1, "conv", 32 * 160),  # few channels: the 147 numbers of a window are unrolled, then padded
        (128, 128, 3, 32, "grouped", 4 * 32 * 32 * 9),  # 32 groups of 4: eight share a block
        (128, 128, 3, 2, "grouped", 2 * 64 * 64 * 9),  # groups of 64 fill blocks alone
    ],
)
def test_convolutions_fill_blocks_of_32_by_32_channels(
    graph_of: Build, channels: int, out: int, kernel: int, group: int, kind: str, blocks: int
) -> None:
    t = _tiles(_conv(graph_of, channels, out, kernel, group))
    assert t["kind"] == [kind]
    assert t["macs"] == [100 * blocks]
    assert t["elems"] == [100 * (channels + out)]
    assert t["written"] == [100 * out]


def test_depthwise_convolutions_are_vector_work(graph_of: Build) -> None:
    t = _tiles(_conv(graph_of, 48, 48, 3, 48))
    assert t["kind"] == ["depthwise"]
    assert t["macs"] == [100 * 48 * 9]


def test_a_tensor_that_several_products_read_is_laid_out_once(graph_of: Build) -> None:
    shapes = {"x": (1, 20, 64), "q": (64, 64), "k": (64, 96), "a": (1, 20, 64), "b": (1, 20, 96)}
    g = graph_of([("MatMul", ["x", "q"], ["a"]), ("MatMul", ["x", "k"], ["b"])], shapes, constants=("q", "k"), outputs=("a", "b"))
    t = _tiles(g)
    assert t["kind"] == ["gemm", "gemm"]
    assert t["once"] == [20 * 64, 0]
    assert t["macs"] == [24 * 64 * 64, 24 * 64 * 96], "rows in eights, channels in blocks"
    assert t["tokens"] == [1, 1]


def test_attention_is_worked_on_head_by_head(graph_of: Build) -> None:
    shapes = {"q": (1, 12, 32, 64), "k": (1, 12, 64, 32), "s": (1, 12, 32, 32), "p": (1, 12, 32, 32)}
    g = graph_of([("MatMul", ["q", "k"], ["s"]), ("Softmax", ["s"], ["p"], {"axis": -1})], shapes)
    t = _tiles(g)
    assert t["kind"] == ["matmul", "softmax"]
    assert t["heads"] == [12, 12]


@pytest.mark.parametrize(("channels", "kind"), [((32, 64), "join"), ((32, 40), "move")])
def test_joining_images_at_whole_blocks_of_channels_only_names_them_anew(graph_of: Build, channels: tuple[int, int], kind: str) -> None:
    a, b = channels
    shapes = {"a": (1, a, 8, 8), "b": (1, b, 8, 8), "y": (1, a + b, 8, 8)}
    assert _tiles(graph_of([("Concat", ["a", "b"], ["y"], {"axis": 1})], shapes))["kind"] == [kind]
