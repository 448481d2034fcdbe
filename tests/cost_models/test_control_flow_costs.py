"""Control flow costs what its body costs, times the trips, on CPUs only; other delegates cost more than kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.costs import CostTable
from hetsched.errors import UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import Graph, Op
from hetsched.passes import standard
from hetsched.soc_files import list_socs, load_soc
from hetsched.socs import SoC
from hetsched_cost_models import build_table, control_flow
from hetsched_cost_models.delegated import CALL_S, FACTOR
from hetsched_cost_models.work import work_of

Save = Callable[..., Path]
LOOP = """
g (float[64,64] x, bool go) => (float[a,b] y) <int64 trips = {%d}> {
    y = Loop(trips, go, x) < body = b (int64 i, bool k, float[64,64] v) => (bool k2, float[64,64] w) {
        k2 = Identity(k)  m = MatMul(v, v)  w = Tanh(m)
    } >
}"""
BODY = "g (float[64,64] v) => (float[a,b] w) { m = MatMul(v, v)  w = Tanh(m) }"


def looped(save: Save, trips: int) -> Graph:
    return standard(load(save(LOOP % trips, name=f"loop{trips}")))


def seconds(table: CostTable, op: int) -> dict[str, float]:
    return {table.queues[int(table.alt_queue[a])].name: float(table.time_s[a]) for a in table.alternatives(op)}


def cpu_host() -> SoC:
    """A phone's CPU as this machine, so that its figures are always the same."""
    soc = load_soc("snapdragon-8-gen-3")
    cpu = [p for p in soc.processors if p.kind == "cpu"]
    queues = {name: target for name, target in soc.queues.items() if target.partition(":")[0] == cpu[0].name}
    return soc.model_copy(update={"id": "host", "processors": tuple(cpu), "queues": queues})


@pytest.mark.parametrize("name", list_socs())
def test_control_flow_runs_on_the_cpu_of_every_soc(save: Save, name: str) -> None:
    table = build_table(looped(save, 20), load_soc(name))
    assert {table.queues[int(table.alt_queue[a])].kind for a in table.alternatives(0)} == {"cpu"}
    refused = {table.queues[r.queue].kind: r.reason for r in table.refusals[0]}
    assert set(refused) == {q.kind for q in table.queues} - {"cpu"}
    assert all("depends on the data" in reason for reason in refused.values())


def test_a_loop_costs_its_body_times_its_trips(save: Save) -> None:
    soc = load_soc("snapdragon-8-gen-3")
    once = build_table(load(save(BODY, name="body")), soc)
    twenty, forty = (build_table(looped(save, n), soc) for n in (20, 40))
    for queue, taken in seconds(twenty, 0).items():
        parts = [seconds(once, op)[queue] for op in range(2)]
        assert taken == pytest.approx(20 * sum(parts), rel=0.05)
        assert seconds(forty, 0)[queue] == pytest.approx(2 * taken, rel=1e-6)
    assert twenty.macs[0] == 20 * 64**3
    assert any("how often these loops run depends on the data" in note and "Loop_0 (20, bound)" in note for note in twenty.notes)


def test_a_loop_within_a_loop(save: Save) -> None:
    body = "c (int64 j, bool l, float[64,64] u) => (bool l2, float[64,64] t) { l2 = Identity(l)  t = MatMul(u, u) }"
    inner = f"w = Loop(five, k, v) < body = {body} >"
    text = f"""
    g (float[64,64] x, bool go) => (float[a,b] y) <int64 trips = {{20}}, int64 five = {{50}}> {{
        y = Loop(trips, go, x) < body = b (int64 i, bool k, float[64,64] v) => (bool k2, float[64,64] w) {{ k2 = Identity(k)  {inner} }} >
    }}"""
    graph = standard(load(save(text)))
    (outer,) = control_flow.bodies(graph)
    assert (outer.trips, outer.inner[0].trips) == (20, 50)
    assert work_of(graph).macs[0] == 20 * 50 * 64**3
    alone = build_table(standard(load(save("g (float[64,64] u) => (float[a,b] t) { t = MatMul(u, u) }", name="inner"))), cpu_host())
    table = build_table(graph, cpu_host())
    assert max(seconds(table, 0).values()) == pytest.approx(1000 * max(seconds(alone, 0).values()), rel=0.05)


def test_the_costlier_branch_counts(save: Save) -> None:
    text = """
    g (float[64,64] x, bool c) => (float[a,b] y) {
        y = If(c) <
            then_branch = t () => (float[64,64] p) { p = Relu(x) },
            else_branch = e () => (float[64,64] q) { m = MatMul(x, x)  q = MatMul(m, x) }
        >
    }"""
    graph = load(save(text))
    assert [op.type for op in graph.ops[0].body] == ["MatMul", "MatMul"] and work_of(graph).macs[0] == 2 * 64**3


def only_relu(op: Op, graph: Graph, precision: str) -> str | None:
    return None if op.type == "Relu" else f"there is no CPU kernel for {op.type}"


def test_what_no_kernel_runs_goes_to_another_delegate_and_costs_more(save: Save) -> None:
    text = "g (float[64,64] x) => (float[a,b] y) { r = Relu(x)  y = Sinh(r) }"
    graph, host = load(save(text)), cpu_host()
    with pytest.raises(UnsupportedModelError, match="no CPU kernel for Sinh; cpu f32: not installed"):
        build_table(graph, host, supported=only_relu, others={"ort": lambda op, g, p: "not installed"})
    own = build_table(graph, host)
    table = build_table(graph, host, supported=only_relu, others={"ort": lambda op, g, p: None if p == "f32" else "float only"})
    assert {table.delegate(a) for a in table.alternatives(0)} == {own.delegate(0)} and {
        table.delegate(a) for a in table.alternatives(1)
    } == {"ort"}
    for a, b in zip(table.alternatives(1), own.alternatives(1), strict=True):
        assert table.compute_s[a] == pytest.approx(FACTOR * own.compute_s[b]) and table.overhead_s[a] == pytest.approx(
            own.overhead_s[b] + CALL_S
        )
    assert any(note.startswith("run by the delegate ort") and "(Sinh)" in note for note in table.notes)
    kept = table.restrict(np.array([table.alt_queue[a] == table.alt_queue[0] for a in range(len(table.alt_precision))]))
    assert [kept.delegate(a) for a in range(len(kept.alt_precision))] == [own.delegate(0), "ort"]
    phone = build_table(graph, load_soc("snapdragon-8-gen-3"), supported=only_relu, others={"ort": lambda op, g, p: None})
    assert "ort" not in phone.alt_delegate
