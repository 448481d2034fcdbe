"""``hetsched plan -v`` and reports show what the passes made of a model; ``--json`` stays as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def hetsched(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "hetsched", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8").stdout


def test_verbose_plans_and_reports_name_the_passes_that_did_something(two_branch: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    options = ("plan", two_branch, "--soc", "snapdragon-8-gen-3", "--dim", "width=16", "--time-limit", "0.1s")
    shown = hetsched(*options, "-v", "-o", plan)
    assert "fuse-conv" in shown and "FusedConv" in shown and "fuse-softmax" not in shown
    assert "fuse-conv" not in hetsched(*options)
    keys = [set(json.loads(hetsched(*options, "--json", *extra))) for extra in ((), ("-v",))]
    assert keys[0] == keys[1] and not any("pass" in k for k in keys[0])
    page = tmp_path / "report.html"
    hetsched("report", plan, "-o", page)
    text = page.read_text("utf-8")
    assert "What the passes did: 12 operators of the file became" in text and "<td>fuse-conv</td>" in text
