"""The checks that ``make bench-models`` runs: that they see what is wrong, and a quick part of them over the shared corpus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_checks.corpus import Refusal, files, listed, load_any, name_of
from model_checks.counting import macs, parameters, stored_elements
from model_checks.equivalence import compare, difference
from model_checks.meaning import declared
from model_checks.speed import llama_7b, many_nodes
from model_checks.twins import TWINS, differ
from model_checks.twins import difference as graphs_differ

from hetsched.errors import ExecutionError
from hetsched.frontends import load
from hetsched.graph import Graph, Op
from hetsched.passes import standard
from hetsched.reference import run_op

Save = Callable[..., Path]
ROOT = Path(__file__).parents[3] / "shared" / "models"
#: Small enough for every run of the tests; ``make bench-models`` compares them all.
QUICK = (
    "real/magika__model.onnx", "real/mlperf_tiny__kws_ref_model.tflite", "real/mlperf_tiny__vww_96_int8.tflite",
    "real/mlperf_tiny__pretrainedResnet_quant.tflite", "real/silero_vad__silero_vad_16k_sequence.onnx",
    "real/pymicro_wakeword__okay_nabu.tflite", "real/tflm__micro_speech_quantized.tflite", "real/mlperf_tiny__ad01_fp32.tflite",
)  # fmt: skip

NET = """
g (float[1,3,8,8] x) => (float[a,b] y) <float[4,3,1,1] w = {1,-2,3,4,-5,6,7,8,-9,1,2,3},
    float[4] k = {1,2,3,4}, float[4,5] f = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2},
    float[5] b = {1,0,2,0,3}, int64[2] s = {1,-1}, float lo = {0}, float hi = {6}> {
    c = Conv(x, w)  n = BatchNormalization(c, k, k, k, k)  r = Clip(n, lo, hi)  p = GlobalAveragePool(r)  v = Reshape(p, s)
    m = MatMul(v, f)  y = Add(m, b)
}"""


@pytest.fixture
def net(save: Save) -> tuple[Graph, Graph]:
    """A small net as loaded and fused."""
    graph = load(save(NET))
    return graph, standard(graph)


def test_work_and_parameters_are_counted(net: tuple[Graph, Graph], save: Save) -> None:
    graph, fused = net
    assert macs(graph) == macs(fused) == 4 * 3 * 64 + 4 * 5
    assert parameters(graph) == 12 + 20 + 5 + 4  # one vector is scale, offset, mean and variance; as the last two it is no parameter
    assert stored_elements(save(NET, name="again")) >= parameters(graph)


def test_a_tied_table_counts_once_in_either_direction(save: Save, tmp_path: Path) -> None:
    import onnx

    text = "g (int64[2] i) => (float[a,b] y) { r = Gather(w, i)  t = Transpose<perm = [1,0]>(w)  y = MatMul(r, t) }"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    table = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "w"))
    graph = load(save(model))
    assert [op.type for op in graph.ops] == ["Gather", "MatMul"] and parameters(graph) == table.size
    product = graph.tensors[graph.ops[1].inputs[1]]
    assert product.data is not None and product.data.path is not None and product.data.order == (1, 0)
    np.testing.assert_array_equal(product.numpy(), table.T)


def test_a_wrong_attribute_is_seen(net: tuple[Graph, Graph]) -> None:
    graph, fused = net
    assert not compare(graph).worst
    op = fused.ops[0]
    assert op.type == "FusedConv"
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    inputs = [x, *(fused.tensors[n].numpy() if n else None for n in op.inputs[1:])]
    expected = run_op(op, inputs, fused.tensors)[0]
    good = declared(fused, op, inputs)
    assert good is not None and difference(good[0], expected) < 1e-5
    wrong: tuple[Mapping[str, Any], ...] = ({"activation_beta": 5.0}, {"activation": ""}, {"batch_norm": 0}, {"epsilon": 0.5})
    for change in wrong:
        bad = declared(fused, replace(op, attrs={**op.attrs, **change}), inputs)
        assert bad is not None and difference(bad[0], expected) > 1e-3, change


def test_what_is_not_compared_is_counted(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fused operator whose body the reference does not compute is no finding, and no silence either."""
    import model_checks.equivalence as equivalence

    graph = load(save(NET))
    plain = equivalence.run_op

    def without_batch_norms(op: Op, *rest: Any) -> Any:
        if any(part.type == "BatchNormalization" for part in (op, *op.body)):
            raise ExecutionError("there is no reference for BatchNormalization")
        return plain(op, *rest)

    monkeypatch.setattr(equivalence, "run_op", without_batch_norms)
    result = compare(graph)
    assert result.opaque == {"BatchNormalization": 1} and result.unchecked == {"FusedConv": 1} and not result.worst


def test_differences() -> None:
    a = np.linspace(-1, 1, 9, dtype=np.float32)
    assert difference(a, a) == 0 and difference(a, a + np.float32(0.1)) == pytest.approx(0.1 / 1.1, rel=0.1)
    assert difference(a, a.astype(np.float64)) == float("inf") and difference(a, np.where(a > 0, np.nan, a).astype(np.float32)) == float(
        "inf"
    )
    codes = np.arange(-4, 4, dtype=np.int8)
    assert difference(codes, codes) == 0 and difference(codes, codes + np.int8(3)) >= 2


def test_twins_differ_where_types_or_work_do(net: tuple[Graph, Graph]) -> None:
    graph, fused = net
    assert not graphs_differ(fused, fused).types and graphs_differ(fused, fused).macs == 0
    assert graphs_differ(graph, fused).types["FusedConv"] == (0, 1)


def test_generated_files_load(tmp_path: Path) -> None:
    llama_7b(tmp_path / "seven.gguf")
    graph = load(tmp_path / "seven.gguf", {"tokens": 1, "past": 512})
    assert parameters(graph) == pytest.approx(6_738_415_616, rel=1e-3) and sum(op.type == "GroupQueryAttention" for op in graph.ops) == 32
    count = many_nodes(tmp_path / "many.onnx", 300)
    assert 300 <= count < 330 and 100 < len(standard(load(tmp_path / "many.onnx", {"side": 8})).ops) < 200


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.corpus
@pytest.mark.skipif(not ROOT.is_dir(), reason=f"the shared corpus is absent ({ROOT})")
def test_small_trained_models_compute_the_same(name: str) -> None:
    graph = load_any(ROOT / name)
    assert isinstance(graph, Graph)
    result = compare(graph)
    assert not result.worst and not result.left and result.fused > 0


@pytest.mark.corpus
@pytest.mark.skipif(not ROOT.is_dir(), reason=f"the shared corpus is absent ({ROOT})")
def test_few_files_are_refused_and_work_is_as_listed() -> None:
    """Every third file; ``make bench-models`` takes them all."""
    some, known = files(ROOT)[::3], listed(ROOT)
    loaded = {p: load_any(p) for p in some}
    assert len(some) > 50 and sum(isinstance(g, Refusal) for g in loaded.values()) <= 0.05 * len(some)
    for path, graph in loaded.items():
        said = known.get(name_of(path, ROOT))
        if isinstance(graph, Graph) and said is not None and said.macs:
            assert macs(graph) == pytest.approx(said.macs, rel=0.005), path


@pytest.mark.corpus
@pytest.mark.skipif(not ROOT.is_dir(), reason=f"the shared corpus is absent ({ROOT})")
@pytest.mark.parametrize("twin", [t for t in TWINS if t.same], ids=lambda t: t.what)
def test_twins_are_the_same(twin: Any) -> None:
    found = differ(twin, ROOT)
    assert found.is_small, found
