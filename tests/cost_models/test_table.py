"""The whole table: alternatives, domains, transfers, launches, states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hetsched.costs import CostTable
from hetsched.errors import OptionError, UnknownRuntimeError, UnsupportedModelError
from hetsched.graph import DType, Graph, Op, Role
from hetsched.segments import schedule
from hetsched.soc_files import list_socs, load_soc
from hetsched.socs import SoC
from hetsched_cost_models import build_table, parameter_version, table_at
from hetsched_cost_models.parameters import family_of, runtimes_of

CONV = {"x": (1, 16, 8, 8), "w": (16, 16, 1, 1), "a": (1, 16, 8, 8), "y": (1, 16, 8, 8)}


@pytest.fixture
def float_graph(graph_of: Callable[..., Graph]) -> Graph:
    return graph_of([("Conv", ["x", "w"], ["a"]), ("Sin", ["a"], ["y"])], CONV, constants=("w",))


@pytest.fixture
def decode_graph(graph_of: Callable[..., Graph]) -> Graph:
    """One attention of a decoder's step after nine tokens."""
    cache = {"pk": (1, 2, 9, 8), "pv": (1, 2, 9, 8), "nk": (1, 2, 10, 8), "nv": (1, 2, 10, 8)}
    attrs = {"num_heads": 2, "kv_num_heads": 2, "head_dim": 8, "batch": 1, "window": 0, "scale": 1.0, "softcap": 0.0}
    made = graph_of(
        [("GroupQueryAttention", ["q", "k", "v", "pk", "pv"], ["y", "nk", "nv"], attrs)],
        cache | dict.fromkeys(("q", "k", "v", "y"), (1, 16)),
    )
    return made.replace(tensors={n: replace(t, role=Role.STATE) if n in cache else t for n, t in made.tensors.items()})


@pytest.fixture
def qdq_graph(graph_of: Callable[..., Graph]) -> Graph:
    kinds = {"x": DType.U8, "w": DType.I8, "a": DType.U8}
    ops = [("Conv", ["x", "w"], ["a"]), ("Relu", ["a"], ["b"]), ("DequantizeLinear", ["b"], ["c"]), ("Softmax", ["c"], ["y"])]
    shapes = {**CONV, "b": CONV["a"], "c": CONV["a"]}
    return graph_of(ops, shapes, constants=("w",), dtypes={**kinds, "b": DType.U8}, quantized=("x", "w", "a", "b"))


def _of(table: CostTable, op: int) -> dict[str, str]:
    """Queue name -> precision of an op's alternatives."""
    return {table.queues[table.alt_queue[a]].name: table.alt_precision[a] for a in table.alternatives(op)}


def test_float_model(float_graph: Graph, soc: SoC) -> None:
    for precision in ("auto", "float"):
        t = build_table(float_graph, soc, precision=precision)
        assert _of(t, 0) == {"cpu:0": "f32", "cpu:1": "f32", "gpu": "f16", "npu": "f16"}


def test_float_model_planned_as_quantized(float_graph: Graph, soc: SoC) -> None:
    t = build_table(float_graph, soc, precision="w8a8")
    assert _of(t, 0) == {"cpu:0": "w8a8", "cpu:1": "w8a8", "gpu": "f16", "npu": "w8a8"}
    assert _of(t, 1) == {"cpu:0": "f32", "cpu:1": "f32", "gpu": "f16", "npu": "w8a8"}
    assert any("no INT8 rate" in r.reason for r in t.refusals[0] if t.queues[r.queue].name == "gpu")


def test_qdq_model_runs_its_own_integers(qdq_graph: Graph, soc: SoC) -> None:
    t = build_table(qdq_graph, soc)
    assert _of(t, 0)["cpu:0"] == "w8a8"
    assert _of(t, 0)["npu"] == "w8a8"
    assert _of(t, 1)["cpu:0"] == "f32"  # no integer kernel for Relu: dequantize, compute, quantize
    assert _of(t, 3) == {"cpu:0": "f32", "cpu:1": "f32", "gpu": "f16", "npu": "f16"}
    f = build_table(qdq_graph, soc, precision="float")
    assert _of(f, 0) == {"cpu:0": "f32", "cpu:1": "f32", "gpu": "f16", "npu": "f16"}


def test_refusals_are_recorded_and_the_cpu_always_remains(graph_of: Callable[..., Graph]) -> None:
    g = graph_of([("NoSuchOp", ["x"], ["y"])], {"x": (8, 8), "y": (8, 8)})
    for name in list_socs():
        t = build_table(g, load_soc(name))
        assert "cpu" in {t.queues[q].kind for q in t.alt_queue.tolist()}
        assert any("NoSuchOp" in n for n in t.notes)
        refused = {t.queues[r.queue].name for r in t.refusals[0]}
        assert refused | set(_of(t, 0)) == {q.name for q in t.queues}
        for r in t.refusals[0]:
            assert len(r.reason) > 10


