"""One TFLite operator at a time, against the LiteRT interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.frontends.tflite_schema import OPERATORS
from hetsched.graph import Graph, Role
from hetsched.passes import standard
from hetsched.reference import run, run_op

litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed: nothing to compare with")
schema = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="ai-edge-litert is not installed: nothing to write models with")

Array = np.ndarray[Any, Any]
VERSIONS = {"BROADCAST_TO": 2}
TYPES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}


@dataclass(frozen=True)
class Spec:
    """A tensor of a model: its shape, type, quantization (scales, zero point, axis), and its value if it is a constant."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    value: Array | None = None
    scales: tuple[float, ...] = ()
    zero: int = 0
    axis: int = 0
    variable: bool = False


def f32(*shape: int) -> Spec:
    return Spec(shape)


def const(value: Any, dtype: str = "float32") -> Spec:
    array = np.asarray(value, dtype)
    return Spec(array.shape, dtype, array)


def ints(*values: int) -> Spec:
    return const(values, "int32")


def noise(*shape: int, seed: int = 5) -> Spec:
    return const(np.random.default_rng(seed).standard_normal(shape))


def q8(*shape: int, scale: float = 0.03, zero: int = 3, dtype: str = "int8") -> Spec:
    return Spec(shape, dtype, None, (scale,), zero)


def q_weights(*shape: int, axis: int = 0) -> Spec:
    rng = np.random.default_rng(9)
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.001, 0.02, shape[axis]))
    return Spec(shape, "int8", rng.integers(-127, 128, shape).astype(np.int8), scales, 0, axis)


def q_bias(x: Spec, w: Spec) -> Spec:
    scales = tuple(float(np.float32(x.scales[0]) * np.float32(s)) for s in w.scales)
    return Spec((len(scales),), "int32", np.random.default_rng(2).integers(-500, 500, len(scales)).astype(np.int32), scales, 0, 0)


def write(
    path: Path, ops: Sequence[tuple[str, Any, Sequence[int], Sequence[int]]], tensors: Sequence[Spec], outputs: Sequence[int]
) -> Path:
    """Write a model; an operator is its name, its options object, and the indices of its inputs and outputs."""
    flatbuffers = pytest.importorskip("flatbuffers")
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.subgraphs, model.operatorCodes, model.buffers = 3, [graph], [], [schema.BufferT()]
    graph.tensors, graph.operators = [], []
    for i, spec in enumerate(tensors):
        t = schema.TensorT()
        t.name, t.shape, t.type, t.buffer = f"t{i}", list(spec.shape), TYPES[spec.dtype], 0
        if spec.value is not None:
            b = schema.BufferT()
            b.data = list(np.ascontiguousarray(spec.value).tobytes())
            t.buffer = len(model.buffers)
            model.buffers.append(b)
        t.isVariable = spec.variable
        if spec.scales:
            q = schema.QuantizationParametersT()
            q.scale, q.zeroPoint, q.quantizedDimension = list(spec.scales), [spec.zero] * len(spec.scales), spec.axis
            t.quantization = q
        graph.tensors.append(t)
    for i, (name, options, reads, writes) in enumerate(ops):
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), VERSIONS.get(name, 1)
        model.operatorCodes.append(code)
        op = schema.OperatorT()
        op.opcodeIndex, op.inputs, op.outputs, op.builtinOptions = i, list(reads), list(writes), options
        if options is not None:
            op.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__[:-1])
        graph.operators.append(op)
    written = {o for _, _, _, writes in ops for o in writes}
    graph.inputs = [i for i, s in enumerate(tensors) if s.value is None and i not in written and not s.variable]
    graph.outputs = list(outputs)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def options(kind: str, **fields: Any) -> Any:
    out = getattr(schema, kind + "OptionsT")()
    for name, value in fields.items():
        assert hasattr(out, name), (kind, name)
        setattr(out, name, value)
    return out


