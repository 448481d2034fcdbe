"""Every other operator family against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Run = Callable[..., tuple[dict[str, Any], dict[str, Any]]]
quick = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
I64 = np.int64


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(pair: tuple[dict[str, Any], dict[str, Any]], tolerance: float = 2e-6) -> None:
    ours, theirs = pair
    assert list(ours) == list(theirs)
    for name, want in theirs.items():
        assert ours[name].dtype == want.dtype and ours[name].shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(ours[name], want, rtol=10 * tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(ours[name], want)


UNARY = [
    ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Erf", {}), ("Exp", {}), ("Neg", {}), ("Abs", {}), ("HardSigmoid", {}), ("HardSwish", {}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.2}), ("Elu", {"alpha": 0.7}), ("Elu", {}),
    ("Softplus", {}), ("Gelu", {}), ("Gelu", {"approximate": "tanh"}), ("Floor", {}), ("Ceil", {}), ("Round", {}), ("Sign", {}),
    ("Sin", {}), ("Cos", {}), ("Reciprocal", {}), ("Mish", {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "attributes"), UNARY)
def test_unary(against_ort: Run, kind: str, attributes: dict[str, float]) -> None:
    close(against_ort([(kind, ["x"], ["y"], attributes)], {"x": 3 * noise(3, 7)}))


@pytest.mark.parametrize("kind", ["Sqrt", "Log"])
def test_unary_of_positive(against_ort: Run, kind: str) -> None:
    close(against_ort([(kind, ["x"], ["y"], {})], {"x": np.abs(noise(3, 7))}))


@pytest.mark.parametrize("bounds", [("lo", "hi"), ("lo",), ("", "hi")])
def test_clip(against_ort: Run, bounds: tuple[str, ...]) -> None:
    values = {"lo": np.float32(-0.3), "hi": np.float32(0.6)}
    close(against_ort([("Clip", ["x", *bounds], ["y"], {})], {"x": noise(31)}, {k: v for k, v in values.items() if k in bounds}))


SHAPES = st.sampled_from([((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((2, 3, 1), (1, 4)), ((), (5,)), ((4, 1, 6), (3, 1)), ((1,), (1,))])


@quick
@given(SHAPES, st.sampled_from(["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"]), st.sampled_from([np.float32, np.int64, np.int32]))
def test_binary(against_ort: Run, shapes: Any, kind: str, dtype: Any) -> None:
    a, b = (np.abs(noise(*s, seed=i)) * 4 + 1 for i, s in enumerate(shapes))
    close(against_ort([(kind, ["a", "b"], ["y"], {})], {"a": np.asarray(a, dtype), "b": np.asarray(b, dtype)}), 2e-5)


def test_maximum_of_one_and_of_three(against_ort: Run) -> None:
    feeds = {"a": noise(3, 4), "b": noise(4, seed=1), "c": noise(3, 1, seed=2)}
    close(against_ort([("Max", ["a", "b", "c"], ["y"], {})], feeds))
    close(against_ort([("Min", ["a"], ["y"], {})], {"a": noise(3, 4)}))


@quick
@given(SHAPES, st.sampled_from(["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]), st.sampled_from([np.float32, np.int64]))
def test_compare(against_ort: Run, shapes: Any, kind: str, dtype: Any) -> None:
    a, b = (np.rint(2 * noise(*s, seed=i)).astype(dtype) for i, s in enumerate(shapes))
    close(against_ort([(kind, ["a", "b"], ["y"], {})], {"a": np.asarray(a), "b": np.asarray(b)}))


def test_logic_and_selection(against_ort: Run) -> None:
    a, b = noise(3, 4) > 0, noise(4, seed=1) > 0
    for kind in ("And", "Or", "Xor"):
        close(against_ort([(kind, ["a", "b"], ["y"], {})], {"a": a, "b": b}))
    close(against_ort([("Not", ["a"], ["y"], {})], {"a": a}))
    for dtype in (np.float32, np.int64):
        feeds = {"a": a, "x": noise(3, 1).astype(dtype), "z": noise(1, 4).astype(dtype)}
        close(against_ort([("Where", ["a", "x", "z"], ["y"], {})], feeds))


@pytest.mark.parametrize("source", [np.float32, np.int64, np.int32, np.uint8, np.bool_, np.float16])
@pytest.mark.parametrize("target", [1, 2, 3, 6, 7, 9, 10])
def test_cast(against_ort: Run, source: Any, target: int) -> None:
    x = np.abs(noise(20) * 5).astype(source)
    close(against_ort([("Cast", ["x"], ["y"], {"to": target})], {"x": x}))


MOVES: list[tuple[str, list[str], dict[str, Any], tuple[int, ...], dict[str, Any]]] = [
    ("Reshape", ["x", "s"], {}, (2, 3, 4), {"s": np.array([0, -1], I64)}),
    ("Flatten", ["x"], {"axis": 2}, (2, 3, 4), {}),
    ("Squeeze", ["x", "s"], {}, (2, 1, 4), {"s": np.array([1], I64)}),
    ("Unsqueeze", ["x", "s"], {}, (2, 4), {"s": np.array([0, 3], I64)}),
    ("Identity", ["x"], {}, (2, 4), {}),
    ("Transpose", ["x"], {"perm": [0, 2, 1, 3]}, (2, 3, 4, 5), {}),
    ("Transpose", ["x"], {"perm": [3, 0, 2, 1]}, (2, 3, 4, 5), {}),
    ("Transpose", ["x"], {}, (20, 33), {}),
    ("Slice", ["x", "b", "e", "a", "t"], {}, (6, 7), {"b": [1, -1], "e": [5, -100], "a": [0, 1], "t": [2, -2]}),
    ("Slice", ["x", "b", "e", "a"], {}, (6, 7), {"b": [2], "e": [2**40], "a": [-1]}),
    ("Slice", ["x", "b", "e"], {}, (6, 7), {"b": [1, 2], "e": [4, 6]}),
    ("Expand", ["x", "s"], {}, (3, 1), {"s": [2, 1, 5]}),
    ("Tile", ["x", "s"], {}, (2, 3), {"s": [3, 2]}),
    ("Pad", ["x", "p", "v"], {}, (3, 4), {"p": [1, 0, 0, 2], "v": np.float32(0.5)}),
    ("Pad", ["x", "p"], {}, (3, 4), {"p": [-1, 1, 0, -2]}),
    ("Pad", ["x", "p"], {"mode": "reflect"}, (3, 4), {"p": [1, 2, 2, 3]}),
    ("Pad", ["x", "p"], {"mode": "edge"}, (3, 4), {"p": [1, 2, 2, 3]}),
    ("DepthToSpace", ["x"], {"blocksize": 2}, (1, 8, 3, 2), {}),
    ("DepthToSpace", ["x"], {"blocksize": 2, "mode": "CRD"}, (1, 8, 3, 2), {}),
    ("SpaceToDepth", ["x"], {"blocksize": 2}, (1, 2, 4, 6), {}),
    ("Gather", ["x", "i"], {"axis": 1}, (3, 5, 2), {"i": np.array([[0, -1], [3, 3]], I64)}),
    ("Gather", ["x", "i"], {}, (3, 5), {"i": np.array(1, np.int32)}),
    ("GatherElements", ["x", "i"], {"axis": 1}, (2, 5), {"i": np.array([[0, -1], [3, 3]], I64)}),
]


@pytest.mark.parametrize(("kind", "names", "attributes", "shape", "constants"), MOVES)
def test_movement(against_ort: Run, kind: str, names: list[str], attributes: Any, shape: tuple[int, ...], constants: Any) -> None:
    values = {k: np.asarray(v, None if isinstance(v, (np.ndarray, np.generic)) else I64) for k, v in constants.items()}
    close(against_ort([(kind, names, ["y"], attributes)], {"x": noise(*shape)}, values))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.bool_, np.float16])
def test_movement_of_other_types(against_ort: Run, dtype: Any) -> None:
    x = (np.abs(noise(3, 4)) * 5).astype(dtype)
    close(against_ort([("Transpose", ["x"], ["y"], {})], {"x": x}))
    close(against_ort([("Gather", ["x", "i"], ["y"], {"axis": 1})], {"x": x}, {"i": np.array([2, 0], I64)}))


@quick
@given(st.integers(0, 2), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_concat_and_split(against_ort: Run, axis: int, parts: list[int]) -> None:
    shapes = [[*[2, 3, 4][:axis], p, *[2, 3, 4][axis + 1 :]] for p in parts]
    feeds = {f"x{i}": noise(*s, seed=i) for i, s in enumerate(shapes)}
    close(against_ort([("Concat", list(feeds), ["y"], {"axis": axis})], feeds))
    whole = noise(*[2, 3, 4][:axis], sum(parts), *[2, 3, 4][axis + 1 :])
    outputs = [f"y{i}" for i in range(len(parts))]
    close(against_ort([("Split", ["x", "s"], outputs, {"axis": axis - 3})], {"x": whole}, {"s": np.array(parts, I64)}))


def test_an_index_out_of_range_is_an_error(against_ort: Run, chain: Any, plan_by_hand: Any) -> None:
    from hetsched.errors import ExecutionError
    from hetsched.graph import DType, Graph, Op, Role, Tensor
    from hetsched.runtime import compile as compile_plan

    tensors = {
        "x": Tensor("x", (4,), DType.F32, Role.INPUT), "i": Tensor("i", (2,), DType.I64, Role.INPUT),
        "y": Tensor("y", (2,), DType.F32, Role.OUTPUT),
    }  # fmt: skip
    graph = Graph("g", tensors, (Op("pick", "Gather", ("x", "i"), ("y",), origin=("/user/Gather",)),), ("x", "i"), ("y",))
    with compile_plan(graph, plan_by_hand(graph)) as executable, pytest.raises(ExecutionError, match=r"/user/Gather.*'i'"):
        executable.run({"x": noise(4), "i": np.array([0, 4], I64)})


REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
]


@quick
@given(st.sampled_from(REDUCTIONS), st.sampled_from([[0], [-1], [1, 2], [0, 2], [0, 1, 2, 3], [1, 3]]), st.booleans())
def test_reduce(against_ort: Run, kind: str, axes: list[int], keep: bool) -> None:
    nodes = [(kind, ["x", "a"], ["y"], {"keepdims": int(keep)})]
    close(against_ort(nodes, {"x": noise(2, 3, 4, 5)}, {"a": np.array(axes, I64)}), 1e-5)


def test_reduce_of_integers_and_of_everything(against_ort: Run) -> None:
    close(against_ort([("ReduceSum", ["x", "a"], ["y"], {})], {"x": np.arange(12).reshape(3, 4)}, {"a": np.array([1], I64)}))
    close(against_ort([("ReduceSum", ["x"], ["y"], {"keepdims": 0})], {"x": noise(3, 4)}), 1e-5)
    close(against_ort([("ReduceSum", ["x"], ["y"], {"noop_with_empty_axes": 1})], {"x": noise(3, 4)}))


@pytest.mark.parametrize(("shape", "axis"), [((3, 7), -1), ((2, 3, 4), 1), ((2, 3, 4), 0), ((5,), 0)])
def test_softmax(against_ort: Run, shape: tuple[int, ...], axis: int) -> None:
    close(against_ort([("Softmax", ["x"], ["y"], {"axis": axis})], {"x": 3 * noise(*shape)}))
    if axis in (-1, len(shape) - 1):
        close(against_ort([("LogSoftmax", ["x"], ["y"], {"axis": axis})], {"x": 3 * noise(*shape)}), 1e-5)


def test_normalizations(against_ort: Run) -> None:
    x, c = noise(2, 6, 5, 4), {k: np.abs(noise(6, seed=i)) + 0.1 for i, k in enumerate("sbmv")}
    close(against_ort([("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], {})], {"x": x}, c), 1e-5)
    close(against_ort([("InstanceNormalization", ["x", "s", "b"], ["y"], {"epsilon": 1e-3})], {"x": x}, {k: c[k] for k in "sb"}), 1e-5)
    close(
        against_ort([("LayerNormalization", ["x", "w", "b"], ["y"], {})], {"x": noise(3, 5, 6)}, {"w": noise(6), "b": noise(6, seed=1)}),
        1e-5,
    )
    close(against_ort([("LayerNormalization", ["x", "w"], ["y"], {"axis": 1})], {"x": noise(3, 5, 6)}, {"w": noise(5, 6)}), 1e-5)


@quick
@given(st.sampled_from(["MaxPool", "AveragePool"]), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.booleans(), st.booleans())
def test_pool(against_ort: Run, kind: str, kernel: int, stride: int, pad: int, ceil: bool, counted: bool) -> None:
    attributes: dict[str, Any] = {
        "kernel_shape": [kernel, 2], "strides": [stride, 2], "pads": [min(pad, kernel - 1), 0, 0, pad], "ceil_mode": int(ceil and not pad),
    }  # fmt: skip
    if kind == "AveragePool":
        attributes["count_include_pad"] = int(counted)
    close(against_ort([(kind, ["x"], ["y"], attributes)], {"x": noise(2, 3, 7, 8)}), 1e-5)


@pytest.mark.parametrize("kind", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pool(against_ort: Run, kind: str) -> None:
    close(against_ort([(kind, ["x"], ["y"], {})], {"x": noise(2, 3, 7, 8)}), 1e-5)
    close(against_ort([(kind, ["x"], ["y"], {})], {"x": noise(2, 3, 7)}), 1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("target", [{"s": np.array([1, 1, 2, 2.5], np.float32)}, {"z": np.array([1, 2, 3, 13], I64)}])
def test_resize(against_ort: Run, mode: str, transform: str, target: dict[str, Any]) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": transform, "nearest_mode": "floor"}
    names = ["x", "", "s"] if "s" in target else ["x", "", "", "z"]
    close(against_ort([("Resize", names, ["y"], attributes)], {"x": noise(1, 2, 5, 7)}, target), 1e-5)


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_arg(against_ort: Run, kind: str) -> None:
    close(against_ort([(kind, ["x"], ["y"], {"axis": 1, "keepdims": 0})], {"x": noise(3, 7, 2)}))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("axis", [None, 1])
def test_quantize_and_dequantize(against_ort: Run, dtype: Any, axis: int | None) -> None:
    n = 1 if axis is None else 5
    scale, zero = np.abs(noise(n)) / 20 + 0.01, np.arange(n).astype(dtype)
    constants = {"s": scale if axis else scale[0], "z": zero if axis else zero[0]}
    attributes = {} if axis is None else {"axis": axis}
    nodes = [("QuantizeLinear", ["x", "s", "z"], ["q"], attributes)]
    close(against_ort(nodes, {"x": noise(3, 5, 4)}, constants))
    q = np.random.default_rng(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (3, 5, 4)).astype(dtype)
    close(against_ort([("DequantizeLinear", ["q", "s", "z"], ["y"], attributes)], {"q": q}, constants))


def test_rules_and_lowerings_name_the_same_types() -> None:
    from hetsched.runtime.lower import LOWERINGS
    from hetsched.runtime.support import RULES

    assert sorted(RULES) == sorted(LOWERINGS)