def test_domains_and_transfers(float_graph: Graph, soc: SoC) -> None:
    t = build_table(float_graph, soc)
    at = {(t.queues[d.queue].name, d.dtype): i for i, d in enumerate(t.domains)}
    assert set(at) == {("cpu:0", "f32"), ("cpu:1", "f32"), ("gpu", "f16"), ("npu", "f16")}
    assert t.input_domain == at["cpu:0", "f32"]
    a = t.tensor_names.index("a")
    elements = 16 * 64
    cpu, other, gpu, npu = at["cpu:0", "f32"], at["cpu:1", "f32"], at["gpu", "f16"], at["npu", "f16"]
    assert t.tensor_bytes[a].tolist() == [{cpu: 4, other: 4, gpu: 2, npu: 2}[d] * elements for d in range(4)]
    assert t.transfer_s[a, cpu, other] == 0
    assert np.all(t.transfer_s[:, np.arange(4), np.arange(4)] == 0)
    # CPU -> coherent GPU: only the conversion, at the GPU's slower of vector rate and bandwidth.
    assert t.conversion_s[a, cpu, gpu] == pytest.approx(6 * elements / 10e9)
    assert t.maintenance_s[a, cpu, gpu] == 0
    # CPU -> NPU: conversion and cache maintenance of what the CPU wrote.
    assert t.maintenance_s[a, cpu, npu] == pytest.approx(1e-5 + 1e-10 * 4 * elements)
    assert t.transfer_bytes[a, cpu, npu] == 6 * elements
    # GPU -> NPU: same representation, no shared handle: a copy.
    assert t.conversion_s[a, gpu, npu] == 0
    assert t.maintenance_s[a, gpu, npu] == pytest.approx(1e-5 + 1e-10 * 2 * elements + 2 * 2 * elements / 16e9)
    assert np.all(t.transfer_energy_j >= 0)


def test_quantized_tensors_are_not_converted_between_cpu_queues_or_to_an_integer_npu(qdq_graph: Graph, soc: SoC) -> None:
    t = build_table(qdq_graph, soc)
    at = {(t.queues[d.queue].name, d.dtype): i for i, d in enumerate(t.domains)}
    a = t.tensor_names.index("a")
    assert t.tensor_bytes[a, at["npu", "w8a8"]] == t.tensor_bytes[a, at["cpu:0", "f32"]] == 1024
    assert t.transfer_s[a, at["cpu:0", "f32"], at["cpu:1", "f32"]] == 0
    assert t.tensor_bytes[a, at["npu", "f16"]] == 2048
    assert t.conversion_s[a, at["npu", "w8a8"], at["npu", "f16"]] > 0
    assert t.maintenance_s[a, at["npu", "w8a8"], at["npu", "f16"]] == 0
    c = t.tensor_names.index("c")  # a float tensor of a QDQ model stays float in both NPU domains
    assert t.conversion_s[c, at["npu", "w8a8"], at["npu", "f16"]] == 0


def test_sync_is_symmetric_with_a_zero_diagonal(float_graph: Graph, soc: SoC) -> None:
    t = build_table(float_graph, soc)
    assert np.all(np.diag(t.sync_s) == 0)
    assert np.array_equal(t.sync_s, t.sync_s.T)
    names = [q.name for q in t.queues]
    assert t.sync_s[names.index("cpu:0"), names.index("gpu")] == 4e-4
    # Above 50 us the waiter blocks: it pays power for the spin only.
    assert t.sync_energy_j[names.index("cpu:0"), names.index("gpu")] == pytest.approx(50e-6 * 0.5)


def test_runtime_sets_the_fixed_cost_of_the_npu(float_graph: Graph) -> None:
    soc = load_soc("snapdragon-8-gen-3")
    total = {}
    for runtime in ("qnn", "litert", "ort"):
        t = build_table(float_graph, soc, runtime=runtime)
        q = [x.name for x in t.queues].index("npu")
        total[runtime] = t.launch_s[q] + t.sync_s[q, t.host]
    fixed = family_of(soc.by_name["npu"]).fixed_s
    assert total == {runtime: pytest.approx(fixed[runtime]["float"]) for runtime in total}
    assert total["ort"] < total["qnn"] < total["litert"]
    slower = load_soc("qcs9075")  # its host submits at 2.36 GHz instead of 3.30, its vector unit moves 84 GB/s instead of 132
    t = build_table(float_graph, slower, runtime="qnn")
    q = t.queue_index("npu")
    hosts = [max(c.top.hz for c in s.by_name["cpu"].clusters) for s in (soc, slower)]
    expected = fixed["qnn"]["float"] * (0.75 * 132 / 84 + 0.25 * hosts[0] / hosts[1])
    assert t.launch_s[q] + t.sync_s[q, t.host] == pytest.approx(expected, rel=1e-3)


