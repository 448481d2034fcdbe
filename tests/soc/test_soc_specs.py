"""Every shipped SoC file: origins of figures, physics that must hold."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from hetsched.soc_files import list_socs, load_soc
from hetsched.soc_quantities import Figure
from hetsched.socs import SoC

ALL = list_socs()
#: What draws more at rest than a phone's display is a tablet, a laptop or a board, cooled otherwise.
PHONES = [name for name in ALL if load_soc(name).base_w.value < 1.5]


def _figures(node: Any, path: str = "") -> list[tuple[str, Figure]]:
    if isinstance(node, Figure):
        return [(path, node)]
    if isinstance(node, BaseModel):
        return [f for k in type(node).model_fields for f in _figures(getattr(node, k), f"{path}.{k}")]
    if isinstance(node, dict):
        return [f for k, v in node.items() for f in _figures(v, f"{path}.{k}")]
    if isinstance(node, tuple):
        return [f for i, v in enumerate(node) for f in _figures(v, f"{path}.{i}")]
    return []


@pytest.fixture(params=ALL)
def soc(request: pytest.FixtureRequest) -> SoC:
    return load_soc(request.param)


def test_every_figure_has_an_origin(soc: SoC) -> None:
    found = _figures(soc)
    assert len(found) > 60
    for path, figure in found:
        origin = figure.source or figure.estimated or ""
        assert origin.strip(), path
        assert re.search(r"(^|\s)/\w", origin) is None, f"{path} names a file of some machine: {origin}"


def test_what_is_assumed_says_so(soc: SoC) -> None:
    """The interval and the voltages are no measurements."""
    assert "assumed, not calibrated" in soc.interval_estimated
    assert any("assumed, not calibrated" in note for note in soc.notes)
    for p in soc.processors:
        for c in p.clusters:
            if any(o.voltage_estimated for o in c.operating_points):
                assert "estimated" in c.operating_points_source, f"{p.name}.{c.name}"


def test_operating_points_ascend_in_voltage_too(soc: SoC) -> None:
    for p in soc.processors:
        for c in p.clusters:
            v = [o.v for o in c.operating_points]
            assert v == sorted(v), f"{p.name}.{c.name}"
            assert 2 <= len(v) <= 16
            assert c.operating_points_source


def test_bandwidths_are_physical(soc: SoC) -> None:
    m = soc.memory
    assert m.reachable_bytes_s.value <= m.peak_bytes_s.value
    for p in soc.processors:
        assert p.bandwidth_bytes_s.value <= m.reachable_bytes_s.value
    for pair, together in m.together_bytes_s.items():
        alone = [soc.by_name[n].bandwidth_bytes_s.value for n in pair.split("+")]
        assert max(alone) <= together.value <= min(sum(alone), m.reachable_bytes_s.value)


def test_queues_name_cores_that_exist(soc: SoC) -> None:
    from hetsched_cost_models.roofline import queue_cores

    used: list[tuple[str, int]] = []
    for target in soc.queues.values():
        name, cores = queue_cores(target)
        have = {c for k in soc.by_name[name].clusters for c in k.cores}
        assert set(cores) <= have
        used += [(name, c) for c in cores]
    assert len(used) == len(set(used)), "two queues share a core"


def test_links_join_every_pair_of_kinds(soc: SoC) -> None:
    kinds = sorted({p.kind for p in soc.processors})
    for i, a in enumerate(kinds):
        for b in kinds[i + 1 :]:
            assert soc.link(a, b) is not None


def _steady(soc: SoC, power: dict[str, float], ambient: float) -> dict[str, float]:
    """Steady temperatures of the RC network: solve the conductance matrix."""
    names = [n.name for n in soc.thermal.nodes]
    g = np.zeros((len(names), len(names)))
    q = np.zeros(len(names))
    for r in soc.thermal.resistances:
        a, b = (names.index(x) if x != "ambient" else -1 for x in r.between)
        y = 1 / r.k_per_w.value
        for i, j in ((a, b), (b, a)):
            if i < 0:
                continue
            g[i, i] += y
            if j >= 0:
                g[i, j] -= y
            else:
                q[i] += y * ambient
    for n in soc.thermal.nodes:
        for p in n.processors:
            q[names.index(n.name)] += power.get(p, 0.0)
    return dict(zip(names, np.linalg.solve(g, q).tolist(), strict=True))


@pytest.mark.parametrize("name", PHONES)
def test_a_phone_throttles_at_6_w_and_not_at_1_w(name: str) -> None:
    soc = load_soc(name)
    trips = [t for t in soc.thermal.trips if t.node == "case"]
    skin = min(trips, key=lambda t: t.temperature_c.value)
    assert skin.polling_s.value == 7
    assert {p.partition(":")[0] for t in trips for p in t.processors} == {p.name for p in soc.processors}
    hot = _steady(soc, {"cpu": 6.0}, 25.0)
    assert any(hot[t.node] > t.temperature_c.value for t in soc.thermal.trips if t.node in ("case", "soc"))
    assert _steady(soc, {"cpu": 1.0}, 25.0)["case"] < skin.temperature_c.value - skin.hysteresis_k.value
    # The case needs minutes, a block less than a second.
    case = next(n for n in soc.thermal.nodes if n.name == "case")
    to_ambient = next(r for r in soc.thermal.resistances if "ambient" in r.between)
    assert 200 < case.capacity_j_per_k.value * to_ambient.k_per_w.value < 700


def test_every_processor_has_a_thermal_node_and_a_junction_trip(soc: SoC) -> None:
    held = {p for n in soc.thermal.nodes for p in n.processors}
    tripped = {p for t in soc.thermal.trips if t.node != "case" for p in t.processors}
    assert held == tripped == {p.name for p in soc.processors}
