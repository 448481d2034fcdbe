"""The ranges file: what is written is read back, and only that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hetsched.errors import RangesError
from hetsched.ranges import ActivationRanges, CalibratedModel, ChannelRange, TensorRange, beside, read_ranges

VALUES = st.floats(allow_nan=False, allow_infinity=False, width=32)
TENSORS = st.tuples(VALUES, VALUES).map(lambda p: TensorRange(min=min(p), max=max(p)))


def file_of(ranges: dict[str, TensorRange | ChannelRange], granularity: str = "tensor") -> ActivationRanges:
    return ActivationRanges(
        model=CalibratedModel(name="net.onnx", sha256="ab", dims={"n": 2}), method="minmax", granularity=granularity,  # type: ignore[arg-type]
        symmetric=False, samples=1, ranges=ranges,
    )  # fmt: skip


@given(st.dictionaries(st.text(), TENSORS, max_size=5))
def test_round_trip_and_stable_bytes(found: dict[str, TensorRange]) -> None:
    ranges = file_of(dict(found))
    text = ranges.to_json()
    again = ActivationRanges.model_validate_json(text.encode())
    assert again == ranges and again.to_json() == text
    assert file_of(dict(reversed(found.items()))).to_json() == text


def test_per_channel_round_trip(tmp_path: Path) -> None:
    ranges = file_of({"x": ChannelRange(axis=1, min=(-1.0, 0.0), max=(0.5, 2.0)), "v": TensorRange(min=0.0, max=1.0)}, "channel")
    ranges.save(tmp_path / "r.json")
    assert read_ranges(tmp_path / "r.json") == ranges
    json.loads((tmp_path / "r.json").read_text())


@pytest.mark.parametrize(
    "bad",
    [{"min": 2.0, "max": 1.0}, {"min": float("nan"), "max": 1.0}, {"min": 0.0}, {"axis": 0, "min": [0.0], "max": [1.0, 2.0]},
     {"axis": 0, "min": [], "max": []}, {"axis": -1, "min": [0.0], "max": [1.0]}, {"axis": 0, "min": [2.0], "max": [1.0]}],
)  # fmt: skip
def test_ranges_that_are_none(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        file_of({"x": bad}, "channel")  # type: ignore[dict-item]


def test_channels_in_a_file_of_tensors_are_refused() -> None:
    with pytest.raises(ValidationError, match="per channel in a file"):
        file_of({"x": ChannelRange(axis=0, min=(0.0,), max=(1.0,))})


def test_another_model_is_named() -> None:
    with pytest.raises(RangesError, match=r"r\.json.*net\.onnx.*calibrate-ranges"):
        file_of({}).check_model("cd", Path("r.json"))
    file_of({}).check_model("ab", Path("r.json"))


def test_files_beside_models_of_one_name_differ() -> None:
    assert beside(Path("a/net.onnx")) != beside(Path("a/net.tflite"))