def feeds_of(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(11)
    feeds: dict[str, Array] = {}
    for name in graph.inputs:
        t = graph.tensors[name]
        if t.dtype.is_float:
            feeds[name] = rng.uniform(0.1, 2, t.shape).astype(np.float32) * rng.choice([-1, 1], t.shape).astype(np.float32)
        elif t.quantization is not None:
            info = np.iinfo(t.dtype.numpy)
            feeds[name] = rng.integers(info.min, info.max + 1, t.shape).astype(t.dtype.numpy)
        else:
            feeds[name] = rng.integers(0, 2, t.shape).astype(t.dtype.numpy)
    return feeds


def check(path: Path) -> Graph:
    """The model gives what LiteRT gives: floats to 1e-5, integers within one step."""
    graph = standard(load(path))
    feeds = feeds_of(graph)
    interpreter = litert.Interpreter(str(path), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], feeds[detail["name"]])
    interpreter.invoke()
    values = run(graph, feeds)
    values.update((n, graph.tensors[n].numpy()) for n in graph.outputs if graph.tensors[n].is_constant)
    for detail in interpreter.get_output_details():
        want, got = interpreter.get_tensor(detail["index"]), values[detail["name"]]
        assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape, got.dtype, want.dtype)
        assert want.size == 1 or np.ptp(want.astype(np.float64)) > 0, "a constant result proves nothing"
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
        else:
            assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= (1 if graph.tensors[detail["name"]].quantization else 0)
    return graph


