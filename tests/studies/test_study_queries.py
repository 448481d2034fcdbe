"""Questions to a study: answered, and nothing else is within their reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from arithmetic import Squares, study_of

from hetsched.errors import OptionError
from hetsched.studies.folder import Folder
from hetsched.studies.querying import query
from hetsched.studies.results import collect, write_tables
from hetsched.studies.running import prepared, run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = Folder(tmp_path / "s")
    scenarios = prepared(study_of(4, 2), Squares(), tmp_path)
    run(scenarios, Squares(), place, workers=1)
    write_tables(place, collect(place, scenarios))
    return place.path


def test_answers(folder: Path) -> None:
    found = query(folder, "select base, sum(square) as s from results group by base order by base")
    assert found.columns == ("base", "s") and found.rows == ((0, 14), (1, 14))
    joined = query(folder, "select x, max(value) from results join curves using (scenario) where base = 0 group by x order by x")
    assert joined.rows == ((0, 0.0), (1, 1.0), (2, 4.0), (3, 9.0))
    assert query(folder, "select 1 where false").rows == ()


@pytest.mark.parametrize(
    "question",
    [
        "select * from read_csv('{folder}/study.json')",
        "select * from read_text('/etc/hostname')",
        "select * from '{folder}/results.parquet'",
        "copy results to '{folder}/out.csv'",
        "attach '{folder}/db' as d",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "select * from somewhere",
        "select",
        "export database '{folder}/e'",
    ],
)
def test_nothing_else_is_within_reach(folder: Path, question: str) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(OptionError, match="the question cannot be answered") as e:
        query(folder, question.format(folder=folder))
    assert "results (base, x, square, refused, scenario)" in str(e.value) and "\n" not in str(e.value)
    assert sorted(folder.rglob("*")) == before


def test_variables_of_the_program_are_out_of_reach(folder: Path) -> None:
    import pyarrow as pa

    secret = pa.table({"a": [1]})
    assert secret.num_rows == 1
    with pytest.raises(OptionError):
        query(folder, "select * from secret")


def test_folders_without_results(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(OptionError, match="is not the folder of a study"):
        query(tmp_path, "select 1")
    (folder / "results.parquet").unlink()
    with pytest.raises(OptionError, match="has no results yet"):
        query(folder, "select 1")
    (folder / "results.parquet").write_bytes(b"PAR1 damaged")
    with pytest.raises(OptionError, match="is damaged"):
        query(folder, "select 1")


@pytest.mark.parametrize(
    "question",
    [
        "with recursive t(n) as (select 1 union all select n + 1 from t) select * from t",
        "select sum(a.range * b.range) from range(1000000) a, range(1000000) b",
    ],
)
def test_a_question_without_end_is_stopped(folder: Path, question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsched.studies.querying.LIMIT_S", 0.2)
    with pytest.raises(OptionError, match=r"takes longer than 0\.2 s"):
        query(folder, question)


@pytest.mark.parametrize("question", ["", "  ", ";"])
def test_an_empty_question_is_no_question(folder: Path, question: str) -> None:
    with pytest.raises(OptionError, match="the question is empty"):
        query(folder, question)


def test_an_answer_is_whole_or_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsched.studies.querying.MAX_ROWS", 4)
    assert len(query(folder, "select * from range(4)").rows) == 4
    with pytest.raises(OptionError, match="more than 4 rows"):
        query(folder, "select * from range(5)")


@pytest.mark.parametrize("text", ["[1]", "3", "null", "[" * 100_000, "{", "\x00"])
def test_a_mark_that_is_none(folder: Path, text: str) -> None:
    (folder / "study.json").write_text(text)
    with pytest.raises(OptionError, match=r"study\.json is damaged: write \{\} into it"):
        query(folder, "select 1")
