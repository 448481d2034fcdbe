"""Every way in which a SoC file can be wrong gets one sentence: which field, what it holds, what to write; no word of the schema's own."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hetsched.errors import SoCError
from hetsched.soc_files import overridden, soc_paths, validate_soc

RAW: dict[str, Any] = yaml.safe_load(soc_paths()["snapdragon-8-gen-3"].read_text("utf-8"))
#: Words of the library that checks the schema, of its error kinds and of our class names.
SCHEMA = re.compile(
    r"Input should|valid (tuple|dictionary|string|number|integer|boolean)|instance of|extra_|constrained|union|dict\[|tuple|[Pp]ydantic|"
    r"Figure|Extra inputs|Field required|NoneType|validation|pattern|_type\b|_parsing|something else"
)
ABSENT = "(absent)"
CLUSTER, POINT = ("processors", 0, "clusters", 0), ("processors", 0, "clusters", 0, "operating_points", 0)
ORIGIN = "with its origin, {value: ..., source: WHERE} or {value: ..., estimated: BASIS}"


def damaged(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    raw = copy.deepcopy(RAW)
    node: Any = raw
    for step in path[:-1]:
        node = node[step]
    if value == ABSENT:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return raw


def said(raw: Any) -> str:
    with pytest.raises(SoCError) as e:
        validate_soc(raw, "chip.yaml")
    text = str(e.value)
    assert text.startswith("chip.yaml is not a valid SoC file: ") and "\n" not in text and not SCHEMA.search(text), text
    return text.partition("SoC file: ")[2]


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        # wrong type
        (("name",), 12, "name = 12: it must be text"),
        (("notes",), "a note", "notes = 'a note': it must be a list of texts"),
        (("queues",), ["cpu"], "queues = ['cpu']: it must be a mapping"),
        (("queues", "cpu"), 3, "queues.cpu = 3: it must be text"),
        (("process_nm",), "four", "process_nm = 'four': it must be a number of nm, without a unit"),
        (("links", 0, "coherent"), "maybe", "links.cpu-gpu.coherent = 'maybe': it must be true or false"),
        ((*POINT, "v"), True, "processors.cpu.clusters.prime.operating_points.0.v = True: it must be a number"),
        ((*CLUSTER, "cores"), "0-3", "processors.cpu.clusters.prime.cores = '0-3': it must be a list of whole numbers"),
        ((*CLUSTER, "cores"), [0.5], "processors.cpu.clusters.prime.cores.0 = 0.5: it must be a whole number"),
        (("memory", "peak_bytes_s", "source"), 3, "memory.peak_bytes_s.source = 3: it must be text"),
        (("processors", 2, "fusions", "value"), [3], "processors.npu.fusions.value.0 = 3: it must be text or a mapping"),
        # a number without its origin, or with two
        (("memory", "peak_bytes_s"), 77e9, f"memory.peak_bytes_s = 77000000000.0: it must be a number of bytes a second {ORIGIN}"),
        (("base_w",), {"value": 1}, "base_w = 1: a figure needs either 'source: ...' or 'estimated: <basis>'"),
        (("base_w",), {"value": 1, "source": "a", "estimated": "b"}, "base_w = 1: a figure needs either"),
        ((*CLUSTER, "isa"), ["dotprod"], f"processors.cpu.clusters.prime.isa = ['dotprod']: it must be a list of texts {ORIGIN}"),
        # an unknown field
        (("memory", "peek_bytes_s"), {"value": 1}, "there is no field 'memory.peek_bytes_s'; did you mean 'peak_bytes_s'?"),
        (("processors", 2, "lunch_s"), 1, "there is no field 'processors.npu.lunch_s'; did you mean 'launch_s'?"),
        (("memory", "peak_bytes_s", "colour"), "red", "there is no field 'memory.peak_bytes_s.colour'; use one of value, source"),
        # negative, endless, of another unit
        (("memory", "peak_bytes_s", "value"), -1, "memory.peak_bytes_s.value = -1: it must be at least 0 (bytes a second)"),
        (("base_w",), {"value": float("inf"), "source": "x"}, "base_w.value = inf: it must be a finite number (watts)"),
        (("memory", "peak_bytes_s", "value"), "77 GB/s", "it must be a number of bytes a second, without a unit"),
        (("memory", "peak_bytes_s", "value"), 77, "the value 77 makes no sense here: it must be from 1000 to 1e+18 (bytes a second)"),
        ((*POINT, "hz"), 3.3, "processors.cpu.clusters.prime.operating_points.0.hz = 3.3: it must be at least 1000 (Hz)"),
        (("thermal", "trips", 0, "upper"), 2, "thermal.trips.0.upper = 2: it must be at most 1"),
        # missing
        (("id",), ABSENT, "the field 'id' is missing: write text"),
        (("memory",), ABSENT, "the field 'memory' is missing: write a mapping with kind, capacity_bytes, "),
        (("memory", "peak_bytes_s"), ABSENT, f"the field 'memory.peak_bytes_s' is missing: write a number of bytes a second {ORIGIN}"),
        (("memory", "peak_bytes_s", "value"), ABSENT, "the field 'memory.peak_bytes_s.value' is missing: write a number of bytes a second"),
        (("processors", 0, "kind"), ABSENT, "the field 'processors.cpu.kind' is missing: write one of cpu, gpu or npu"),
        # a list where a mapping goes, and the other way round
        (("memory",), [1], "memory = [1]: it must be a mapping with kind, "),
        (("thermal", "nodes"), {}, "thermal.nodes = {}: it must be a list of mappings"),
        (("processors", 0), "cpu", "processors.0 = 'cpu': it must be a mapping with name, kind, "),
        # of another length
        (("processors",), [], "processors = []: it must be a list of mappings of at least 1"),
        (("interval",), [1], "interval = [1]: it must be a list of 2"),
        (("interval",), [0.1, 2, 3], "interval = [0.1, 2, 3]: it must be a list of 2"),
        (("links", 0, "between"), ["cpu"], "between = ['cpu']: it must be a list of 2"),
        (("interval_estimated",), "", "interval_estimated = '': it must not be empty"),
        # one of a few, or spelt in some way
        (("governor",), "fast", "governor = 'fast': it must be one of performance, schedutil or powersave"),
        (("schema_version",), 2, "schema_version = 2: it must be 1"),
        (("id",), "Has Spaces", "id = 'Has Spaces': it must be lower-case letters, digits and . _ : -"),
        (("market", "release"), "2023", "market.release = '2023': it must be a year and a month, such as '2023-10'"),
        (("queues", "Big One"), "cpu", "queues has the key 'Big One': it must be lower-case letters"),
    ],
    ids=lambda v: ".".join(map(str, v)) if isinstance(v, tuple) else repr(v)[:30],
)  # fmt: skip
def test_one_wrong_field(path: tuple[str | int, ...], value: Any, sentence: str) -> None:
    assert sentence in said(damaged(path, value))


def _places(node: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every field of the file; of a list its first item."""
    if at:
        yield at
    if isinstance(node, dict):
        for key, child in node.items():
            yield from _places(child, (*at, key))
    elif isinstance(node, list) and node:
        yield from _places(node[0], (*at, 0))


