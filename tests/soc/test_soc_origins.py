"""Every number of every SoC file says where it is from; market places too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hetsched.errors import SoCError
from hetsched.plain_yaml import load
from hetsched.soc_files import load_soc, soc_paths, validate_soc
from hetsched.soc_quantities import TIERS
from hetsched.soc_words import market, power_basis

PATHS = soc_paths()
#: Numbers whose origin stands beside them in a field of its own, or that are names.
BESIDE = {
    "schema_version": None,
    "cores": None, "hz": "operating_points_source", "v": "operating_points_source", "interval": "interval_estimated",
    "process_nm": None, "upper": "notes",
}  # fmt: skip


def bare(node: Any, name: str, around: tuple[dict[str, Any], ...]) -> Iterator[str]:
    """Numbers without an origin."""
    if isinstance(node, dict):
        if "value" in node:
            given = [str(node[k]).strip() for k in ("source", "estimated") if node.get(k)]
            if len(given) != 1 or len(given[0]) < 3:
                yield name
            return
        for key, child in node.items():
            yield from bare(child, key if key not in ("min", "max") else name, (*around, node))
    elif isinstance(node, list):
        for child in node:
            yield from bare(child, name, around)
    elif isinstance(node, int | float) and not isinstance(node, bool):
        field = BESIDE.get(name, "")
        if field == "" or (field is not None and not any(parent.get(field) for parent in around)):
            yield name


@pytest.mark.parametrize("soc_id", PATHS)
def test_every_number_has_an_origin(soc_id: str) -> None:
    raw = load(PATHS[soc_id].read_text("utf-8"))
    assert list(bare(raw, "", ())) == []


def test_a_number_without_an_origin_is_found() -> None:
    assert list(bare({"launch_s": 1.0, "memory": {"peak": {"value": 1}}}, "", ())) == ["launch_s", "peak"]


@pytest.mark.parametrize("soc_id", PATHS)
def test_every_soc_has_a_market_place_and_what_models_meet(soc_id: str) -> None:
    soc = load_soc(soc_id)
    assert soc.market is not None and soc.market.tier in TIERS and "2020-01" <= soc.market.release <= "2025-12"
    assert soc.market.release in market(soc) and market(soc).endswith("~") == (soc.market.estimated is not None)
    for p in soc.processors:
        if p.kind == "npu" and p.support == "hexagon":
            assert p.address_bytes is not None and 3e9 < p.address_bytes.value < 2**32 and p.compile_s_per_weight is not None
        assert (p.compile_s_per_weight is None) or p.compile_s is not None


@pytest.mark.parametrize(
    "change",
    [
        {"tier": "luxury"}, {"release": "2023"}, {"release": "2023-13"}, {"release": 2023.1}, {"source": None}, {"estimated": "too"},
        {"source": " "}, {"price": 3},
    ],
    ids=str,
)  # fmt: skip
def test_bad_market_places(change: dict[str, Any]) -> None:
    raw = load_soc("snapdragon-8-gen-3").model_dump(mode="json")
    raw["market"] = {"tier": "mid", "release": "2023-10", "source": "somewhere", **change}
    with pytest.raises(SoCError, match="market") as e:
        validate_soc(raw, "x")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("soc_id", PATHS)
def test_power_says_that_voltages_are_estimates(soc_id: str) -> None:
    soc = load_soc(soc_id)
    guessed = any(o.voltage_estimated for p in soc.processors for c in p.clusters for o in c.operating_points)
    assert bool(power_basis(soc)) == guessed
    if soc.vendor == "Qualcomm":
        assert "no Snapdragon voltage is published" in power_basis(soc)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("process_nm", -4), ("process_nm", 0), ("processors.npu.address_bytes.value", -1), ("processors.npu.compile_s.value", 1e9),
        ("processors.npu.compile_s_per_weight.value", 1), ("processors.npu.compile_s.source", ""),
    ],
)  # fmt: skip
def test_figures_that_no_chip_has(field: str, value: Any) -> None:
    raw = load_soc("snapdragon-8-gen-3").model_dump(mode="json")
    node: Any = raw
    *steps, last = field.split(".")
    for step in steps:
        node = next(p for p in node if p["name"] == step) if isinstance(node, list) else node[step]
    node[last] = value
    with pytest.raises(SoCError, match=steps[-1] if steps else field) as e:
        validate_soc(raw, "x")
    assert "\n" not in str(e.value)
