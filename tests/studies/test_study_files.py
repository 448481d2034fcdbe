"""Study files: which scenarios they have, what a mistake in one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import OptionError
from hetsched.studies.shipped import shipped, study_path
from hetsched.studies.spread import spread
from hetsched.studies.study_file import MAX_SCENARIOS, Study, read_study

FILE = """
title: Does it hold?
base: {model: m.onnx, dims: {batch: 1}, ambient: 25}
variants:
  as sold: {}
  vapour chamber: {set: {thermal.nodes.board.capacity_j_per_k: 80}}
grid:
  soc: [a, b]
  ambient: [25, 35]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return path


def test_scenarios_are_all_combinations_and_later_parts_win(tmp_path: Path) -> None:
    found = read_study(written(tmp_path, FILE)).scenarios()
    assert len(found) == 8
    assert found[0] == {"model": "m.onnx", "dims.batch": 1, "ambient": 25, "variant": "as sold", "soc": "a"}
    assert found[1]["ambient"] == 35 and found[2]["soc"] == "b"
    assert found[4]["set.thermal.nodes.board.capacity_j_per_k"] == 80 and "set.thermal.nodes.board.capacity_j_per_k" not in found[0]


def test_what_is_fixed_replaces_an_axis(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, FILE + "sample: {count: 3, over: {battery: {from: 0.1, to: 1}}}\n"))
    found = study.fixed({"soc": "c", "battery": 0.5, "dims.batch": 2}).scenarios()
    assert len(found) == 4
    assert {(s["soc"], s["battery"], s["dims.batch"]) for s in found} == {("c", 0.5, 2)}


def test_an_input_has_one_name_however_it_is_written(tmp_path: Path) -> None:
    """What is fixed takes an axis of the same input away; two names in one part are a mistake."""

    def name(key: str) -> str:
        return "ambient_c" if key == "ambient" else key

    study = read_study(written(tmp_path, FILE + "sample: {count: 2, over: {t: [1, 2]}}\n")).renamed(name)
    assert {s["ambient_c"] for s in study.scenarios()} == {25, 35} and all("ambient" not in s for s in study.scenarios())
    assert {s["ambient_c"] for s in study.fixed({"ambient_c": 30}).scenarios()} == {30}
    twice = Study.model_validate({"title": "t", "base": {"ambient": 1, "ambient_c": 2}})
    with pytest.raises(OptionError, match="'ambient' and 'ambient_c' are the same input: keep one"):
        twice.renamed(name)


def test_a_sample_is_seeded_within_its_ranges_and_grows_at_its_end() -> None:
    def sample(count: int, seed: int) -> list[dict[str, object]]:
        over = {"ambient_c": {"from": 10, "to": 40}, "t": {"from": 1, "to": 100, "scale": "log"}, "soc": ["a", "b", "c"]}
        return Study.model_validate({"title": "t", "sample": {"count": count, "seed": seed, "over": over}}).scenarios()

    many = sample(60, 1)
    assert sample(20, 1) == many[:20] and sample(20, 2) != many[:20]
    warm = sorted(float(str(s["ambient_c"])) for s in many)
    assert 10 <= warm[0] < 12 and 38 < warm[-1] <= 40
    assert all(sum(s["soc"] == c for s in many) in range(15, 26) for c in "abc")
    assert 25 <= sum(float(str(s["t"])) < 10 for s in many) <= 35


@given(st.integers(1, 200), st.integers(1, 6), st.integers(0, 1 << 20))
def test_spread_points_lie_in_the_cube_and_leave_no_wide_gap(count: int, axes: int, seed: int) -> None:
    points = spread(count, axes, seed)
    assert len(points) == count and all(0 <= v < 1 for p in points for v in p)
    if axes == 1:
        ends = sorted(p[0] for p in points)
        gaps = [b - a for a, b in zip(ends, [*ends[1:], ends[0] + 1], strict=True)]
        assert max(gaps) <= 2.7 / count + 1e-9  # three-distance theorem: at most (1 + golden ratio) / n


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title: [1]", "title"),
        ("grid: {soc: [a]}", "the field 'title' is missing"),
        ("title: t\ngrid: {soc: []}", "grid.soc"),
        ("title: t\ngrid: {soc: [a, a]}", "has 'a' twice for 'soc'"),
        ("title: t\ngird: {soc: [a]}", "did you mean 'grid'?"),
        ("title: t\nsample: {count: 0, over: {x: [1]}}", "sample.count = 0"),
        ("title: t\nsample: {count: 2, over: {x: {from: 3, to: 1}}}", "from (3) must be less than to (1)"),
        ("title: t\nsample: {count: 2, over: {x: {from: 0, to: 1, scale: log}}}", "begins above 0"),
        ("title: t\ngrid: {x: [1, 2]}\nsample: {count: 90000, over: {y: [1]}}", "180000 scenarios"),
        ("- 1", "not a mapping"),
        ("title: t\ntitle: u", "the key 'title' twice"),
        ("title: &a t", "anchor"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(OptionError) as e:
        read_study(path)
    assert said in str(e.value) and str(path) in str(e.value) and "\n" not in str(e.value)


def test_absent_and_unknown_studies(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no study file"):
        read_study(tmp_path / "none.yaml")
    with pytest.raises(OptionError, match="no study is called 'nonsense'"):
        study_path("nonsense")


def test_the_shipped_studies_are_valid_and_say_what_they_ask() -> None:
    for name, path in shipped().items():
        study = read_study(path)
        assert study.question.endswith("?"), name
        assert 2 <= len(study.scenarios()) <= 200, name


def test_a_long_axis_is_read_at_once_and_too_long_a_one_is_refused(tmp_path: Path) -> None:
    for count in (MAX_SCENARIOS, MAX_SCENARIOS + 1):
        text = f"title: t\ngrid: {{a: [{', '.join(map(str, range(count)))}]}}\n"
        if count <= MAX_SCENARIOS:
            assert len(read_study(written(tmp_path, text)).scenarios()) == count
        else:
            with pytest.raises(OptionError, match=f"has {count} scenarios"):
                read_study(written(tmp_path, text))
