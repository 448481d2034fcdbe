"""Damaged exported programs and Core ML models: always our own exception, never another, whatever is changed."""

from __future__ import annotations

import copy
import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.errors import HetschedError
from hetsched.frontends import load

DATA = Path(__file__).parent / "data"
PROGRAMS = sorted((DATA / "torch").glob("*.pt2"))
PACKAGES = sorted((DATA / "coreml").glob("*.mlpackage"))
NETWORKS = sorted((DATA / "coreml").glob("*.mlmodel"))
MODEL = Path("Data") / "com.apple.CoreML" / "model.mlmodel"
VALUES: list[Any] = [
    None, -1, 0, 1, 2, 7, 1 << 40, 1 << 70, -(1 << 63), 0.5, 1e300, True, "", "s0", "x", "a" * 5000, [], [1, 2], {}, [[[]]],
    {"as_int": 5}, {"as_tensor": {"name": "x"}}, {"as_expr": {"expr_str": "s77*s77"}}, {"as_none": True},
]  # fmt: skip


def survives(path: Path) -> bool:
    """Load, and read every constant; False if it was refused. Any other exception fails the test."""
    try:
        for tensor in load(path).tensors.values():
            if tensor.data is not None and tensor.data.is_present and tensor.elements < 1 << 20:
                tensor.values()
    except HetschedError as error:
        text = str(error)
        assert text and "\n" not in text
        return False
    return True


def places(value: object, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every part of a JSON value is."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for key, part in inner for p in ((*at, key), *places(part, (*at, key)))]


def program(path: Path) -> tuple[str, dict[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if "/models/" in n)
        return name, json.loads(archive.read(name))


PARSED = {path: program(path) for path in PROGRAMS}
PLACES = {path: places(described) for path, (_, described) in PARSED.items()}


@settings(max_examples=150)
@given(st.data())
def test_changed_programs(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(PROGRAMS))
    name, described = PARSED[path]
    described = copy.deepcopy(described)
    for _ in range(data.draw(st.integers(1, 3))):
        *outer, last = data.draw(st.sampled_from(PLACES[path]))
        part: Any = described
        try:
            for key in outer:
                part = part[key]
            if data.draw(st.booleans()):
                part[last] = data.draw(st.sampled_from(VALUES))
            elif isinstance(part, dict):
                del part[last]
            else:
                part.insert(last, part[data.draw(st.integers(0, len(part) - 1))])
        except (LookupError, TypeError, ValueError, AttributeError):
            continue  # an earlier change removed the place
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / "m.pt2"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
            for member in old.namelist():
                new.writestr(member, json.dumps(described) if member == name else old.read(member))
        survives(changed)


def damaged(raw: bytes, data: st.DataObject) -> bytes:
    """``raw`` with some bytes changed, removed or repeated, or cut off."""
    out = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(out) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "drop", "copy", "zero"])):
            case "flip":
                out[at] = data.draw(st.integers(0, 255))
            case "cut":
                del out[max(at, 8) :]
            case "drop":
                del out[at : at + data.draw(st.integers(1, 8))]
            case "copy":
                out[at:at] = out[at : at + 16]
            case "zero":
                out[at : at + 4] = bytes(len(out[at : at + 4]))
        if not out:
            return b"\x08"
    return bytes(out)


@settings(max_examples=80)
@given(st.data())
def test_damaged_archives(data: st.DataObject) -> None:
    raw = damaged(data.draw(st.sampled_from(PROGRAMS)).read_bytes(), data)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "m.pt2").write_bytes(raw)
        survives(Path(folder) / "m.pt2")


@settings(max_examples=250)
@given(st.data())
def test_damaged_core_ml_models(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([*NETWORKS, *(p / MODEL for p in PACKAGES)]))
    raw = damaged(source.read_bytes(), data)
    with tempfile.TemporaryDirectory() as folder:
        weights = source.parent / "weights" / "weight.bin"
        if weights.is_file():
            (Path(folder) / "weights").mkdir()
            (Path(folder) / "weights" / "weight.bin").write_bytes(weights.read_bytes())
        (Path(folder) / "m.mlmodel").write_bytes(raw)
        survives(Path(folder) / "m.mlmodel")


@settings(max_examples=40)
@given(st.data())
def test_damaged_weight_files(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([p for p in PACKAGES if (p / MODEL).parent.joinpath("weights", "weight.bin").is_file()])) / MODEL
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "weights").mkdir()
        raw = damaged((source.parent / "weights" / "weight.bin").read_bytes(), data)
        (Path(folder) / "weights" / "weight.bin").write_bytes(raw)
        (Path(folder) / "m.mlmodel").write_bytes(source.read_bytes())
        survives(Path(folder) / "m.mlmodel")


@pytest.mark.parametrize("path", [*PROGRAMS, *NETWORKS], ids=lambda p: p.name)
def test_every_truncation_is_refused_or_read(path: Path, tmp_path: Path) -> None:
    raw = path.read_bytes()
    for cut in range(1, len(raw), max(len(raw) // 60, 1)):
        (tmp_path / "m").write_bytes(raw[:cut])
        if survives(tmp_path / "m"):
            assert path.suffix == ".mlmodel" and cut > len(raw) // 2, "only a network that lost its last layers may still be one"


def test_deep_json_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("m/models/model.json", b'{"a":' + b"[" * 200_000)
    (tmp_path / "m.pt2").write_bytes(buffer.getvalue())
    assert not survives(tmp_path / "m.pt2")
