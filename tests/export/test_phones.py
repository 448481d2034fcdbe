"""The script that runs a bundle on a phone, with a stand-in for ``adb`` that runs everything here, up to ``hetsched import``."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hetsched.app.exporting import export
from hetsched.app.importing import import_profile
from hetsched.app.planning import plan
from hetsched.export.bundle import read_bundle

Save = Callable[..., Path]
pytestmark = pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
MODEL = """
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w = {1, 0, 2, 0, 0, 3, 0, 1, 1, 1, 0, 0, 2, 0, 0, 2}> {
        a = Conv (x, w)  b = Softmax <axis = 1> (a)  y = Conv (b, w) }"""
#: ``adb`` whose phone is a folder: $PHONE. It fails as adb does where there is no phone.
ADB = """#!/bin/sh
set -e
[ -d "$PHONE" ] || { echo "error: no devices/emulators found" >&2; exit 1; }
here() { printf %s "$1" | sed "s#/data/local/tmp#$PHONE/data/local/tmp#g"; }
case $1 in
    get-state) echo device ;;
    push) cp -r "$2" "$(here "$3")" ;;
    pull) cp -r "$(here "$2")" "$3" ;;
    shell) sh -c "$(here "$2")" ;;
    *) exit 2 ;;
esac
"""
#: Takes the options of onnxruntime_perf_test and runs on the CPU whatever ``-e`` says; one inference more than asked for, to warm up.
RUNNER = """#!%s
import getopt, sys
import numpy as np, onnxruntime as ort
given, (model,) = getopt.getopt(sys.argv[1:], "m:e:r:p:x:i:C:I")
given = dict(given)
print(given["-e"], file=open("providers.txt", "a"))
if given["-e"] == "%s":
    sys.exit("the provider is not there")
options = ort.SessionOptions()
options.enable_profiling, options.profile_file_prefix, options.log_severity_level = True, given["-p"], 4
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
feeds = {i.name: np.random.rand(*i.shape).astype(np.float32) for i in session.get_inputs()}
for _ in range(1 + int(given["-r"])):
    session.run(None, feeds)
session.end_profiling()
"""


@pytest.fixture
def bundle(save: Save, tmp_path: Path) -> Path:
    """Of a plan with a segment on the NPU between two on the CPU."""
    import onnx

    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{MODEL}')
    for node in made.graph.node:
        node.name = f"node_{node.output[0]}"
    forced = {"node_a": "cpu", "node_b": "npu", "node_y": "cpu"}
    planned = plan(save(made), "snapdragon-8-gen-3", forced=forced, simulated=False, solver="rules")
    planned.save(tmp_path / "plan.json")
    export(tmp_path / "plan.json", "ort", tmp_path / "bundle")
    return tmp_path / "bundle"


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def on_phone(folder: Path, bundle: Path, runner: Path, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    adb = program(folder / "adb", ADB)
    environment = {**os.environ, "ADB": str(adb), "PHONE": str(folder / "phone"), "RUNS": "3", **(more or {})}
    command = ["sh", str(bundle / "run_on_phone.sh"), str(runner), str(folder / "profile.json")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_from_the_bundle_to_an_imported_profile(bundle: Path, tmp_path: Path) -> None:
    """Runs are those of the whole plan; the runner sees each segment's provider, and nothing stays on the phone."""
    (tmp_path / "phone" / "data" / "local" / "tmp").mkdir(parents=True)
    runner = program(tmp_path / "perf_test", RUNNER % (sys.executable, "none"))
    seen = tmp_path / "providers.txt"
    runner.write_text(runner.read_text().replace('"providers.txt"', repr(str(seen))))
    ran = on_phone(tmp_path, bundle, runner)
    assert ran.returncode == 0, ran.stderr
    assert seen.read_text().split() == ["cpu", "qnn", "cpu"] and "segment 001: -e qnn -C 'session.disable_cpu_ep_fallback|1'" in ran.stdout
    assert list((tmp_path / "phone" / "data" / "local" / "tmp").iterdir()) == []
    found = import_profile(tmp_path / "profile.json", tmp_path / "model.onnx", "snapdragon-8-gen-3")
    assert found.profile.runs == 3 and found.measured is not None
    assert {o.op for o in found.measured.ops} == {"node_a", "node_b", "node_y"}
    starts = [s.start_s for s in sorted(found.trace.spans, key=lambda s: s.start_s) if s.kind == "op"]
    assert starts == sorted(set(starts)), "the segments come one after another"


def test_a_folder_of_runner_and_libraries(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "phone" / "data" / "local" / "tmp").mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    program(tmp_path / "tools" / "onnxruntime_perf_test", RUNNER % (sys.executable, "none"))
    assert on_phone(tmp_path, bundle, tmp_path / "tools").returncode == 0
    assert (tmp_path / "profile.json").is_file()


def test_what_fails_is_said(bundle: Path, tmp_path: Path) -> None:
    runner = program(tmp_path / "perf_test", RUNNER % (sys.executable, "qnn"))
    ran = on_phone(tmp_path, bundle, tmp_path / "nothing")
    assert ran.returncode == 2 and "usage: sh run_on_phone.sh RUNNER" in ran.stderr
    ran = on_phone(tmp_path, bundle, runner)
    assert ran.returncode == 1 and "there is no phone: error: no devices/emulators found; connect one" in ran.stderr
    (tmp_path / "phone" / "data" / "local" / "tmp").mkdir(parents=True)
    ran = on_phone(tmp_path, bundle, runner)
    assert ran.returncode == 1 and "the provider is not there" in ran.stderr and "failed on the phone: adb shell" in ran.stderr
    assert not (tmp_path / "profile.json").exists()


def test_only_android_has_one(bundle: Path, save: Save, tmp_path: Path) -> None:
    assert {"run_on_phone.sh", "merge_profiles.py"} <= read_bundle(bundle).files.keys()
    planned = plan(tmp_path / "model.onnx", "snapdragon-x-elite", simulated=False, solver="rules")
    planned.save(tmp_path / "laptop.json")
    assert "run_on_phone.sh" not in export(tmp_path / "laptop.json", "ort", tmp_path / "laptop").files


def test_a_profile_of_nothing(tmp_path: Path) -> None:
    from hetsched.export import merge_profiles

    ran = subprocess.run([sys.executable, merge_profiles.__file__, str(tmp_path), str(tmp_path / "p.json")], capture_output=True, text=True)
    assert ran.returncode == 1 and "there is no profile in" in ran.stderr
