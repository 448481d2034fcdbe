"""Multiply-accumulates and bytes against the definitions, by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hetsched.graph import DType, Graph
from hetsched_cost_models.operators import CLASSES, VECTOR_KINDS
from hetsched_cost_models.work import work_of

CASES = [
    # type, inputs' shapes, output shape, attrs, constants, macs, class
    ("Conv", [(1, 3, 8, 8), (16, 3, 3, 3)], (1, 16, 4, 4), {"strides": (2, 2)}, (1,), 16 * 4 * 4 * 27, "conv"),
    ("Conv", [(2, 8, 5, 5), (4, 8, 1, 1)], (2, 4, 5, 5), {}, (1,), 2 * 25 * 4 * 8, "conv1x1"),
    ("Conv", [(1, 8, 5, 5), (8, 1, 3, 3)], (1, 8, 3, 3), {"group": 8}, (1,), 8 * 9 * 9, "depthwise_small"),
    ("Conv", [(1, 8, 5, 5), (16, 4, 3, 3)], (1, 16, 3, 3), {"group": 2}, (1,), 16 * 9 * 36, "grouped"),
    ("Conv", [(1, 4, 10), (6, 4, 3)], (1, 6, 8), {}, (1,), 8 * 6 * 12, "conv"),
    ("FusedConv", [(1, 3, 8, 8), (16, 3, 3, 3)], (1, 16, 8, 8), {"activation": "Relu"}, (1,), 16 * 64 * 27, "conv"),
    ("ConvTranspose", [(1, 8, 5, 5), (8, 4, 2, 2)], (1, 4, 10, 10), {"strides": (2, 2)}, (1,), 25 * 8 * 4 * 4, "transposed"),
    ("Conv", [(1, 8, 34, 34), (8, 1, 3, 3)], (1, 8, 32, 32), {"group": 8}, (1,), 8 * 1024 * 9, "depthwise"),
    ("Conv", [(1, 8, 66, 66), (8, 1, 3, 3)], (1, 8, 32, 32), {"group": 8, "strides": (2, 2)}, (1,), 8 * 1024 * 9, "depthwise_strided"),
    ("MatMul", [(2, 7, 5), (5, 3)], (2, 7, 3), {}, (1,), 2 * 7 * 5 * 3, "gemm"),
    ("MatMul", [(4, 7, 5), (4, 5, 3)], (4, 7, 3), {}, (), 4 * 7 * 5 * 3, "matmul"),
    ("MatMul", [(5,), (5, 3)], (3,), {}, (1,), 15, "gemm"),
    ("Gemm", [(7, 5), (5, 3)], (7, 3), {}, (1,), 105, "gemm"),
    ("Gemm", [(5, 7), (3, 5)], (7, 3), {"transA": 1, "transB": 1}, (1,), 105, "gemm"),
    ("Einsum", [(2, 4, 6), (2, 6, 8)], (2, 4, 8), {"equation": "bij,bjk->bik"}, (), 2 * 4 * 6 * 8, "matmul"),
    ("LSTM", [(10, 1, 8), (1, 64, 8), (1, 64, 16)], (10, 1, 1, 16), {"hidden_size": 16}, (1, 2), 10 * (64 * 8 + 64 * 16), "gemm"),
    ("Relu", [(1, 3, 8, 8)], (1, 3, 8, 8), {}, (), 0, "vector"),
]


@pytest.mark.parametrize(("op_type", "ins", "out", "attrs", "constants", "macs", "cls"), CASES)
def test_macs_and_class(
    graph_of: Callable[..., Graph], op_type: str, ins: list[tuple[int, ...]], out: tuple[int, ...], attrs: dict[str, object],
    constants: tuple[int, ...], macs: int, cls: str,
) -> None:  # fmt: skip
    names = [f"i{k}" for k in range(len(ins))]
    g = graph_of(
        [(op_type, names, ["y"], attrs)], {**dict(zip(names, ins, strict=True)), "y": out}, constants=tuple(names[k] for k in constants)
    )
    work = work_of(g)
    assert work.macs[0] == macs
    assert CLASSES[work.cls[0]] == cls


@pytest.mark.parametrize(
    ("op_type", "ins", "out", "attrs", "kind"),
    [
        ("Add", [(2, 8, 9), (2, 8, 9)], (2, 8, 9), {}, "elementwise"),
        ("Mul", [(2, 8, 9), (1,)], (2, 8, 9), {}, "elementwise"),
        ("Mul", [(2, 8, 9), (9,)], (2, 8, 9), {}, "elementwise"),
        ("Mul", [(2, 8, 9), (2, 8, 1)], (2, 8, 9), {}, "broadcast"),
        ("Mul", [(2, 8, 1), (2, 8, 1)], (2, 8, 1), {}, "elementwise"),
        ("Resize", [(1, 2, 4, 4)], (1, 2, 8, 8), {"mode": "linear"}, "resize"),
        ("Resize", [(1, 2, 4, 4)], (1, 2, 8, 8), {"mode": "nearest"}, "nearest"),
        ("Resize", [(1, 2, 4, 4)], (1, 2, 8, 8), {}, "nearest"),
        ("FusedSoftmax", [(2, 8, 9)], (2, 8, 9), {}, "softmax"),
        ("FusedSoftmax", [(2, 8, 9), (1, 1, 9)], (2, 8, 9), {}, "masked"),
        ("GlobalMaxPool", [(1, 2, 4, 4)], (1, 2, 1, 1), {}, "maximum"),
        ("GlobalAveragePool", [(1, 2, 4, 4)], (1, 2, 1, 1), {}, "reduce"),
        ("Equal", [(8, 1), (1, 9)], (8, 9), {}, "compare"),
    ],
)
def test_kinds_of_vector_work(
    graph_of: Callable[..., Graph], op_type: str, ins: list[tuple[int, ...]], out: tuple[int, ...], attrs: dict[str, object], kind: str
) -> None:
    names = [f"i{k}" for k in range(len(ins))]
    work = work_of(graph_of([(op_type, names, ["y"], attrs)], {**dict(zip(names, ins, strict=True)), "y": out}))
    assert VECTOR_KINDS[work.kind[0]] == kind


def test_a_comparison_reads_repeated_operands_for_every_element(graph_of: Callable[..., Graph]) -> None:
    kinds = {"a": DType.I64, "b": DType.I64, "y": DType.BOOL}
    g = graph_of([("Equal", ["a", "b"], ["y"])], {"a": (8, 1), "b": (1, 9), "y": (8, 9)}, dtypes=kinds)
    work = work_of(g)
    assert work.other_bytes[0] == 8 * 8 + 8 * 9 + 72
    assert work.extra_elems[0] == (72 - 8) + (72 - 9)


def test_macs_are_the_matrix_times_its_count(graph_of: Callable[..., Graph]) -> None:
    g = graph_of([("Conv", ["x", "w"], ["y"], {"group": 2})], {"x": (1, 8, 6, 6), "w": (12, 4, 3, 3), "y": (1, 12, 4, 4)}, constants=("w",))
    work = work_of(g)
    assert (work.m[0], work.n[0], work.k[0]) == (16, 6, 36)
    assert work.macs[0] == 2 * work.m[0] * work.n[0] * work.k[0]


def test_elements_by_how_they_are_held(graph_of: Callable[..., Graph]) -> None:
    g = graph_of(
        [("Conv", ["x", "w", "b"], ["y"])],
        {"x": (1, 4, 5, 5), "w": (8, 4, 1, 1), "b": (8,), "y": (1, 8, 5, 5)},
        constants=("w", "b"), dtypes={"x": DType.U8, "w": DType.I8, "b": DType.I32}, quantized=("x", "w", "b"),
    )  # fmt: skip
    work = work_of(g)
    assert (work.quant_elems[0], work.float_elems[0]) == (100, 200)
    assert (work.weight_quant_elems[0], work.weight_fixed_bytes[0], work.weight_float_elems[0]) == (32, 32, 0)


def test_a_gather_reads_rows_not_the_table(graph_of: Callable[..., Graph]) -> None:
    g = graph_of(
        [("Gather", ["table", "ids"], ["y"])],
        {"table": (30000, 8), "ids": (4,), "y": (4, 8)},
        constants=("table",),
        dtypes={"ids": DType.I64},
    )
    work = work_of(g)
    assert work.weight_float_elems[0] == 32
    assert work.other_bytes[0] == 32


def test_unknown_types_are_noted(graph_of: Callable[..., Graph]) -> None:
    g = graph_of([("Frobnicate", ["x"], ["y"])], {"x": (10,), "y": (10,)})
    assert work_of(g).unknown == (0,)
