"""What a simulated phone tells its apps about heat, in JSON, in words and on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

import hetsched
from hetsched.app.simulating import Simulated
from hetsched.cli.show_simulation import thermal_status


@pytest.mark.parametrize(
    ("soc", "api"), [("tensor-g3", "android"), ("apple-a17-pro", "ios"), ("qcs9075", None), ("snapdragon-x-elite", None)]
)
def test_who_tells_what(two_branch: Path, tmp_path: Path, soc: str, api: str | None) -> None:
    simulated = hetsched.simulate(two_branch, soc, dims={"width": 16}, duration_s=20.0, ambient_c=38.8)
    assert isinstance(simulated, Simulated)
    found = simulated.summary()["thermal_status"]
    page = hetsched.report([simulated], tmp_path / "report.html").read_text()
    assert ("Thermal status" in page) == (api is not None)
    assert ("Thermal headroom" in page) == (api == "android")
    if api is None:
        assert found is None
        return
    assert found["api"] == api
    assert sum(found["seconds"].values()) == pytest.approx(20.0)
    assert found["skin_c"]["max"] > 38.8
    assert ("headroom" in found) == (api == "android")


def test_in_words() -> None:
    cool = {"api": "ios", "worst": "nominal", "seconds": {"nominal": 9.0}, "first_s": {"nominal": 0.0}}
    assert thermal_status(cool) == "iOS nominal"
    warm = {
        "api": "android", "worst": "LIGHT", "seconds": {"NONE": 4.0, "LIGHT": 5.0}, "first_s": {"NONE": 0.0, "LIGHT": 4.0},
        "headroom": {"last": 0.834},
    }  # fmt: skip
    assert thermal_status(warm) == "Android LIGHT at worst, first after 4 s, headroom 0.83 at the end (1: SEVERE)"
