"""The TFLite file format: a small model written byte by byte, its dims and variables, and what damage does to it."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import HetschedError, ModelError, OptionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import DType, Graph, Role
from hetsched.passes import standard
from hetsched.reference import run
from hetsched.runtime.inputs import make_inputs

_SPEC = spec_from_file_location("tflite_writer", Path(__file__).with_name("tflite_writer.py"))
assert _SPEC is not None and _SPEC.loader is not None
writer = sys.modules.setdefault("tflite_writer", module_from_spec(_SPEC))
if not hasattr(writer, "Table"):
    _SPEC.loader.exec_module(writer)
Table: Any = writer.Table
INT32, STRING, RESOURCE, INT8, CALL_ONCE = writer.INT32, writer.STRING, writer.RESOURCE, writer.INT8, writer.CALL_ONCE
RELU, RESHAPE, ADD, CONV, FULLY, WHILE = writer.RELU, writer.RESHAPE, writer.ADD, writer.CONV, writer.FULLY, writer.WHILE
VAR_HANDLE, READ, ASSIGN, Same, Writer = writer.VAR_HANDLE, writer.READ, writer.ASSIGN, writer.Same, writer.Writer
i32, tensor, operator, subgraph = writer.i32, writer.tensor, writer.operator, writer.subgraph
model: Callable[..., bytes] = writer.model

WEIGHTS = np.random.default_rng(3).standard_normal((4, 3, 3, 3)).astype(np.float32)


def small() -> bytes:
    """Conv (SAME, stride 2, RELU built in) of a batch of images, flattened."""
    tensors = [
        tensor("x", (1, 8, 8, 3), signature=(-1, 8, 8, 3)), tensor("w", WEIGHTS.shape, buffer=1), tensor("b", (4,), buffer=2),
        tensor("y;joined", (1, 4, 4, 4)), tensor("shape", (2,), INT32, 3), tensor("flat", (1, 64)),
    ]  # fmt: skip
    conv = operator(0, (0, 1, 2), (3,), {0: ("b", 0), 1: ("i", 2), 2: ("i", 2), 3: ("b", 1)})
    graph = subgraph(tensors, [conv, operator(1, (3, 4), (5,))], (0,), (5,))
    return model([CONV, RESHAPE], [graph], [WEIGHTS.tobytes(), bytes(16), i32(-1, 64).tobytes()])


def loaded(tmp_path: Path, content: bytes, dims: dict[str, int] | None = None) -> Graph:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    return load(path, dims)


def test_a_small_model(tmp_path: Path) -> None:
    graph = standard(loaded(tmp_path, small()))
    assert [op.type for op in graph.ops] == ["Transpose", "FusedConv", "Transpose", "Reshape"]
    conv = graph.ops[1]
    assert conv.name == "y" and conv.attrs["activation"] == "Relu" and conv.attr_ints("pads", ()) == (0, 0, 1, 1)
    assert graph.tensors[conv.outputs[0]].shape == (1, 4, 4, 4) and graph.dims == {"x.0": 1}
    assert graph.tensors["flat"].role is Role.OUTPUT and graph.tensors["x"].role is Role.INPUT
    x = np.random.default_rng(0).standard_normal((1, 8, 8, 3)).astype(np.float32)
    padded = np.pad(x, [(0, 0), (0, 1), (0, 1), (0, 0)])
    want = np.array(
        [
            [np.tensordot(padded[0, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3], WEIGHTS, ([0, 1, 2], [1, 2, 3])) for j in range(4)]
            for i in range(4)
        ]
    )
    np.testing.assert_allclose(run(graph, {"x": x})["flat"], np.maximum(want, 0).reshape(1, 64), rtol=1e-5, atol=1e-6)


def test_free_dims_are_bound(tmp_path: Path) -> None:
    graph = loaded(tmp_path, small(), {"x.0": 5})
    assert graph.tensors["x"].shape == (5, 8, 8, 3) and graph.tensors["flat"].shape == (5, 64) and graph.dims == {"x.0": 5}
    with pytest.raises(OptionError, match="no dim 'batch'"):
        loaded(tmp_path, small(), {"batch": 5})
    open_size = small().replace(i32(-1, 8, 8, 3).tobytes(), i32(-1, -1, 8, 3).tobytes())
    with pytest.raises(ModelError, match=r"--dim x\.1=N"):
        loaded(tmp_path, open_size)


def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    """A weight that wants another layout is a view of the mapped file."""
    big = np.random.default_rng(1).standard_normal((64, 3, 3, 32)).astype(np.float32)
    tensors = [tensor("x", (1, 8, 8, 32)), tensor("w", big.shape, buffer=1), tensor("b", (64,), buffer=2), tensor("y", (1, 8, 8, 64)),
               tensor("v", (64, 64), buffer=3), tensor("z", (64, 64))]  # fmt: skip
    ops = [operator(0, (0, 1, 2), (3,), {0: ("b", 0), 1: ("i", 1), 2: ("i", 1)}), operator(1, (3, 4), (5,), {})]
    content = model([CONV, FULLY], [subgraph(tensors, ops, (0,), (5,))], [big.tobytes(), bytes(256), big.tobytes()[: 64 * 64 * 4]])
    graph = loaded(tmp_path, content)
    conv = next(op for op in graph.ops if op.type == "Conv")
    w, v = graph.tensors[conv.inputs[1]], graph.tensors["v"]
    assert w.shape == (64, 32, 3, 3) and (w.numpy() == big.transpose(0, 3, 1, 2)).all() and w.numpy().base is not None
    assert not w.numpy().flags.writeable and not w.numpy().flags.c_contiguous
    assert v.data is not None and v.data.array is None and v.data.path == tmp_path / "model.tflite"


def test_quantization_is_on_the_tensors(tmp_path: Path) -> None:
    tensors = [tensor(n, (2, 3), INT8, scale=[s], zero=[z]) for n, s, z in (("a", 0.1, 3), ("b", 0.2, 0), ("c", 0.1, 3))]
    graph = standard(loaded(tmp_path, model([ADD], [subgraph(tensors, [operator(0, (0, 1), (2,), {})], (0, 1), (2,))])))
    (op,) = graph.ops
    assert op.type == "Add" and op.inputs == ("a", "b") and op.outputs == ("c",)
    a, b, c = (graph.tensors[n].quantization for n in "abc")
    assert a is not None and b is not None and a == c and a.scale != b.scale
    assert graph.tensors[a.scale].numpy() == np.float32(0.1) and graph.tensors[a.zero_point or ""].dtype is DType.I8
    got = run(graph, {"a": np.full((2, 3), 13, np.int8), "b": np.full((2, 3), 4, np.int8)})
    assert (got["c"] == round((10 * 0.1 + 4 * 0.2) / 0.1) + 3).all()


def variables(first: list[int] | None = None, value: bytes = bytes(8)) -> bytes:
    """y = x + s; s becomes y. The first value of s is set by a subgraph that runs once."""
    handle = tensor("s/handle", (), RESOURCE)
    main = subgraph(
        [tensor("x", (2,)), handle, tensor("s/read", (2,)), tensor("y", (2,))],
        [operator(0, (), (), {0: ("i", 1)}), operator(1, (), (1,), {1: "s"}), operator(2, (1,), (2,)), operator(4, (0, 2), (3,), {}),
         operator(3, (1, 3), ())],
        (0,), (3,),
    )  # fmt: skip
    first_ops = first or [1, 3]
    once = subgraph(
        [handle, tensor("zero", (2,), buffer=1)],
        [operator(c, (0, 1) if c == 3 else (), () if c == 3 else (0,), {1: "s"}) for c in first_ops],
        (),
        (),
    )
    return model([CALL_ONCE, VAR_HANDLE, READ, ASSIGN, ADD], [main, once], [value])


def test_variables_are_states(tmp_path: Path) -> None:
    graph = loaded(tmp_path, variables())
    assert graph.inputs == ("x", "s") and graph.outputs == ("y", "s/next")
    assert graph.tensors["s"].role is Role.STATE and graph.tensors["s/next"].role is Role.STATE
    state = np.zeros(2, np.float32)
    for step in range(1, 4):
        got = run(graph, {"x": np.ones(2, np.float32), "s": state})
        state = got["s/next"]
        assert (got["y"] == step).all() and (state == step).all()


def test_first_values_of_variables_are_kept(tmp_path: Path) -> None:
    value = np.array([3, -4], np.float32)
    graph = standard(loaded(tmp_path, variables(value=value.tobytes())))
    assert (graph.first_values["s"].numpy() == value).all()
    feeds = make_inputs(graph)
    assert (feeds["s"] == value).all() and (run(graph, feeds)["y"] == feeds["x"] + value).all()
    with pytest.raises(ModelError, match=r"the constant 'zero' .* needs 8 bytes and has 4"):
        loaded(tmp_path, variables(value=bytes(4)))


def test_initialisation_that_computes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'CALL_ONCE_0' .*initialises by running ADD"):
        loaded(tmp_path, variables([1, 4]))


def test_custom_operators_are_kept_by_name(tmp_path: Path) -> None:
    graph = standard(
        loaded(tmp_path, model(["My_Op"], [subgraph([tensor("x", (2, 3)), tensor("y", (4,))], [operator(0, (0,), (1,))], (0,), (1,))]))
    )
    (op,) = graph.ops
    assert (op.type, op.domain, op.origin) == ("My_Op", "tflite", ("y",)) and graph.tensors["y"].shape == (4,)
    with pytest.raises(UnsupportedModelError, match="'y': there is no reference for the operator My_Op of domain 'tflite'"):
        run(graph, {"x": np.zeros((2, 3), np.float32)})


def one(
    code: int | str, tensors: list[Table], reads: tuple[int, ...], options: dict[int, Any] | None = None, buffers: list[bytes] | None = None
) -> bytes:
    last = len(tensors) - 1
    return model([code], [subgraph(tensors, [operator(0, reads, (last,), options)], (0,), (last,))], buffers)


def quantized(*scale: float, zero: int = 0, axis: int = 0) -> Table:
    return tensor("x", (2, 3), INT8, scale=scale, zero=[zero] * len(scale), axis=axis)


def reshape(*shape: int) -> bytes:
    return one(RESHAPE, [X, tensor("s", (len(shape),), INT32, 1), Y], (0, 1), None, [i32(*shape).tobytes()])


X, Y = tensor("x", (2, 3)), tensor("y", (2, 3))
BAD: list[tuple[str, Callable[[], bytes], str]] = [
    ("while", lambda: one(WHILE, [X, Y], (0,)), "'y' uses the TFLite operator WHILE, which is not supported"),
    ("unknown", lambda: one(999, [X, Y], (0,)), "'y' uses the TFLite operator BUILTIN_999"),
    ("version", lambda: model([RELU], [subgraph([X, Y], [operator(0, (0,), (1,))], (0,), (1,))], version=2), "schema version 2"),
    ("string", lambda: one(RELU, [tensor("x", (2,), STRING), Y], (0,)), "'x' has the element type string"),
    ("sparse", lambda: one(ADD, [X, tensor("w", (2, 3), buffer=1, sparse=True), Y], (0, 1), {}, [bytes(24)]),
     r"the sparse constant 'w' is damaged: it is walked in the order \[0\]"),
    ("short", lambda: one(ADD, [X, tensor("w", (2, 3), buffer=1), Y], (0, 1), {}, [bytes(20)]), "'w' .* needs 24 bytes and has 20"),
    ("unwritten", lambda: one(ADD, [X, tensor("w", (2, 3)), Y], (0, 1), {}), "'y' .* reads 'w', which nothing before it writes"),
    ("missing input", lambda: one(ADD, [X, Y], (0, -1), {}), "'y' .*its input 1 is missing"),
    ("no tensor", lambda: one(RELU, [X, Y], (7,)), "operator 0 .* names tensor 7, and there are 2"),
    ("no buffer", lambda: one(RELU, [X, tensor("y", (2, 3), buffer=9)], (0,)), "'y' is in buffer 9"),
    ("broadcast", lambda: one(ADD, [X, tensor("w", (4,), buffer=1), Y], (0, 1), {}, [bytes(16)]), "'y' .*do not broadcast"),
    ("reshape", lambda: reshape(7), r"'y' .*reshapes \[2, 3\] to \[7\]"),
    ("activation", lambda: one(ADD, [X, X, Y], (0, 0), {0: ("b", 5)}), "built-in activation number 5 is not supported"),
    ("twice", lambda: model([RELU], [subgraph([X, Y], [operator(0, (0,), (1,))] * 2, (0,), (1,))]), "'y', which already has a value"),
    ("scales", lambda: one(RELU, [quantized(1, 1, axis=1), Y], (0,)), "'x' .*has 2 scales along axis 1"),
    ("nan", lambda: one(RELU, [quantized(float("nan")), Y], (0,)), "'x' has a scale that is not a positive"),
    ("zero point", lambda: one(RELU, [quantized(1.0, zero=300), Y], (0,)), "'x' has a zero point outside i8"),
    ("huge", lambda: one(RELU, [tensor("x", (1 << 30, 1 << 30)), Y], (0,)), r"'x' .*more than 2\^40 elements"),
    ("rank", lambda: one(RELU, [tensor("x", (1,) * 17), Y], (0,)), "a list has 17 elements"),
    ("empty", lambda: Writer().root(Table({0: ("I", 3)})), "it has 0 subgraphs"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_models(tmp_path: Path, content: Callable[[], bytes], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        loaded(tmp_path, content())


def test_lists_that_overlap_cannot_take_for_ever(tmp_path: Path) -> None:
    """Twenty thousand tensors that are all the same table with the same long name: a gigabyte of names in 130 KB."""
    graph = subgraph([tensor("x" * 50_000, (2,))], [operator(0, (0,), (1,))], (0,), (1,))
    graph.fields[0] = Same(graph.fields[0][0], 20_000)
    with pytest.raises(ModelError, match="its lists overlap"):
        loaded(tmp_path, model([RELU], [graph]))


@pytest.mark.parametrize("make", [small, variables], ids=["small", "variables"])
def test_every_truncation_is_refused(tmp_path: Path, make: Callable[[], bytes]) -> None:
    content = make()
    for cut in range(8, len(content) - 16, 3):
        try:
            loaded(tmp_path, content[:cut])
        except ModelError:
            continue
        raise AssertionError(cut)


@pytest.mark.parametrize("make", [small, variables], ids=["small", "variables"])
def test_random_damage_never_escapes_as_another_error(tmp_path: Path, make: Callable[[], bytes]) -> None:
    rng = random.Random(4)
    content, refused = make(), 0
    for _ in range(800):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 6])):
            at = rng.randrange(8, len(content) - 4)
            if rng.random() < 0.5:
                damaged[at] = rng.randrange(256)
            else:
                struct.pack_into(
                    "<I", damaged, at & ~3, rng.choice([0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, len(content), rng.randrange(1 << 32)])
                )
        try:
            standard(loaded(tmp_path, bytes(damaged)))
        except HetschedError as error:
            assert isinstance(error, ModelError)
            refused += 1
    assert 100 < refused < 800
