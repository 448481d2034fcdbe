"""The parameter file: every figure has an origin, every family resolves, plans can name its version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import hetsched_cost_models
from hetsched.soc_files import list_socs, load_soc
from hetsched_cost_models import parameter_version
from hetsched_cost_models.operators import CLASS_LIKE, CLASSES, KIND_LIKE, VECTOR_KINDS
from hetsched_cost_models.parameters import class_shares, family_of, matrix_factors, runtimes_of, support_table_name, vector_factors
from hetsched_cost_models.support import support_table

PACKAGE = Path(hetsched_cost_models.__file__).parent
RAW: dict[str, Any] = yaml.safe_load((PACKAGE / "parameters.yaml").read_text())


def _figures(node: Any, path: str) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict) and "value" in node:
        return [(path, node)]
    if isinstance(node, dict):
        return [f for k, v in node.items() for f in _figures(v, f"{path}.{k}")]
    return []


def test_every_figure_has_one_origin() -> None:
    found = _figures(RAW["families"], "families")
    assert len(found) > 50
    for path, figure in found:
        origins = [figure.get("source"), figure.get("estimated")]
        assert sum(bool(o) for o in origins) == 1, path
        assert figure["value"] >= 0, path
        assert set(figure) <= {"value", "source", "estimated"}, path


@pytest.mark.parametrize("path", sorted((PACKAGE / "fitted").glob("hexagon*.yaml")), ids=lambda p: p.name)
def test_every_fitted_figure_has_one_origin(path: Path) -> None:
    found = _figures(yaml.safe_load(path.read_text())["parameters"], path.name)
    assert len(found) > 30
    for name, figure in found:
        assert sum(bool(figure.get(o)) for o in ("source", "estimated")) == 1, name
        assert figure["value"] > 0, name


def test_names_in_the_file_are_known() -> None:
    for name, family in RAW["families"].items():
        for key in family.get("utilisation", {}):
            assert key.split("/")[0] in CLASSES, f"{name}.{key}"
        for key in family.get("vector", {}):
            assert key.split("/")[0] in VECTOR_KINDS, f"{name}.{key}"
    for tables in RAW["support"].values():
        for table in tables.values():
            assert support_table(table).rules
        assert set(tables) <= set(RAW["runtimes"])


@pytest.mark.parametrize("name", list_socs())
def test_every_processor_of_every_soc_resolves(name: str) -> None:
    for processor in load_soc(name).processors:
        assert processor.family in RAW["families"]
        family = family_of(processor)
        for peak in ("f32", "f16", "i8"):
            shares, factors = class_shares(family, peak, {}), vector_factors(family, peak, {})
            assert len(shares) == len(CLASSES)
            # Where threads do not add up, shares are of what one core more would bring: four cores stay below their peak.
            most = 1.0 + 3.0 * (family.serial_share or 0.0)
            assert all(0 < s <= most for s in shares)
            # The Neural Engine's rate includes what matrix work moves.
            moved = dict(zip(VECTOR_KINDS, factors, strict=True))
            assert moved.pop("view") == 0.0 <= moved.pop("matrix")
            assert all(f > 0 for f in moved.values())
        if processor.support is not None:
            assert support_table_name(processor.support, "default")


def test_classes_and_kinds_without_figures_count_as_like_ones() -> None:
    family = family_of(load_soc("snapdragon-8-gen-3").by_name["npu"])
    shares = dict(zip(CLASSES, class_shares(family, "f16", {}), strict=True))
    assert shares["depthwise_small"] == shares["depthwise_strided"] == shares["depthwise"] == 0.0444
    assert shares["transposed"] == shares["conv"]
    factors = dict(zip(VECTOR_KINDS, vector_factors(family, "i8", {}), strict=True))
    assert factors["masked"] == factors["softmax"] == 9.0
    assert factors["nearest"] == factors["resize"]
    assert factors["compare"] == factors["broadcast"] == 1.0
    assert set(CLASS_LIKE) <= set(CLASSES)
    assert set(CLASS_LIKE.values()) <= set(CLASSES)
    assert set(KIND_LIKE) | set(KIND_LIKE.values()) <= set(VECTOR_KINDS)


def test_bytes_of_matrix_work_may_have_a_cost_by_class() -> None:
    family = family_of(load_soc("snapdragon-8-gen-3").by_name["cpu"])
    assert matrix_factors(family, "f32", {}) == [family.vector["matrix"]] * len(CLASSES)
    given = {"vector/matrix/conv/f32": 0.25, "vector/matrix/depthwise/f32": 0.5}
    found = dict(zip(CLASSES, matrix_factors(family, "f32", given), strict=True))
    assert (found["conv"], found["transposed"], found["depthwise_small"], found["gemm"]) == (4.0, 4.0, 2.0, family.vector["matrix"])


def test_runtimes_of_a_soc_are_those_of_its_accelerators_and_of_its_cpu() -> None:
    cpu = {"ncnn", "mnn", "tnn", "paddle", "llama.cpp", "executorch"}
    assert set(runtimes_of(load_soc("snapdragon-8-gen-3"))) == {"default", "qnn", "ort", "litert", "mlc"} | cpu
    assert runtimes_of(load_soc("apple-a17-pro"))[0] == "default"
    assert "qnn" not in runtimes_of(load_soc("apple-a17-pro"))


def test_version_names_the_file_contents() -> None:
    assert re.fullmatch(r"1-[0-9a-f]{8}", parameter_version())
