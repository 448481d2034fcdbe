"""Chassis fitted to runs over minutes: reading series, playing them, searching the grid, and the SoC files that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hetsched.soc_files import list_socs, load_soc
from hetsched.soc_words import heat_basis
from hetsched_simulations.chassis import extract, fitting, forms, loop, plots, runs, socs
from hetsched_simulations.chassis.__main__ import FITTED

SHARED = Path(__file__).parents[3] / "shared" / "measurements"
PHONE = runs.Phone("brick", "other", 0.025, 0.2)
RUN = runs.Run(
    "toy", PHONE, "generic-phone", "gpu", "work", 300.0, 0.0, 1.0, 25.0, 25.0, 1e10, 200.0, 300.0, 0.6, 60.0, None, "raw", "here",
    ((0.0, 1.0), (100.0, 0.5)),
)  # fmt: skip
FIT = {r["parameter"]: float(r["value"]) for r in runs.rows(FITTED)}


def test_a_series_is_a_quarter_down_where_its_straight_lines_cross() -> None:
    assert runs.first_below([(0, 1.0), (10, 0.9), (20, 0.7), (30, 0.9)], 0.75) == pytest.approx(17.5)
    assert runs.first_below([(0, 1.0), (10, 0.8)], 0.75) is None
    assert runs.first_below([(0, 0.7), (10, 0.6)], 0.75) is None, "it starts there"
    assert runs.first_below([], 0.75) is None


def test_every_run_has_a_soc_a_peak_and_a_source() -> None:
    found = runs.runs()
    assert len({r.name for r in found}) == len(found) >= 13
    for r in found:
        soc = load_soc(r.soc)
        assert r.queue.partition(":")[0] in soc.by_name
        assert 0 < r.ratio <= 1
        assert r.steady_from_s < r.steady_to_s <= r.seconds
        assert r.ambient_c <= r.start_c
        assert r.source
    assert all(why for _, _, why in runs.left_out())


def test_a_phone_that_may_get_hot_runs_at_its_top_clocks_and_draws_what_its_file_says() -> None:
    soc = forms.in_phone(load_soc(RUN.soc), PHONE, FIT | {"other_c": 90.0, "film_w_per_m2k": 100.0})
    played = loop.play(RUN, soc, 1.0)
    assert played.rate.min() == 1.0
    gpu = soc.by_name["gpu"].clusters[0]
    dram = RUN.traffic_bytes_s * float(soc.memory.energy_j_per_byte)
    cold = float(gpu.dynamic_w) + float(gpu.leakage_w) + dram + float(soc.base_w)
    assert played.power_w[0] == pytest.approx(cold, abs=0.1), "leakage grows within the first step"
    assert loop.first_quarter_down(played) is None
    half = loop.play(RUN, soc, 0.5)
    assert half.power_w[0] == pytest.approx(cold - 0.5 * float(gpu.dynamic_w), abs=0.1)


def test_a_cooler_set_point_throttles_sooner_and_deeper() -> None:
    cool, warm = (loop.play(RUN, forms.in_phone(load_soc(RUN.soc), PHONE, FIT | {"other_c": c}), 1.0) for c in (44.0, 56.0))
    assert cool.mean(cool.rate, 200, 300) < warm.mean(warm.rate, 200, 300) < 1.0
    sooner, later = loop.first_quarter_down(cool), loop.first_quarter_down(warm)
    assert sooner is not None
    assert later is None or sooner < later


def test_pauses_come_first_and_heat_less() -> None:
    soc = forms.in_phone(load_soc(RUN.soc), PHONE, FIT)
    played = loop.play(replace(RUN, rest_s=100.0, rest_share=0.25), soc, 1.0)
    assert played.start_s[0] == 0.0
    assert float(played.start_s[-1] + played.seconds[-1]) == pytest.approx(300.0)
    assert played.seconds.sum() == pytest.approx(300.0)
    assert played.mean(played.power_w, 0, 50) < 0.6 * played.mean(played.power_w, 100, 110)


class Bowl(fitting.Bench):
    """Runs whose outcome is off by how far two parameters are from 12 and 52."""

    def outcome(self, run: runs.Run, p: forms.Parameters) -> fitting.Outcome:
        wanted = 52.0 if run.name != "odd" else 60.0
        off = abs(p["film_w_per_m2k"] - 12.0) / 100 + abs(p["other_c"] - wanted) / 1000
        return fitting.Outcome(run, run.ratio + off, run.quarter_s, 1.0)


def test_the_search_finds_the_bottom_and_a_run_left_out_does_not_count() -> None:
    group = [replace(RUN, name=n) for n in ("a", "b", "odd")]
    bench = Bowl(group)
    first = {name: values[0] for name, values in fitting.GRID.items()}
    assert bench.fit(group[:2]) == first | {"film_w_per_m2k": 12, "other_c": 52}
    left = bench.left_out(lambda r: r.name)
    assert [x.outcome.run.name for x in left] == ["a", "b", "odd"]
    assert left[2].fit["other_c"] == 52, "fitted without the odd one"
    assert left[2].outcome.points == pytest.approx(0.008)


def _off(ratio: float, quarter_s: float | None) -> fitting.Outcome:
    return fitting.Outcome(RUN, ratio, quarter_s, 5.0)


def test_errors_are_points_and_shares_of_the_measured_time() -> None:
    assert _off(0.7, 90.0).points == pytest.approx(0.1)
    assert _off(0.7, 90.0).late == pytest.approx(0.5)
    assert _off(0.7, None).late == float("inf")
    assert fitting.Outcome(replace(RUN, quarter_s=None), 0.6, 5.0, 5.0).late is None
    assert _off(0.6, 60.0).loss == 0.0
    assert _off(0.72, 60.0 * 1.35).loss == pytest.approx(1.5), "at both goals; times count half"
    assert _off(0.6, None).loss == pytest.approx(4.5), "capped"


@pytest.mark.parametrize("soc_id", sorted(socs.files()))
def test_a_phone_s_file_is_what_the_fit_writes(soc_id: str) -> None:
    path = socs.files()[soc_id]
    assert socs.text(soc_id, path, FIT) == path.read_text(encoding="utf-8"), "run make fit-thermal"


def test_only_a_soc_with_runs_of_its_own_does_not_say_that_its_heat_is_extrapolated() -> None:
    assert set(socs.OWN) <= {r.soc for r in runs.runs()}
    for soc_id in list_socs():
        assert bool(heat_basis(load_soc(soc_id))) == (soc_id not in socs.OWN), soc_id


def test_the_drawing_has_a_panel_a_run() -> None:
    text = plots.svg([plots.Panel(r, ((5.0, 1.0), (15.0, 0.8))) for r in runs.runs()])
    root = ElementTree.fromstring(text)
    groups = root.findall("{http://www.w3.org/2000/svg}g")
    assert len(groups) == len(runs.runs())
    dots = [len(g.findall("{http://www.w3.org/2000/svg}circle")) for g in groups]
    assert dots == [len(r.series) for r in runs.runs()]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the measurements are not here")
def test_the_data_are_what_the_measurements_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names: Sequence[str] = ("RUNS_FILE", "SERIES_FILE", "LEFT_OUT_FILE")
    for name in names:
        monkeypatch.setattr(extract, name, tmp_path / name)
    assert extract.main([str(SHARED)]) == 0
    for name in names:
        assert (tmp_path / name).read_text(encoding="utf-8") == getattr(runs, name).read_text(encoding="utf-8")