@pytest.mark.parametrize("value", [[{"a": 1}], {"strange": 1}, "no such thing", -1, True, None, float("nan"), ABSENT], ids=repr)
def test_any_field_may_be_wrong(value: Any) -> None:
    """The whole file, one field after another: it is refused in plain words, or what it says is still a SoC."""
    refused = 0
    for path in _places(RAW):
        raw = damaged(path, value)
        try:
            validate_soc(raw, "chip.yaml")
        except SoCError:
            refused += 1
            said(raw)
    assert refused > 50


def test_two_mistakes_are_counted_and_the_misspelt_field_comes_first() -> None:
    raw = damaged(("memory", "peak_bytes_s"), ABSENT)
    raw["memory"]["peak_byte_s"] = {"value": 1e9, "source": "x"}
    assert said(raw) == "there is no field 'memory.peak_byte_s'; did you mean 'peak_bytes_s'? (and 1 more mistake)"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"governor": "fast"}, "cannot set 'governor' to 'fast' on snapdragon-8-gen-3: it must be one of performance, schedutil"),
        ({"process_nm": "-3"}, "cannot set 'process_nm' to '-3' on snapdragon-8-gen-3: it must be more than 0 (nm)"),
        ({"links.cpu-npu.coherent": "maybe"}, "cannot set 'links.cpu-npu.coherent' to 'maybe' on snapdragon-8-gen-3: it must be true or"),
        ({"memory.kind": "5", "governor": "powersave"}, "cannot set 'memory.kind' to '5' on snapdragon-8-gen-3: it must be text"),
        ({"queues.cpu": "dsp"}, "cannot set 'queues.cpu' to 'dsp' on snapdragon-8-gen-3: "),
        ({"memory.bandwidth_gbps": "1e12"}, "cannot set 'memory.bandwidth_gbps' to '1e12' on snapdragon-8-gen-3: processors.cpu.bandwidth"),
        ({"processors.npu.clusters": "[a]"}, "cannot set 'processors.npu.clusters' to '[a]' on snapdragon-8-gen-3: processors.npu.cl"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_set(fields: dict[str, str], sentence: str) -> None:
    with pytest.raises(SoCError) as e:
        overridden(validate_soc(RAW, "chip.yaml"), fields)
    assert str(e.value).startswith(sentence) and not SCHEMA.search(str(e.value)), str(e.value)