def test_energy_is_additive_over_a_serial_schedule(float_graph: Graph, soc: SoC) -> None:
    t = build_table(float_graph, soc)
    alt = [t.alternatives(0)[0], t.alternatives(1)[0]]
    s = schedule(t, [0, 1], alt)
    q = int(t.alt_queue[alt[0]])
    assert s.energy_j == pytest.approx(float(t.energy_j[alt].sum() + t.launch_energy_j[q] + t.sync_energy_j[q, t.host]), rel=1e-12)
    assert s.latency_s == pytest.approx(float(t.time_s[alt].sum() + t.launch_s[q]), rel=1e-12)


def test_lower_clocks_draw_less_power_and_what_is_bound_by_memory_less_energy(float_graph: Graph, soc: SoC) -> None:
    t = build_table(float_graph, soc)
    slow = table_at(t, soc, {"npu": 0.5})
    on = np.array([t.queues[q].kind == "npu" for q in t.alt_queue])
    assert (slow.energy_j[~on] == t.energy_j[~on]).all()
    moved = np.array([soc.memory.energy_j_per_byte.value]) * t.dram_bytes
    assert ((slow.energy_j - moved)[on] / slow.time_s[on] < (t.energy_j - moved)[on] / t.time_s[on]).all()
    waiting = on & (slow.time_s == t.time_s)
    assert (slow.energy_j[waiting] < t.energy_j[waiting]).all()


def test_table_at_slows_one_processor(float_graph: Graph, soc: SoC) -> None:
    t = build_table(float_graph, soc)
    slow = table_at(t, soc, {"npu": 0.25})
    npu = np.array([t.queues[q].name == "npu" for q in t.alt_queue.tolist()])
    assert np.allclose(slow.compute_s[npu], 4 * t.compute_s[npu])
    assert np.array_equal(slow.compute_s[~npu], t.compute_s[~npu])
    assert np.array_equal(slow.dram_bytes, t.dram_bytes)
    for bad in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(OptionError, match="fraction"):
            table_at(t, soc, {"npu": bad})
    with pytest.raises(OptionError, match="no processor 'dsp'"):
        table_at(t, soc, {"dsp": 0.5})


def test_bad_options(float_graph: Graph, soc: SoC) -> None:
    with pytest.raises(OptionError, match=r"'w3a3'.*auto, float, mixed, w8a8"):
        build_table(float_graph, soc, precision="w3a3")
    with pytest.raises(UnknownRuntimeError, match=r"round does not know the runtime 'tensorrt': use one of default, qnn"):
        build_table(float_graph, soc, runtime="tensorrt")


@pytest.mark.parametrize(("name", "runtime"), [("dimensity-9300", "qnn"), ("apple-a17-pro", "litert"), ("snapdragon-8-gen-3", "coreml")])
def test_a_runtime_of_other_socs_is_refused_and_the_own_ones_are_named(float_graph: Graph, name: str, runtime: str) -> None:
    soc = load_soc(name)
    with pytest.raises(UnknownRuntimeError, match=f"{name} does not know the runtime '{runtime}'") as e:
        build_table(float_graph, soc, runtime=runtime)
    for own in runtimes_of(soc, decoder=False):
        assert own in str(e.value)
        build_table(float_graph, soc, runtime=own)


@pytest.mark.parametrize(("name", "runtime"), [("apple-a17-pro", "litert"), ("apple-a17-pro", "mlx"), ("snapdragon-8-gen-3", "llama.cpp")])
def test_an_engine_of_language_models_runs_no_other_model(float_graph: Graph, decode_graph: Graph, name: str, runtime: str) -> None:
    soc = load_soc(name)
    with pytest.raises(UnknownRuntimeError, match=f"runtime '{runtime}' except for language models with a cache: use one of default"):
        build_table(float_graph, soc, runtime=runtime)
    assert f"{runtime} on the " in build_table(decode_graph, soc, runtime=runtime).notes[-1]


