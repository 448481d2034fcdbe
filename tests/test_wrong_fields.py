"""Wrong fields in words, for the files that machines write: plans and ranges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hetsched import wrong_fields
from hetsched.errors import PlanError, RangesError
from hetsched.plans import Deployment
from hetsched.ranges import read_ranges


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    size: int | str | list[int] = 0


class Box(BaseModel):
    items: list[Item]
    weights: dict[str, float] = {}
    pair: tuple[int, str] | None = None
    least: Annotated[tuple[Item, ...], Field(min_length=1)] | None = None


def said(raw: Any) -> str:
    with pytest.raises(ValidationError) as e:
        Box.model_validate(raw)
    return str(wrong_fields.fault(e.value, Box, raw))


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (3, "the file = 3: it must be a mapping with items, weights, pair, least"),
        ({}, "the field 'items' is missing: write a list of mappings"),
        ({"items": [{"name": "a", "size": {}}]}, "items.a.size = {}: it must be a whole number or text or a list of whole numbers"),
        ({"items": [{"name": "a", "size": [None]}]}, "items.a.size = [None]: it must be a whole number or text or a list of whole numbers"),
        ({"items": [{"name": 3}]}, "items.0.name = 3: it must be text"),
        ({"items": [{"nam": "a"}]}, "there is no field 'items.0.nam'; did you mean 'name'? (and 1 more mistake)"),
        ({"items": [], "weights": {"a_w": "x"}}, "weights.a_w = 'x': it must be a number of watts, without a unit"),
        ({"items": [], "weights": {3: 1.0}}, "weights has the key 3: it must be text"),
        ({"items": [{"name": 3}], "least": [{}]}, "items.0.name = 3: it must be text (and 1 more mistake)"),
        ({"items": [], "least": [{}]}, "the field 'least.0.name' is missing: write text"),
        ({"items": [], "pair": [1]}, "pair = [1]: it must be a list of 2"),
        ({"items": "x" * 99}, f"items = '{'x' * 56}...: it must be a list of mappings"),
    ],
    ids=lambda v: str(v)[:40],
)  # fmt: skip
def test_sentences(raw: Any, sentence: str) -> None:
    assert said(raw) == sentence


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("{", "it is not JSON: "),
        ("[]", "the file = []: it must be a mapping with header, model, soc, "),
        ("{}", "the field 'header' is missing: write a mapping with schema_version, "),
        (json.dumps({"header": {"hetsched": 1}, "model": {}, "soc": {}, "entries": []}), "header.hetsched = 1: it must be text"),
    ],
)
def test_a_plan_file(document: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(document, "utf-8")
    with pytest.raises(PlanError) as e:
        Deployment.from_file(path)
    assert f"plan.json is not a valid plan file: {sentence}" in str(e.value) and "make it again" in str(e.value)


def test_a_ranges_file(tmp_path: Path) -> None:
    path = tmp_path / "net.ranges.json"
    path.write_text('{"tensors": 3}', "utf-8")
    with pytest.raises(
        RangesError, match=r"net\.ranges\.json is not a valid ranges file: .*; make it again with 'hetsched calibrate-ranges'"
    ) as e:
        read_ranges(path)
    assert "Input should" not in str(e.value)
