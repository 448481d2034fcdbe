"""A plan file that ran before runs again from what was stored: the same results, without the model being read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.app import running
from hetsched.cli import quick
from hetsched.runtime import executable_cache as cache
from hetsched_kernels.native import usable

pytestmark = pytest.mark.skipif(not usable(), reason="executables are stored on x86-64 Linux only")
Runner = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plan_file(two_branch: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan for this machine; executables are stored beside it."""
    monkeypatch.setattr(cache, "folder", lambda: two_branch.parent / "cache")
    os.utime(two_branch, (0, 0))
    monkeypatch.setattr(cache, "SETTLED_NS", 0)
    found = hetsched.plan(two_branch, "host", dims={"width": 16}, solver="heft", simulated=False, time_limit_s=0.5)
    return found.save(two_branch.with_name("p.json"))


def no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsched.app.sessions.open_session", lambda *_, **__: pytest.fail("the model was read"))


def test_the_second_run_reads_no_model(plan_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = hetsched.run(plan_file, repeat=2)
    planned = first.planned
    no_compiling(monkeypatch)
    second = hetsched.run(plan_file, repeat=3)
    for name, value in first.outputs.items():
        np.testing.assert_array_equal(second.outputs[name], value)
    alike = ("model", "soc", "inputs", "delegate", "predicted_ms", "predicted_ms_interval", "outputs", "check", "delegates")
    assert {k: second.summary()[k] for k in alike} == {k: first.summary()[k] for k in alike}
    assert len(second.result.latencies_s) == 3
    x = np.random.default_rng(3).standard_normal((1, 3, 16, 16)).astype(np.float32)
    given = hetsched.run(plan_file, inputs={"x": x}, repeat=1)
    monkeypatch.undo()
    with hetsched.runtime.compile(planned.graph, planned.plan) as executable:
        np.testing.assert_array_equal(given.outputs["y"], executable.run({"x": x}).outputs["y"])


def test_the_trace_of_a_stored_run_has_its_counters(plan_file: Path) -> None:
    first = hetsched.run(plan_file, repeat=1)
    second = hetsched.run(plan_file, repeat=1)
    assert set(second.trace.counters) == set(first.trace.counters)
    assert {s.name for s in second.trace.spans} == {s.name for s in first.trace.spans}


def test_another_model_or_plan_is_compiled_again(plan_file: Path, two_branch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hetsched.run(plan_file, repeat=1)
    assert running.run_stored(plan_file, None, 1, 0, 0) is not None
    assert running.run_stored(plan_file, None, 1, 7, 0) is None  # noise of another seed was not stored
    moved = shutil.copy(plan_file, plan_file.with_name("q.json"))
    assert running.run_stored(Path(moved), None, 1, 0, 0) is None
    two_branch.write_bytes(two_branch.read_bytes())
    assert running.run_stored(plan_file, None, 1, 0, 0) is None
    assert not list(cache.folder().iterdir())


def test_a_damaged_entry_is_made_again(plan_file: Path) -> None:
    first = hetsched.run(plan_file, repeat=1)
    (entry,) = cache.folder().iterdir()
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 255
    entry.write_bytes(data)
    again = hetsched.run(plan_file, repeat=1)
    np.testing.assert_array_equal(again.outputs["y"], first.outputs["y"])
    assert running.run_stored(plan_file, None, 1, 0, 0) is not None


def test_a_stored_run_needs_neither_numba_nor_the_model_formats(plan_file: Path) -> None:
    hetsched.run(plan_file, repeat=1)
    out = plan_file.with_name("y.npz")
    script = f"""
import sys
from pathlib import Path
from hetsched.runtime import executable_cache
executable_cache.folder = lambda: Path({str(cache.folder())!r})
from hetsched.cli import quick
assert quick.answer(["run", {str(plan_file)!r}, "--json", "--repeat", "2", "-o", {str(out)!r}]) == 0
heavy = {{"numba", "llvmlite", "onnx", "pydantic", "typer", "rich", "networkx"}} & set(sys.modules)
assert heavy <= {{"pydantic"}}, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=120, capture_output=True, text=True)
    assert json.loads(done.stdout)["repeat"] == 2
    assert np.load(out)["y"].shape == (1, 10)


def test_bad_arguments_are_told_as_ever(plan_file: Path, run: Runner) -> None:
    hetsched.run(plan_file, repeat=1)
    code, _, said = run("run", plan_file, "--input", plan_file.with_name("absent.npz"))
    assert code == 2
    assert "there is no input file" in said
    code, _, said = run("run", plan_file, "--repeat", "0")
    assert code == 2
    assert "--repeat 0 makes no sense" in said
    code, _, said = run("run", plan_file, "-o", plan_file.parent / "nowhere" / "y.npz")
    assert code == 2
    assert "does not exist" in said


@pytest.mark.parametrize(
    "args",
    ["plan p", "run", "run --json", "run p --repeat", "run p --repeat x", "run p --repeat=3", "run p --repeat 3 --repeat 4",
     "run p --check", "run p --seed -1", "run p q", "run p --input", "run p -o --json", "run p --json --json", "run --json p", ""],
)  # fmt: skip
def test_what_only_the_parser_reads(args: str) -> None:
    assert quick._read(args.split()) is None


def test_what_is_read_at_once() -> None:
    assert quick._read(["run", "p", "--repeat", "3", "--json", "--input", "x", "-o", "y", "--seed", "2"]) == (
        Path("p"), {"repeat": 3, "seed": 2}, {"inputs": Path("x"), "output": Path("y")}, True,
    )  # fmt: skip
    assert quick._read(["run", "p"]) == (Path("p"), {}, {}, False)
