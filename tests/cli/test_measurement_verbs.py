"""``import``, ``accuracy``, ``compare`` and the options of ``plan`` that they serve, as commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PHONE = ["--soc", "snapdragon-8-gen-3"]
WIDTH = ["--dim", "width=16"]


def hetsched(*args: object, cwd: Path, seed: str = "random") -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONHASHSEED": seed, "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "hetsched", *map(str, args)], capture_output=True, text=True, cwd=cwd, timeout=300, env=env
    )


def test_plan_says_what_it_is_anchored_to(two_branch: Path, tmp_path: Path) -> None:
    anchor = "chip=snapdragon-8-gen-3,latency_ms=1.58,runtime=qnn,precision=float"
    shown = hetsched("plan", two_branch, *PHONE, *WIDTH, "--anchor", anchor, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "note: anchored to 1.58 ms on snapdragon-8-gen-3 (qnn, float)" in shown.stdout
    found = json.loads(hetsched("plan", two_branch, *PHONE, *WIDTH, "--anchor", anchor, "--json", cwd=tmp_path).stdout)
    assert found["anchored_to"][0]["latency_s"] == pytest.approx(1.58e-3)


def test_import_then_plan_with_what_was_measured(two_branch: Path, tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("name,op,unit,time_ms\nfc,Gemm,npu,5\nnobody,Add,npu,1\n")
    made = hetsched("import", "times.csv", "--model", two_branch, *PHONE, *WIDTH, "-o", "m.json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "matched: 1 of " in made.stdout and "not found in the model: nobody" in made.stdout
    planned = hetsched("plan", two_branch, *PHONE, *WIDTH, "--measured", "m.json", "-o", "p.json", cwd=tmp_path)
    assert planned.returncode == 0 and "times of 1 of " in planned.stdout
    traced = hetsched("import", "times.csv", "--model", two_branch, *PHONE, *WIDTH, "-o", "t.pftrace", "--json", cwd=tmp_path)
    assert json.loads(traced.stdout)["matched"] == 1
    assert hetsched("report", "p.json", "t.pftrace", "-o", "r.html", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    "args",
    [
        ["import", "absent.json"], ["import", "prose.txt"], ["import", "times.csv", "-o", "out.txt"],
        ["import", "times.csv", "--queue", "dsp"],
        ["plan", "two_branch.onnx", *PHONE, *WIDTH, "--measured", "prose.txt"],
        ["plan", "two_branch.onnx", *PHONE, *WIDTH, "--anchor", "fast"],
        ["plan", "two_branch.onnx", "--prompt", "8", "--generate", "8", "--anchor", "chip=host,latency_ms=1"],
        ["accuracy", "commodore-64"], ["compare", "two_branch.onnx"], ["compare", "two_branch.onnx", *PHONE, *WIDTH, "--for", "1min"],
        ["compare", "two_branch.onnx", *PHONE, *WIDTH, "--target", "soon"],
    ],
    ids=lambda a: " ".join(map(str, a))[:60],
)  # fmt: skip
def test_bad_input_is_one_sentence(args: list[str], two_branch: Path) -> None:
    folder = two_branch.parent
    (folder / "prose.txt").write_text("hello\n")
    (folder / "times.csv").write_text("name,op,time_ms\nfc,Gemm,5\n")
    before = sorted(folder.iterdir())
    done = hetsched(*args, cwd=folder)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("hetsched: ") and done.stderr.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_accuracy_prints_tables_and_writes_a_page(tmp_path: Path) -> None:
    done = hetsched("accuracy", "snapdragon-8-gen-3", "-o", "a.html", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {g["chip"] for g in found["groups"]} == {"snapdragon-8-gen-3"} and sum(g["rows"] for g in found["chips"]) == found["rows"]
    assert "How accurate are the predictions?" in (tmp_path / "a.html").read_text("utf-8")
    one, all_of_them = (hetsched("accuracy", *chips, cwd=tmp_path).stdout for chips in (("snapdragon-8-gen-3",), ()))
    assert one.startswith("by precision, runtime and use\n") and "layers left on the CPU" in one
    assert all_of_them.startswith("by chip\n") and "apple-a14" in all_of_them


@pytest.mark.parametrize("args", [("accuracy",), ("socs", "dimensity-9400"), ("compare", "MODEL", *PHONE, *WIDTH)])
def test_a_page_has_the_name_of_a_page(args: tuple[str, ...], two_branch: Path, tmp_path: Path) -> None:
    done = hetsched(*(str(two_branch) if a == "MODEL" else a for a in args), "-o", "page.pdf", cwd=tmp_path)
    assert done.returncode == 2 and "ends in .html" in done.stderr and not list(tmp_path.glob("page*"))


def test_a_table_that_is_no_text_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("op,ms\ncaf\xe9,1\n".encode("latin-1"))
    done = hetsched("import", "latin.csv", cwd=tmp_path)
    assert done.returncode == 2 and "'latin.csv' is not UTF-8 text" in done.stderr


def test_compare_prints_the_matrix_and_is_deterministic(two_branch: Path, tmp_path: Path) -> None:
    args = ["compare", two_branch, *PHONE, "--soc", "snapdragon-888", *WIDTH, "--target", "33ms", "--for", "10s", "-o", "c.html"]
    shown = hetsched(*args, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "cheapest that holds 33 ms for 10 s at 25 °C (simulated): snapdragon-888" in shown.stdout
    page = (tmp_path / "c.html").read_bytes()
    runs = [hetsched(*args, "--json", cwd=tmp_path, seed=seed).stdout for seed in ("1", "2")]
    assert runs[0] == runs[1] and json.loads(runs[0])["cheapest"] == {"two_branch": "snapdragon-888"}
    assert (tmp_path / "c.html").read_bytes() == page
