"""The real TFLite models: each loads with every shape known, and does operator by operator what LiteRT does."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import UnsupportedModelError
from hetsched.frontends import load
from hetsched.frontends.tflite_frontend import lowered
from hetsched.graph import Graph, Role
from hetsched.passes import SIMPLIFYING, run_passes, standard, unfuse
from hetsched.passes.derived import base_of, derived
from hetsched.reference import run_op

Array = np.ndarray[Any, Any]
CORPUS = Path(__file__).parents[3] / "shared" / "models" / "real"
FILES = sorted(CORPUS.glob("*.tflite"))
#: LiteRT has no such operator, refuses the file, or crashes on it; or the images are too large for plain numpy.
NOT_COMPARED = ("posenet", "bodypix", "invoking_error", "person_detect", "keyword_scrambled", "pymicro", "513", "deeplab", "basic_pitch")
COMPARED = [p for p in FILES if not any(word in p.name for word in NOT_COMPARED)]
#: Nodes whose results LiteRT gets wrong: with a scale of 1e-35 its fixed-point multiplier overflows.
WRONG_IN_LITERT = ("conv_lstm_cell/mul_1", "conv_lstm_cell/mul_4", "conv_lstm_cell/mul_7", "conv_lstm_cell/mul_10")

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not FILES, reason=f"the shared corpus is absent ({CORPUS})")]

INTERPRET = """
import sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
model, feeds, out = sys.argv[1:]
feeds = np.load(feeds)
lite = Interpreter(model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, experimental_preserve_all_tensors=True)
lite.allocate_tensors()
for d in lite.get_input_details():
    lite.set_tensor(d["index"], feeds[str(d["index"])])
lite.invoke()
values = {}
for d in lite.get_tensor_details():
    try:
        values[str(d["index"])] = lite.get_tensor(d["index"])
    except ValueError:
        pass
np.savez(out, **values)
"""


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_loads_fully_shaped(path: Path) -> None:
    graph = load(path)
    fused = standard(graph)
    assert len(fused.ops) <= len(graph.ops)
    assert {op.name: op for op in unfuse(fused).ops} == {op.name: op for op in run_passes(graph, SIMPLIFYING).ops}
    in_memory = sum(
        t.data.array.nbytes for t in graph.tensors.values() if t.data is not None and t.data.array is not None and own(t.data.array)
    )
    assert in_memory < 1 << 20 and all(op.origin or op.type == "DequantizeLinear" for op in graph.ops)


def own(array: Array) -> bool:
    """Whether the elements are in memory of their own, not in the mapped file."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None


def lite_tensors(path: Path, feeds: dict[str, Array], folder: Path) -> dict[int, Array]:
    """Every tensor, by index, of a run of LiteRT in a process of its own (some files crash it)."""
    if find_spec("ai_edge_litert") is None:
        pytest.skip("ai-edge-litert is not installed: nothing to compare with")
    np.savez(folder / "feeds.npz", **feeds)
    command = [sys.executable, "-c", INTERPRET, str(path), str(folder / "feeds.npz"), str(folder / "out.npz")]
    subprocess.run(command, check=True, capture_output=True)
    return {int(k): v for k, v in np.load(folder / "out.npz").items()}


def noise(graph: Graph, name: str, rng: np.random.Generator) -> Array:
    tensor = graph.tensors[name]
    if tensor.dtype.is_float:
        return rng.uniform(-1, 1, tensor.shape).astype(np.float32)
    info = np.iinfo(tensor.dtype.numpy)
    return rng.integers(info.min, info.max + 1, tensor.shape).astype(tensor.dtype.numpy)


@pytest.mark.parametrize("path", COMPARED, ids=lambda p: p.stem)
def test_every_operator_equals_litert(path: Path, tmp_path: Path) -> None:
    """Each operator gets LiteRT's own inputs: integers come out within one step, floats to 1e-4."""
    builder, _, _ = lowered(path, {}, {})
    graph, rng = standard(load(path)), np.random.default_rng(0)
    feeds = {i: noise(graph, builder.graph.tensors[i].name, rng) for i in builder.graph.inputs}
    lite = lite_tensors(path, {str(i): v for i, v in feeds.items()}, tmp_path)
    known = {v.name: lite[i].transpose(v.order) for i, v in builder.values.items() if i in lite and lite[i].ndim == len(v.order)}
    known.update((builder.graph.tensors[i].name, lite[i]) for i in builder.graph.outputs)
    known |= {
        n: v for n in graph.tensors if (b := base_of(n)) in known and n not in known and (v := derived(graph, n, known[b])) is not None
    }
    values = {builder.graph.tensors[i].name: v for i, v in feeds.items()}
    values.update((n, zero(graph, n)) for n in graph.inputs if graph.tensors[n].role is Role.STATE)
    hybrid = {op.name for op in graph.ops if mixed(graph, op.inputs)}
    compared = 0
    for op in graph.ops:
        if op.domain:
            values.update((o, known.get(o, np.zeros(graph.tensors[o].shape, graph.tensors[o].dtype.numpy))) for o in op.outputs)
            continue
        inputs = [None if not i else graph.tensors[i].numpy() if graph.tensors[i].is_constant else values[i] for i in op.inputs]
        results = lstm(inputs) if op.type == "LSTM" else run_op(op, inputs, graph.tensors)
        for out, got in zip(op.outputs, results, strict=True):
            assert got.shape == graph.tensors[out].shape and got.dtype == graph.tensors[out].dtype.numpy
            values[out] = known.get(out, got)
            if out not in known or op.name.endswith(WRONG_IN_LITERT):
                continue
            compared += 1
            want = known[out]
            if got.dtype.kind == "f":
                tolerance = 0.03 if op.name in hybrid else 1e-4
                assert np.abs(got - want).max() <= tolerance * max(float(np.abs(want).max()), 1e-3), op.name
            else:
                assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= 1, op.name
    assert compared >= 0.7 * sum(op.type not in {"Transpose", "Reshape"} and not op.domain for op in graph.ops)


