"""Running studies: nothing is run twice, nothing is lost, whoever is killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from arithmetic import Squares, study_of

from hetsched.errors import ExecutionError, OptionError
from hetsched.studies.folder import Folder
from hetsched.studies.results import collect, write_tables
from hetsched.studies.running import batches, prepared, run
from hetsched.studies.study_file import Study

SUBJECT = Path(__file__).with_name("arithmetic.py")


def marks(log: Path, kind: str) -> list[str]:
    return sorted(p.name for p in log.glob(f"{kind}-*"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


def test_a_study_runs_once_and_only_new_scenarios_run_later(tmp_path: Path, log: Path) -> None:
    folder, squares = Folder(tmp_path / "s"), Squares(log)
    first = prepared(study_of(5), squares, tmp_path)
    assert run(first, squares, folder, workers=1).kept == 0
    assert len(marks(log, "ended")) == 5 and len(marks(log, "plan")) == 1
    again = run(first, squares, folder, workers=1)
    assert again.kept == 5 and len(marks(log, "ended")) == 5
    more = prepared(study_of(8), squares, tmp_path)
    assert run(more, squares, folder, workers=1).kept == 5
    assert len(marks(log, "ended")) == 8 and len(marks(log, "plan")) == 1
    assert [r.figures["square"] for r in collect(folder, more)] == [k * k for k in range(8)]
    assert [r.figures["square"] for r in collect(folder, first)] == [0, 1, 4, 9, 16]


def test_processes_share_the_work_and_each_plan_is_made_once(tmp_path: Path, log: Path) -> None:
    folder, squares, seen = Folder(tmp_path / "s"), Squares(log, 0.002), list[tuple[int, int]]()
    scenarios = prepared(study_of(30, 3), squares, tmp_path)
    ran = run(scenarios, squares, folder, workers=2, progress=lambda *now: seen.append(now))
    assert not ran.failures and len(collect(folder, scenarios)) == 90
    assert len(marks(log, "ended")) == 90 and len(marks(log, "plan")) == 3
    assert len({m.rsplit("-", 2)[1] for m in marks(log, "ended")}) == 2
    assert seen[0] == (0, 90) and seen[-1] == (90, 90) and seen == sorted(seen)


def test_killed_ten_times_nothing_is_lost_and_nothing_runs_twice(tmp_path: Path, log: Path) -> None:
    folder, rng, count = Folder(tmp_path / "s"), random.Random(7), 60
    slow, fast = ([sys.executable, str(SUBJECT), str(folder.path), str(log), str(count), pause, "2"] for pause in ("0.1", "0"))
    kept: dict[str, tuple[int, int]] = {}
    for _ in range(10):
        process = subprocess.Popen(slow)
        until = time.monotonic() + 60
        while len(folder.recorded()) <= len(kept) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.25))
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.path.glob("records/*.json")}
        assert all(now.get(name) == stamp for name, stamp in kept.items()), "a finished scenario was lost or run again"
        assert len(now) > len(kept)
        kept = now
    assert len(kept) < 3 * count, "the study ended before it was killed ten times"
    subprocess.run(fast, check=True)
    whole = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.path.glob("records/*.json")}
    assert len(whole) == 3 * count and all(whole[name] == stamp for name, stamp in kept.items())
    assert not list(folder.path.rglob("*.part"))
    spans: dict[str, list[tuple[float, float]]] = {}
    for mark in log.glob("ended-*"):
        begun, ended = mark.read_text().split()
        spans.setdefault(mark.name.split("-")[1], []).append((float(begun), float(ended)))
    for times in spans.values():  # what was killed between its end and its record runs again, but never beside itself
        assert all(a[1] <= b[0] for a, b in zip(sorted(times), sorted(times)[1:], strict=False))
    assert sum(len(t) - 1 for t in spans.values()) <= 2 * 10


def test_workers_end_with_the_study_that_started_them(tmp_path: Path, log: Path) -> None:
    process = subprocess.Popen([sys.executable, str(SUBJECT), str(tmp_path / "s"), str(log), "60", "0.02", "2"])
    until = time.monotonic() + 60
    while len(marks(log, "begun")) < 4 and time.monotonic() < until:
        time.sleep(0.01)
    workers = {int(m.rsplit("-", 2)[1]) for m in marks(log, "begun")}
    process.kill()
    process.wait()
    while any(_alive(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.01)
    assert workers and not any(_alive(pid) for pid in workers)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_refusal_is_a_finding_and_a_mistake_is_told(tmp_path: Path) -> None:
    squares, folder = Squares(), Folder(tmp_path / "s")
    study = Study(title="t", grid={"base": ("possible", "impossible"), "x": (2, "bad")})
    scenarios = prepared(study, squares, tmp_path)
    ran = run(scenarios, squares, folder, workers=1)
    assert [(f.message, f.exit_code) for f in ran.failures] == [("x = 'bad' is no number", 2)]
    rows = collect(folder, scenarios)
    assert [(r.figures, r.findings.refused) for r in rows] == [({"square": 4}, ""), ({}, "nothing fits"), ({}, "nothing fits")]
    write_tables(folder, rows)
    again = run(scenarios, squares, folder, workers=1)
    assert again.kept == 3 and len(again.failures) == 1


def test_a_killed_worker_is_told(tmp_path: Path) -> None:
    squares = Squares()
    scenarios = prepared(Study(title="t", grid={"x": (1, "fatal", 3)}), squares, tmp_path)
    with pytest.raises(ExecutionError, match="a worker was killed"):
        run(scenarios, squares, Folder(tmp_path / "s"), workers=2)


def test_two_studies_do_not_work_in_one_folder(tmp_path: Path, log: Path) -> None:
    folder = tmp_path / "s"
    process = subprocess.Popen([sys.executable, str(SUBJECT), str(folder), str(log), "60", "0.05", "1"])
    until = time.monotonic() + 60
    while not marks(log, "begun") and time.monotonic() < until:
        time.sleep(0.01)
    try:
        with pytest.raises(OptionError, match="another 'hetsched study' is at work"):
            run(prepared(study_of(2), Squares(), tmp_path), Squares(), Folder(folder), workers=1)
    finally:
        process.kill()
        process.wait()


def test_other_peoples_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("x")
    with pytest.raises(OptionError, match="it holds other files"):
        run((), Squares(), Folder(tmp_path), workers=1)
    with pytest.raises(OptionError, match="it is a file"):
        run((), Squares(), Folder(tmp_path / "photo.jpg"), workers=1)


def test_tables_of_the_same_rows_have_the_same_bytes(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    scenarios = prepared(study_of(4, 2), Squares(), tmp_path)
    tables = []
    for name, workers in (("a", 1), ("b", 2)):
        folder = Folder(tmp_path / name)
        run(scenarios[::-1] if name == "b" else scenarios, Squares(), folder, workers=workers)
        write_tables(folder, collect(folder, scenarios))
        tables.append((folder.results.read_bytes(), folder.curves.read_bytes()))
    assert tables[0] == tables[1]
    table = parquet.read_table(tmp_path / "a" / "results.parquet")
    assert table.column_names == ["base", "x", "square", "refused", "scenario"]
    assert table["square"].to_pylist() == [0, 1, 4, 9, 0, 1, 4, 9]
    assert parquet.read_table(tmp_path / "a" / "curves.parquet").num_rows == 2 * 8


def test_batches_have_one_plan_each_and_begin_with_different_ones(tmp_path: Path) -> None:
    scenarios = prepared(study_of(100, 3), Squares(), tmp_path)
    found = batches(scenarios, tmp_path, 2, True)
    assert sorted(s.key for b in found for s in b.scenarios) == sorted(s.key for s in scenarios)
    assert all(len({s.plan_key for s in b.scenarios}) == 1 for b in found)
    assert len({b.scenarios[0].plan_key for b in found[:3]}) == 3
    assert len(found) >= 20 and {b.folder for b in found} == {tmp_path}


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[1]", "null", "[" * 100_000, "{}", '{"curves":{},"figures":{"a":[1]},"refused":""}',
        '{"curves":{},"figures":[1],"refused":""}',
        '{"curves":{"c":{"unit":"W","times_s":[1],"values":[1,2]}},"figures":{},"refused":""}',
        '{"curves":{"c":{"unit":"W","times_s":["soon"],"values":[1]}},"figures":{},"refused":""}',
    ],
)  # fmt: skip
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    place = Folder(tmp_path / "s")
    place.prepare()
    place.record("a").write_text(text)
    with pytest.raises(OptionError, match=r"a\.json cannot be read: remove it"):
        place.read("a")
