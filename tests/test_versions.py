"""The version header of everything that is loaded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import hetsched
from hetsched.errors import ModelError, PlanError
from hetsched.plans import Deployment
from hetsched.versions import check_gguf, check_schemas, check_versions, version_header

OTHERS = [
    ({"minimum_runtime": "99.0"}, "FILE needs hetsched 99.0 or newer, this is " + hetsched.__version__ + ": upgrade it"),
    ({"minimum_runtime": "soon"}, "FILE needs the runtime 'soon', which is no version: make it anew"),
    ({"minimum_runtime": None}, "FILE needs the runtime 'None', which is no version: make it anew"),
    ({"minimum_runtime": 1.0}, "FILE needs the runtime '1.0', which is no version: make it anew"),
    ({"quantization_schema": 7}, "FILE has quantization schema 7 and this version reads 1: make it anew"),
    ({"quantization_schema": True}, "FILE has quantization schema True and this version reads 1: make it anew"),
    ({"operator_set": "hetsched-ops-9"}, "FILE has operator set 'hetsched-ops-9' and this version reads 'hetsched-ops-1': make it anew"),
]


def test_what_is_written_now_is_read() -> None:
    check_versions(version_header(), "FILE", "make it anew")
    check_versions(version_header() | {"minimum_runtime": "0.0.9.9"}, "FILE", "make it anew")


@pytest.mark.parametrize(("change", "sentence"), OTHERS)
def test_each_mismatch_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError, match=f"^{re.escape(sentence)}$"):
        check_versions(version_header() | change, "FILE", "make it anew", PlanError)


def test_a_header_that_is_absent_is_refused() -> None:
    with pytest.raises(ModelError, match="which is no version"):
        check_versions({}, "FILE", "make it anew")
    with pytest.raises(ModelError, match="has quantization schema None"):
        check_schemas({}, "FILE", "make it anew")


def test_blocks_of_gguf_files() -> None:
    check_gguf({}, True, "FILE")
    check_gguf({"general.quantization_version": 2}, True, "FILE")
    check_gguf({"general.quantization_version": 1}, False, "FILE")
    with pytest.raises(ModelError, match=r"blocks of the version '3' \(general.quantization_version\) and this version reads 2"):
        check_gguf({"general.quantization_version": 3}, True, "FILE")


@pytest.mark.parametrize(("change", "sentence"), [o for o in OTHERS if not isinstance(o[0].get("minimum_runtime", ""), float | None)])
def test_a_plan_of_another_version_is_not_called_a_damaged_one(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    header = {"schema_version": 1, "hetsched": "9.9.9", **version_header(), **change}
    path.write_text(json.dumps({"header": header, "what plans of that time have": 1}))
    said = sentence.replace("FILE", str(path)).replace("make it anew", "make the plan again")
    with pytest.raises(PlanError, match=f"^{re.escape(said)}$"):
        Deployment.from_file(path)