def lstm(inputs: list[Array | None]) -> list[Array]:
    """ONNX's LSTM of one direction, written out: gates in the order input, output, forget, cell."""
    x, w, r, b, _, h, c = inputs
    assert x is not None and w is not None and r is not None and b is not None and h is not None and c is not None
    h, c, bias, rows = h[0], c[0], b[0].reshape(2, -1).sum(0), []
    for step in x:
        gates = step @ w[0].T + h @ r[0].T + bias
        i, o, f = (1 / (1 + np.exp(-g)) for g in np.split(gates, 4, 1)[:3])
        c = f * c + i * np.tanh(np.split(gates, 4, 1)[3])
        h = o * np.tanh(c)
        rows.append(h)
    return [np.stack(rows)[:, None].astype(np.float32), h[None].astype(np.float32), c[None].astype(np.float32)]


def zero(graph: Graph, name: str) -> Array:
    tensor = graph.tensors[name]
    point = tensor.quantization.zero_point if tensor.quantization is not None else None
    return np.full(tensor.shape, graph.tensors[point].numpy() if point else 0, tensor.dtype.numpy)


def mixed(graph: Graph, names: tuple[str, ...]) -> bool:
    """Whether an operator has float activations and integer weights: LiteRT quantizes the activations as well."""
    tensors = [graph.tensors[n] for n in names if n]
    return any(t.dtype.is_float and not t.is_constant for t in tensors) and any(t.quantization is not None for t in tensors)


def counts(name: str) -> Counter[str]:
    return Counter(op.type for op in standard(load(CORPUS / f"{name}.tflite")).ops)


def test_what_fusion_leaves() -> None:
    """The same network costs the same operators in every form; layouts change at the ends only."""
    for name in ("mlperf_tiny__vww_96_float", "mlperf_tiny__vww_96_int8"):
        assert counts(name) == {"Transpose": 1, "FusedConv": 27, "GlobalAveragePool": 1, "Reshape": 1, "Gemm": 1, "Softmax": 1}
    v2 = counts("coral__mobilenet_v2_1.0_224_quant")
    assert v2 == {"Transpose": 1, "FusedConv": 35, "Conv": 18, "Add": 10, "GlobalAveragePool": 1, "Reshape": 1, "Softmax": 1}
    torch = counts("tflm__mobilenet_v2_quantized_1x3x224x224")
    assert torch == {"FusedConv": 35, "Conv": 17, "Add": 10, "ReduceMean": 1, "Reshape": 1, "Gemm": 1}
    wake = counts("pymicro_wakeword__alexa")
    assert wake["Transpose"] == 2 and wake["FusedConv"] + wake["Conv"] == 9


def test_custom_operators_have_shapes_and_refuse_to_run() -> None:
    graph = load(CORPUS / "coral__bodypix_mobilenet_v1_075_512_512_16_quant_decoder.tflite")
    shapes = [graph.tensors[o].shape for o in graph.outputs][:5]
    assert shapes == [(1, 20, 17, 2), (1, 20, 17), (1, 20), (1,), (1, 20, 33, 33)]
    traffic = load(CORPUS / "coral__traffic_model.tflite")
    assert [traffic.tensors[o].shape for o in traffic.outputs][:4] == [(1, 40, 4), (1, 40), (1, 40), (1,)]
    op = next(o for o in traffic.ops if o.domain)
    with pytest.raises(UnsupportedModelError, match="TFLite_Detection_PostProcess"):
        run_op(op, [None] * len(op.inputs), traffic.tensors)


def test_integer_lstms_say_why_they_are_kept_whole() -> None:
    graph = load(CORPUS / "tflm__trained_lstm_int8.tflite")
    (op,) = (o for o in graph.ops if o.domain)
    assert op.type == "UNIDIRECTIONAL_SEQUENCE_LSTM" and "16 bits" in op.attr_str("reason", "")
    assert (
        sum(graph.tensors[n].role is Role.STATE for n in graph.inputs)
        == 2
        == sum(graph.tensors[n].role is Role.STATE for n in graph.outputs)
    )