def test_the_host_offers_what_its_kernels_have(float_graph: Graph, soc: SoC) -> None:
    """The refusal is the runtime's; other SoCs are not asked."""
    asked: list[tuple[str, str]] = []

    def supported(op: Op, graph: Graph, precision: str) -> str | None:
        asked.append((op.type, precision))
        return "no kernel here" if (op.type, precision) in (("Conv", "w8a8"), ("Sin", "f32")) else None

    build_table(float_graph, soc, supported=supported)
    assert asked == []
    host = soc.model_copy(update={"id": "host"})
    t = build_table(float_graph, host, precision="w8a8", supported=supported)
    assert _of(t, 0) == {"cpu:0": "f32", "cpu:1": "f32", "gpu": "f16", "npu": "w8a8"}
    assert [(r.precision, r.reason) for r in t.refusals[0] if t.queues[r.queue].kind == "cpu"] == [("w8a8", "no kernel here")] * 2
    assert _of(t, 1) == {"gpu": "f16", "npu": "w8a8"}
    assert [(r.precision, r.reason) for r in t.refusals[1] if t.queues[r.queue].kind == "cpu"] == [("f32", "no kernel here")] * 2
    assert ("Sin", "w8a8") not in asked, "an op without weights has no integer form on a CPU"


def test_an_op_that_nothing_can_run_is_named_with_the_reason(float_graph: Graph, soc: SoC) -> None:
    cpu = [p for p in soc.processors if p.kind == "cpu"]
    host = soc.model_copy(update={"id": "host", "processors": tuple(cpu), "queues": {"cpu:0": "cpu:0-1", "cpu:1": "cpu:2-3"}})
    with pytest.raises(UnsupportedModelError, match=r"^node 'op1' \(Sin\) of 'test' can run nowhere on .*: cpu f32: no kernel for Sin$"):
        build_table(float_graph, host, supported=lambda op, graph, precision: f"no kernel for {op.type}" if op.type == "Sin" else None)


def test_the_hosts_offer_agrees_with_the_runtime_op_by_op(qdq_graph: Graph, soc: SoC, graph_of: Callable[..., Graph]) -> None:
    from hetsched.runtime.support import supported

    half = graph_of([("Relu", ["x"], ["y"])], {"x": (4,), "y": (4,)}, dtypes={"x": DType.F16, "y": DType.F16})
    host = soc.model_copy(update={"id": "host"})
    for graph in (qdq_graph, half):
        for precision in ("auto", "float", "w8a8"):
            t = build_table(graph, host, precision=precision, supported=supported)
            for i, op in enumerate(graph.ops):
                for a in t.alternatives(i):
                    if t.queues[t.alt_queue[a]].kind == "cpu":
                        assert supported(op, graph, t.alt_precision[a]) is None
    assert not {t.queues[t.alt_queue[a]].kind for a in t.alternatives(0)} & {"cpu"}
    assert [r.reason for r in t.refusals[0] if t.queues[r.queue].kind == "cpu"] == [supported(half.ops[0], half, "f32")] * 2


def test_same_input_same_table(float_graph: Graph, soc: SoC) -> None:
    a, b = build_table(float_graph, soc), build_table(float_graph, soc)
    assert a.alt_precision == b.alt_precision
    assert np.array_equal(a.time_s, b.time_s)
    assert parameter_version() == parameter_version()


def test_an_empty_graph_has_an_empty_table(soc: SoC, graph_of: Callable[..., Graph]) -> None:
    g = Graph("empty", {}, (), (), ())
    t = build_table(g, soc)
    assert len(t.time_s) == 0
    assert t.refusals == ()


def test_a_runtime_without_a_path_to_the_npu_leaves_it_out(graph_of: Callable[..., Graph]) -> None:
    graph = graph_of([("Relu", ["x"], ["y"])], {"x": (1, 8, 16, 16), "y": (1, 8, 16, 16)})
    table = build_table(graph, load_soc("snapdragon-8-gen-3"), runtime="ncnn")
    kinds = [q.kind for q in table.queues]
    assert "npu" not in {kinds[q] for q in table.alt_queue} and "gpu" in {kinds[q] for q in table.alt_queue}
    assert any("has no path to this NPU" in r.reason for r in table.refusals[0] if kinds[r.queue] == "npu")


def test_a_slowed_host_submits_at_less_power(float_graph: Graph, soc: SoC) -> None:
    """The core that launches draws ``C V^2 f`` and leakage like any other; the simulator is told its power at the top."""
    t = build_table(float_graph, soc)
    slow = table_at(t, soc, {"cpu": 0.5})
    assert (slow.launch_energy_j[t.launch_s > 0] < t.launch_energy_j[t.launch_s > 0]).all()
    spun = t.sync_energy_j > 0
    assert spun.any() and (slow.sync_energy_j[spun] < t.sync_energy_j[spun]).all()
    assert np.allclose(slow.launch_energy_j / slow.host_share, t.launch_energy_j)
    assert np.array_equal(slow.launch_s, t.launch_s)
    assert np.array_equal(table_at(t, soc, {"npu": 0.5}).launch_energy_j, t.launch_energy_j)