SAME, VALID = 0, 1
RELU, RELU6 = 1, 3
IMAGE = f32(2, 7, 9, 4)
CONV = {"strideH": 2, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
ONE: dict[str, tuple[str, Any, list[Spec], list[Spec]]] = {}


def case(label: str, op: str, opts: tuple[str, dict[str, Any]] | None, inputs: list[Spec], *outputs: Spec) -> None:
    ONE[label] = op, opts, inputs, list(outputs)


for same in (SAME, VALID):
    rows = (4, 9) if same == SAME else (3, 7)
    case(f"conv pad {same}", "CONV_2D", ("Conv2D", {**CONV, "padding": same, "fusedActivationFunction": RELU6}),
         [IMAGE, noise(5, 3, 3, 4), noise(5)], f32(2, *rows, 5))  # fmt: skip
    case(f"depthwise pad {same}", "DEPTHWISE_CONV_2D", ("DepthwiseConv2D", {**CONV, "strideW": 2, "padding": same, "depthMultiplier": 2}),
         [IMAGE, noise(1, 3, 3, 8), noise(8)], f32(2, rows[0], 5 if same == SAME else 4, 8))  # fmt: skip
    for pool in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        case(f"{pool} pad {same}", pool, ("Pool2D", {"padding": same, "strideH": 2, "strideW": 2, "filterHeight": 3, "filterWidth": 2}),
             [IMAGE], f32(2, rows[0], 5 if same == SAME else 4, 4))  # fmt: skip
case("conv dilated", "CONV_2D", ("Conv2D", {**CONV, "strideH": 1, "padding": SAME, "dilationHFactor": 2, "dilationWFactor": 3}),
     [IMAGE, noise(5, 3, 3, 4), noise(5)], f32(2, 7, 9, 5))  # fmt: skip
case("conv grouped", "CONV_2D", ("Conv2D", {**CONV, "padding": SAME}), [IMAGE, noise(6, 3, 3, 2), noise(6)], f32(2, 4, 9, 6))
for pad, size in ((SAME, (1, 14, 27, 3)), (VALID, (1, 16, 28, 3))):
    case(f"transposed conv pad {pad}", "TRANSPOSE_CONV", ("TransposeConv", {"padding": pad, "strideH": 2, "strideW": 3}),
         [ints(*size), noise(3, 4, 4, 4), f32(1, 7, 9, 4)], f32(*size))  # fmt: skip
case(
    "fully connected",
    "FULLY_CONNECTED",
    ("FullyConnected", {"fusedActivationFunction": RELU}),
    [f32(3, 8), noise(5, 8), noise(5)],
    f32(3, 5),
)
case("fully connected 3d", "FULLY_CONNECTED", ("FullyConnected", {"keepNumDims": True}), [f32(2, 3, 8), noise(5, 8)], f32(2, 3, 5))
case("batch matmul", "BATCH_MATMUL", ("BatchMatMul", {"adjY": True}), [f32(2, 3, 4, 5), f32(2, 3, 6, 5)], f32(2, 3, 4, 6))
case("add vector", "ADD", ("Add", {"fusedActivationFunction": RELU}), [IMAGE, noise(4)], IMAGE)
case("sub broadcast", "SUB", ("Sub", {}), [f32(2, 1, 9, 4), noise(7, 1, 4)], IMAGE)
case("mul scalar", "MUL", ("Mul", {}), [IMAGE, const(1.7)], IMAGE)
case("div", "DIV", ("Div", {}), [IMAGE, IMAGE], IMAGE)
for name in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD"):
    kind = {"MAXIMUM": "MaximumMinimum", "MINIMUM": "MaximumMinimum"}.get(name, name.title().replace("_", ""))
    case(name, name, (kind, {}), [IMAGE, noise(7, 9, 4)], IMAGE)
case("floor div ints", "FLOOR_DIV", ("FloorDiv", {}), [const([-7, 7, -8, 9, 3], "int32"), const([2, -2, 3, 4, 5], "int32")],
     Spec((5,), "int32"))  # fmt: skip
for name, kind in (("LESS", "Less"), ("GREATER_EQUAL", "GreaterEqual")):
    case(name, name, (kind, {}), [IMAGE, const(0.3)], Spec(IMAGE.shape, "bool"))
for name in (
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "TANH",
    "LOGISTIC",
    "HARD_SWISH",
    "ELU",
    "ABS",
    "NEG",
    "EXP",
    "SQUARE",
    "SIN",
    "FLOOR",
    "ROUND",
    "CEIL",
):
    case(name, name, None, [IMAGE], IMAGE)
case("not equal", "NOT_EQUAL", ("NotEqual", {}), [Spec((4, 9), "int32"), const(1, "int32")], Spec((4, 9), "bool"))
case("leaky relu", "LEAKY_RELU", ("LeakyRelu", {"alpha": 0.2}), [IMAGE], IMAGE)
case("gelu", "GELU", ("Gelu", {"approximate": True}), [IMAGE], IMAGE)
case("prelu", "PRELU", None, [IMAGE, noise(1, 1, 4)], IMAGE)
case("softmax", "SOFTMAX", ("Softmax", {"beta": 1.0}), [IMAGE], IMAGE)
case("softmax beta", "SOFTMAX", ("Softmax", {"beta": 0.5}), [f32(3, 8)], f32(3, 8))
case("log softmax", "LOG_SOFTMAX", ("LogSoftmax", {}), [f32(3, 8)], f32(3, 8))
case("l2 normalization", "L2_NORMALIZATION", ("L2Norm", {}), [IMAGE], IMAGE)
case("local response", "LOCAL_RESPONSE_NORMALIZATION",
     ("LocalResponseNormalization", {"radius": 1, "bias": 1.0, "alpha": 0.3, "beta": 0.7}),
     [IMAGE], IMAGE)  # fmt: skip
for name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
    case(name, name, ("Reducer", {"keepDims": False}), [IMAGE, ints(1, 2)], f32(2, 4))
    case(f"{name} keep", name, ("Reducer", {"keepDims": True}), [IMAGE, ints(-1)], f32(2, 7, 9, 1))
for name in ("ARG_MAX", "ARG_MIN"):
    case(
        name, name, ("ArgMax" if name == "ARG_MAX" else "ArgMin", {"outputType": 2}), [IMAGE, const(-1, "int32")], Spec((2, 7, 9), "int32")
    )
case("cumsum", "CUMSUM", ("Cumsum", {"reverse": True}), [f32(3, 8), const(1, "int32")], f32(3, 8))
for label, flags in (("plain", {}), ("corners", {"alignCorners": True}), ("half", {"halfPixelCenters": True})):
    case(f"bilinear {label}", "RESIZE_BILINEAR", ("ResizeBilinear", flags), [IMAGE, ints(11, 5)], f32(2, 11, 5, 4))
    case(f"nearest {label}", "RESIZE_NEAREST_NEIGHBOR", ("ResizeNearestNeighbor", flags), [IMAGE, ints(13, 4)], f32(2, 13, 4, 4))
case("reshape", "RESHAPE", ("Reshape", {"newShape": [2, -1]}), [IMAGE, ints(2, -1)], f32(2, 252))
case("expand dims", "EXPAND_DIMS", ("ExpandDims", {}), [f32(2, 3), const(1, "int32")], f32(2, 1, 3))
case("squeeze", "SQUEEZE", ("Squeeze", {"squeezeDims": [1]}), [f32(2, 1, 3, 1)], f32(2, 3, 1))
case("transpose", "TRANSPOSE", ("Transpose", {}), [IMAGE, ints(3, 1, 0, 2)], f32(4, 7, 2, 9))
case("concat", "CONCATENATION", ("Concatenation", {"axis": -1}), [IMAGE, f32(2, 7, 9, 2), noise(2, 7, 9, 1)], f32(2, 7, 9, 7))
case("pack", "PACK", ("Pack", {"axis": 1, "valuesCount": 2}), [f32(2, 3), f32(2, 3)], f32(2, 2, 3))
case("unpack", "UNPACK", ("Unpack", {"axis": 1, "num": 3}), [f32(2, 3, 4)], f32(2, 4), f32(2, 4), f32(2, 4))
case("split", "SPLIT", ("Split", {"numSplits": 2}), [const(3, "int32"), IMAGE], f32(2, 7, 9, 2), f32(2, 7, 9, 2))
case("split v", "SPLIT_V", ("SplitV", {"numSplits": 2}), [IMAGE, ints(3, -1), const(1, "int32")], f32(2, 3, 9, 4), f32(2, 4, 9, 4))
case("slice", "SLICE", ("Slice", {}), [IMAGE, ints(0, 1, 2, 0), ints(2, 3, -1, 4)], f32(2, 3, 7, 4))
case("reverse", "REVERSE_V2", ("ReverseV2", {}), [IMAGE, ints(1)], IMAGE)
case("strided slice", "STRIDED_SLICE", ("StridedSlice", {"beginMask": 1, "endMask": 8, "shrinkAxisMask": 4}),
     [IMAGE, ints(0, 1, 2, 0), ints(2, 6, 9, 0), ints(1, 2, 1, 2)], f32(2, 3, 2))  # fmt: skip
case("strided slice back", "STRIDED_SLICE", ("StridedSlice", {"beginMask": 4, "endMask": 4}),
     [f32(4, 5, 6), ints(1, 1, 0), ints(3, 4, 0), ints(1, 1, -2)], f32(2, 3, 3))  # fmt: skip
case("strided slice new axis", "STRIDED_SLICE", ("StridedSlice", {"newAxisMask": 2, "ellipsisMask": 1, "endMask": 4}),
     [f32(4, 5, 6), ints(0, 0, 1), ints(0, 0, 0), ints(1, 1, 1)], f32(4, 5, 1, 5))  # fmt: skip
case("pad", "PAD", ("Pad", {}), [IMAGE, const([[0, 0], [1, 2], [0, 3], [0, 0]], "int32")], f32(2, 10, 12, 4))
case("pad v2", "PADV2", ("PadV2", {}), [f32(2, 3), const([[1, 0], [0, 2]], "int32"), const(0.7)], f32(3, 5))
for mode in (0, 1):
    case(f"mirror pad {mode}", "MIRROR_PAD", ("MirrorPad", {"mode": mode}), [f32(3, 4), const([[2, 1], [1, 3]], "int32")], f32(6, 8))
case("tile", "TILE", ("Tile", {}), [f32(2, 3), ints(2, 3)], f32(4, 9))
case("broadcast to", "BROADCAST_TO", ("BroadcastTo", {}), [f32(1, 3), ints(2, 4, 3)], f32(2, 4, 3))
case("depth to space", "DEPTH_TO_SPACE", ("DepthToSpace", {"blockSize": 2}), [f32(1, 3, 2, 12)], f32(1, 6, 4, 3))
case("space to depth", "SPACE_TO_DEPTH", ("SpaceToDepth", {"blockSize": 2}), [f32(1, 6, 4, 3)], f32(1, 3, 2, 12))
case("space to batch", "SPACE_TO_BATCH_ND", ("SpaceToBatchND", {}), [IMAGE, ints(2, 3), const([[1, 0], [0, 0]], "int32")], f32(12, 4, 3, 4))
case(
    "batch to space",
    "BATCH_TO_SPACE_ND",
    ("BatchToSpaceND", {}),
    [f32(12, 4, 3, 4), ints(2, 3), const([[1, 0], [0, 2]], "int32")],
    f32(2, 7, 7, 4),
)
case("gather", "GATHER", ("Gather", {"axis": 1}), [IMAGE, const([[6, 0], [2, 3]], "int32")], f32(2, 2, 2, 9, 4))
case("gather nd", "GATHER_ND", ("GatherNd", {}), [f32(3, 4, 5), const([[0, 1], [2, 3]], "int32")], f32(2, 5))
case("select v2", "SELECT_V2", ("SelectV2", {}), [Spec((2, 7, 9, 1), "bool"), IMAGE, noise(4)], IMAGE)
case("select rows", "SELECT", ("Select", {}), [const([True, False], "bool"), f32(2, 3), f32(2, 3)], f32(2, 3))
case("add n", "ADD_N", ("AddN", {}), [f32(2, 3), f32(2, 3), f32(2, 3)], f32(2, 3))
case("top k", "TOPK_V2", ("TopKV2", {}), [f32(3, 8), const(3, "int32")], f32(3, 3), Spec((3, 3), "int32"))
case("cast", "CAST", ("Cast", {"inDataType": 0, "outDataType": 2}), [IMAGE], Spec(IMAGE.shape, "int32"))
case(
    "rsqrt",
    "RSQRT",
    None,
    [
        const(np.linspace(0.5, 3, 6)),
    ],
    f32(6),
)
Q = q8(1, 7, 9, 4)
W = q_weights(5, 3, 3, 4)
D = q_weights(1, 3, 3, 4, axis=3)
case("q conv", "CONV_2D", ("Conv2D", {**CONV, "padding": SAME, "fusedActivationFunction": RELU6}), [Q, W, q_bias(Q, W)],
     q8(1, 4, 9, 5, scale=0.0235, zero=-128))  # fmt: skip
case("q depthwise", "DEPTHWISE_CONV_2D", ("DepthwiseConv2D", {**CONV, "strideW": 2, "padding": VALID, "depthMultiplier": 1}),
     [Q, D, q_bias(Q, D)], q8(1, 3, 4, 4, scale=0.05))  # fmt: skip
F = q_weights(5, 8)
case("q fully connected", "FULLY_CONNECTED", ("FullyConnected", {"keepNumDims": True}),
     [q8(2, 3, 8), Spec((5, 8), "int8", F.value, (0.01,)),
     Spec((5,), "int32", np.arange(5, dtype=np.int32) * 40, (0.0003,))], q8(2, 3, 5, scale=0.05))  # fmt: skip
case(
    "q add",
    "ADD",
    ("Add", {"fusedActivationFunction": RELU}),
    [Q, q8(1, 7, 9, 4, scale=0.02, zero=-9)],
    q8(1, 7, 9, 4, scale=0.03, zero=-20),
)
case("q mul", "MUL", ("Mul", {}), [Q, q8(1, 7, 9, 4, scale=0.02)], q8(1, 7, 9, 4, scale=0.08))
case("q concat", "CONCATENATION", ("Concatenation", {"axis": 3}), [Q, q8(1, 7, 9, 2)], q8(1, 7, 9, 6))
case("q pad", "PAD", ("Pad", {}), [Q, const([[0, 0], [1, 2], [0, 3], [0, 0]], "int32")], q8(1, 10, 12, 4))
case("q softmax", "SOFTMAX", ("Softmax", {"beta": 1.0}), [q8(3, 8)], q8(3, 8, scale=1 / 256, zero=-128))
case("q logistic", "LOGISTIC", None, [Q], q8(1, 7, 9, 4, scale=1 / 256, zero=-128))
case("q mean", "MEAN", ("Reducer", {"keepDims": True}), [Q, ints(1, 2)], q8(1, 1, 1, 4, scale=0.01, zero=-4))
case(
    "q max pool",
    "MAX_POOL_2D",
    ("Pool2D", {"padding": SAME, "strideH": 2, "strideW": 2, "filterHeight": 3, "filterWidth": 3}),
    [Q],
    q8(1, 4, 5, 4),
)
case("q requantize", "QUANTIZE", ("Quantize", {}), [Q], q8(1, 7, 9, 4, scale=0.02, zero=100, dtype="uint8"))
case("q dequantize", "DEQUANTIZE", ("Dequantize", {}), [Q], f32(1, 7, 9, 4))
case("q quantize", "QUANTIZE", ("Quantize", {}), [f32(2, 5)], q8(2, 5))
case("q int16 add", "QUANTIZE", ("Quantize", {}), [f32(2, 5)], Spec((2, 5), "int16", None, (0.0003,), 0))
case("f16 constant", "DEQUANTIZE", ("Dequantize", {}), [const(np.linspace(-2, 2, 24).reshape(2, 12), "float16")], f32(2, 12))


@pytest.mark.parametrize("label", ONE)
def test_one_operator(tmp_path: Path, label: str) -> None:
    op, opts, inputs, outputs = ONE[label]
    n = len(inputs)
    made = None if opts is None else options(opts[0], **opts[1])
    outs = list(range(n, n + len(outputs)))
    check(write(tmp_path / "one.tflite", [(op, made, range(n), outs)], [*inputs, *outputs], outs))


def test_layout_changes_cancel(tmp_path: Path) -> None:
    """NCHW in, two convolutions as NHWC with an elementwise operator between, NCHW out: nothing is moved."""
    conv = options("Conv2D", padding=SAME, strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
    tensors = [f32(1, 3, 6, 5), ints(0, 2, 3, 1), f32(1, 6, 5, 3), noise(4, 3, 3, 3), f32(1, 6, 5, 4), noise(4), f32(1, 6, 5, 4),
               noise(2, 1, 1, 4), f32(1, 6, 5, 2), ints(0, 3, 1, 2), f32(1, 2, 6, 5), noise(2)]  # fmt: skip
    ops = [("TRANSPOSE", options("Transpose"), [0, 1], [2]), ("CONV_2D", conv, [2, 3, 5], [4]), ("ADD", options("Add"), [4, 5], [6]),
           ("CONV_2D", conv, [6, 7, 11], [8]), ("TRANSPOSE", options("Transpose"), [8, 9], [10])]  # fmt: skip
    graph = check(write(tmp_path / "m.tflite", ops, tensors, [10]))
    assert [op.type for op in graph.ops] == ["Conv", "Add", "Conv"]


def test_padding_goes_into_the_convolution(tmp_path: Path) -> None:
    conv = options("Conv2D", padding=VALID, strideH=2, strideW=2, dilationHFactor=1, dilationWFactor=1)
    for x, y, weights in (
        (f32(1, 8, 8, 3), f32(1, 11, 10, 3), noise(4, 3, 3, 3)),
        (q8(1, 8, 8, 4), q8(1, 11, 10, 4), q_weights(5, 3, 3, 4)),
    ):
        bias = q_bias(x, weights) if x.scales else noise(4)
        out = q8(1, 5, 4, 5, scale=0.1) if x.scales else f32(1, 5, 4, 4)
        tensors = [x, const([[0, 0], [1, 2], [1, 1], [0, 0]], "int32"), y, weights, out, bias]
        ops = [("PAD", options("Pad"), [0, 1], [2]), ("CONV_2D", conv, [2, 3, 5], [4])]
        graph = check(write(tmp_path / "m.tflite", ops, tensors, [4]))
        assert not any(op.type == "Pad" for op in graph.ops)


def run_recurrent(graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    """Run in order; an LSTM, which has no reference function, by ONNX Runtime."""
    import onnxruntime as ort
    from onnx import helper

    from hetsched.frontends.onnx_nodes import to_node
    from hetsched.reference.element_types import NUMBER_OF

    values = dict(feeds)
    for op in graph.ops:
        given = {i: graph.tensors[i].numpy() if graph.tensors[i].is_constant else values[i] for i in op.inputs if i}
        if op.type != "LSTM":
            values.update(zip(op.outputs, run_op(op, [given.get(i) for i in op.inputs], graph.tensors), strict=True))
            continue
        info = [helper.make_tensor_value_info(n, NUMBER_OF[graph.tensors[n].dtype], a.shape) for n, a in given.items()]
        outs = [helper.make_tensor_value_info(n, 1, None) for n in op.outputs]
        proto = helper.make_model(
            helper.make_graph([to_node(op)], "g", info, outs), opset_imports=[helper.make_opsetid("", 21)], ir_version=9
        )
        session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        values.update(zip(op.outputs, session.run(list(op.outputs), given), strict=True))
    return values


def check_three_runs(path: Path) -> Graph:
    """Three runs in a row, each with the state that the one before left."""
    graph = standard(load(path))
    states = [n for n in graph.inputs if graph.tensors[n].role is Role.STATE]
    values = {n: np.zeros(graph.tensors[n].shape, np.float32) for n in states}
    interpreter = litert.Interpreter(str(path), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    interpreter.allocate_tensors()
    rng = np.random.default_rng(1)
    (detail,), (out,) = interpreter.get_input_details(), interpreter.get_output_details()
    for _ in range(3):
        x = rng.standard_normal(tuple(detail["shape"])).astype(np.float32)
        interpreter.set_tensor(detail["index"], x)
        interpreter.invoke()
        got = run_recurrent(graph, {detail["name"]: x, **values})
        np.testing.assert_allclose(got[out["name"]], interpreter.get_tensor(out["index"]), rtol=1e-4, atol=2e-5)
        values = {n: got[f"{n}/next"] for n in states}
    assert states and all(np.ptp(values[n]) > 0 for n in states)
    return graph


def test_svdf_remembers(tmp_path: Path) -> None:
    batch, units, rank, memory, width = 2, 3, 2, 5, 4
    state = Spec((batch, units * rank * memory), variable=True)
    tensors = [f32(batch, width), noise(units * rank, width), noise(units * rank, memory), noise(units), state, f32(batch, units)]
    made = options("SVDF", rank=rank, fusedActivationFunction=RELU)
    graph = check_three_runs(write(tmp_path / "m.tflite", [("SVDF", made, range(5), [5])], tensors, [5]))
    assert graph.outputs == ("t5", "t4/next") and graph.tensors["t4/next"].role is Role.STATE


@pytest.mark.parametrize("time_major", [False, True])
def test_lstm_is_the_one_of_onnx(tmp_path: Path, time_major: bool) -> None:
    pytest.importorskip("onnxruntime", reason="the LSTM is run by ONNX Runtime")
    batch, steps, width, hidden = 2, 6, 4, 3
    shape = (steps, batch) if time_major else (batch, steps)
    tensors = [f32(*shape, width), *(noise(hidden, width, seed=k) for k in range(4)), *(noise(hidden, hidden, seed=k) for k in range(4, 8))]
    tensors += [*(noise(hidden, seed=k) for k in range(8, 12)), *[Spec((batch, hidden), variable=True)] * 2, f32(*shape, hidden)]
    reads = [*range(9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1]
    made = options("UnidirectionalSequenceLSTM", fusedActivationFunction=4, timeMajor=time_major, cellClip=10.0)
    graph = check_three_runs(write(tmp_path / "m.tflite", [("UNIDIRECTIONAL_SEQUENCE_LSTM", made, reads, [15])], tensors, [15]))
    assert [op.type for op in graph.ops if op.type not in {"Reshape", "Transpose"}] == ["LSTM"]


def test_weights_of_float_operators_may_be_integers(tmp_path: Path) -> None:
    """Dynamic range: LiteRT quantizes the activations too, so the results are close, not equal."""
    weights = q_weights(5, 3, 3, 4)
    conv = options("Conv2D", padding=SAME, strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
    path = write(tmp_path / "m.tflite", [("CONV_2D", conv, [0, 1, 2], [3])], [f32(1, 7, 9, 4), weights, noise(5), f32(1, 7, 9, 5)], [3])
    graph = standard(load(path))
    (op,) = (o for o in graph.ops if o.type == "Conv")
    w = graph.tensors[op.inputs[1]]
    assert w.dtype.value == "i8" and w.shape == (5, 4, 3, 3) and w.quantization is not None and w.quantization.axis == 0
    assert graph.tensors[op.inputs[0]].quantization is None


def test_names_are_those_of_the_schema() -> None:
    numbers = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    assert {k: OPERATORS.get(k) for k in numbers} == numbers
