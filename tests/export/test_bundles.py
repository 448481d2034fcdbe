"""Bundles: whole, reloaded by their own runtime without this project, and refused where they are old, damaged or for something else."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.app.exporting import TARGETS, export
from hetsched.app.planning import plan
from hetsched.errors import OptionError, PlanError, UnsupportedModelError
from hetsched.export.bundle import MANIFEST, BundleFolder, read_bundle
from hetsched.export.llama_cpp import override_flags

Save = Callable[..., Path]
MODEL = """
    g (float[1,3,8,8] x) => (float[1,4,2,2] y) {
        a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)  b = Relu(a)  c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
        d = Softmax <axis = 1> (c)  e = Conv(d, v)  y = Tanh(e) }"""
#: Runs a script as a machine without this project would.
ALONE = """
import runpy, sys
sys.modules["hetsched"] = None
if "--emulator" not in sys.argv:
    sys.modules["onnxruntime_qnn"] = None
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")"""


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


@pytest.fixture
def plan_file(save: Save, tmp_path: Path) -> Path:
    """A plan on three processors of a phone: ops of each are forced there."""
    import onnx
    from onnx import numpy_helper

    rng = np.random.default_rng(4)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{MODEL}')
    for name, shape in (("w", (4, 3, 3, 3)), ("v", (4, 4, 1, 1))):
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    for node in model.graph.node:
        node.name = f"node_{node.output[0]}"
    forced = {"node_a": "npu", "node_b": "npu", "node_c": "cpu", "node_d": "gpu", "node_e": "npu", "node_y": "npu"}
    planned = plan(save(model), "snapdragon-8-gen-3", forced=forced)
    planned.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def run_alone(bundle: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ALONE, str(bundle / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@needs("onnxruntime")
def test_onnx_runtime_alone_gives_the_plans_numbers(plan_file: Path, tmp_path: Path) -> None:
    manifest = export(plan_file, "ort", tmp_path / "b")
    assert len(manifest.segments) > 2 and {s.processor for s in manifest.segments} == {"cpu", "gpu", "npu"}
    assert any(s.waits for s in manifest.segments)
    ran = run_alone(tmp_path / "b", "--allow-cpu")
    assert ran.returncode == 0, ran.stderr
    assert "the CPU stands in for" in ran.stdout and "y: cosine 1.0000000" in ran.stdout


@needs("onnxruntime")
def test_nothing_stands_in_unless_allowed(plan_file: Path, tmp_path: Path) -> None:
    export(plan_file, "ort", tmp_path / "b")
    ran = run_alone(tmp_path / "b")
    assert ran.returncode == 1 and "which is not here: run it on the phone, or with --allow-cpu" in ran.stderr


@needs("onnxruntime")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"minimum_runtime": "99.0"}, "this bundle needs ONNX Runtime 99.0 or newer"),
        ({"schema_version": 2}, "reads bundles of schema 1, and this one is of 2"),
    ],
)
def test_the_runner_refuses_what_is_too_new(plan_file: Path, tmp_path: Path, change: dict[str, Any], said: str) -> None:
    export(plan_file, "ort", tmp_path / "b")
    path = tmp_path / "b" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    ran = run_alone(tmp_path / "b", "--allow-cpu")
    assert ran.returncode == 1 and said in ran.stderr


@needs("onnxruntime")
def test_the_runner_sees_wrong_numbers(plan_file: Path, tmp_path: Path) -> None:
    export(plan_file, "ort", tmp_path / "b")
    golden = tmp_path / "b" / "golden" / "outputs.npz"
    np.savez(golden, **{k: -v for k, v in np.load(golden).items()})
    path = tmp_path / "b" / MANIFEST
    raw = json.loads(path.read_text())
    raw["files"]["golden/outputs.npz"] = hashlib.sha256(golden.read_bytes()).hexdigest()
    path.write_text(json.dumps(raw))
    ran = run_alone(tmp_path / "b", "--allow-cpu")
    assert ran.returncode == 1 and "y is not the golden output" in ran.stderr


@needs("openvino")
def test_openvino_alone(plan_file: Path, tmp_path: Path) -> None:
    export(plan_file, "openvino", tmp_path / "b")
    affinities = json.loads((tmp_path / "b" / "affinities.json").read_text())
    assert affinities == {
        "node_a": "NPU", "node_b": "NPU", "node_c": "CPU", "node_d": "GPU", "node_e": "NPU", "node_y": "NPU",
    }  # fmt: skip
    assert run_alone(tmp_path / "b").returncode == 1
    ran = run_alone(tmp_path / "b", "--allow-cpu")
    assert ran.returncode == 0, ran.stderr
    assert "operators have a device: CPU; the CPU stands in for GPU, NPU" in ran.stdout and "y: cosine 1.0000" in ran.stdout


@needs("ai_edge_litert")
def test_litert_alone(plan_file: Path, tmp_path: Path) -> None:
    export(plan_file, "litert", tmp_path / "b")
    assert "the plan uses the GPU and the NPU, and this runner the CPU" in run_alone(tmp_path / "b").stderr
    ran = run_alone(tmp_path / "b", "--allow-cpu")
    assert ran.returncode == 0, ran.stderr
    assert "y: cosine 1.0000" in ran.stdout
    (tmp_path / "b" / "golden" / "inputs.npz").write_bytes(b"")
    assert "golden/inputs.npz is missing or was changed" in run_alone(tmp_path / "b", "--allow-cpu").stderr


@needs("coremltools")
def test_core_ml_packages_are_read_again(plan_file: Path, tmp_path: Path) -> None:
    from hetsched.frontends import load

    manifest = export(plan_file, "coreml", tmp_path / "b")
    for segment in manifest.segments:
        program = load(tmp_path / "b" / segment.file)
        assert [t.file_name for t in segment.inputs] == list(program.inputs)
        assert {t.file_name: t.shape for t in segment.outputs} == {n: program.tensors[n].shape for n in program.outputs}
    assert {s.settings["computeUnits"] for s in manifest.segments} == {"cpuOnly", "cpuAndGPU", "cpuAndNeuralEngine"}
    assert "PlannedModel" in (tmp_path / "b" / "Run.swift").read_text()


@needs("onnxruntime_qnn")
def test_context_binaries_are_for_one_soc(plan_file: Path, tmp_path: Path) -> None:
    from hetsched.app.inputs import soc
    from hetsched.errors import DelegateError
    from hetsched.export.qnn import check_target
    from hetsched.runtime.delegates.qnn_target import Target

    manifest = export(plan_file, "qnn", tmp_path / "b")
    contexts = [s for s in manifest.segments if s.file.endswith("-context.onnx")]
    assert contexts and all(s.processor == "npu" for s in contexts)
    assert all(s.file in (tmp_path / "b" / "run_on_phone.sh").read_text() for s in contexts)
    check_target(tmp_path / "b", Target.of(soc("snapdragon-8-gen-3")))
    with pytest.raises(DelegateError, match=r"was made for snapdragon-8-gen-3 .* does not run on snapdragon-8-elite"):
        check_target(tmp_path / "b", Target.of(soc("snapdragon-8-elite")))
    ran = run_alone(tmp_path / "b", "--allow-cpu", "--emulator")
    assert ran.returncode == 0, ran.stderr
    assert "emulator stands in" in ran.stdout


def test_executorch_tags_name_every_node(plan_file: Path, tmp_path: Path) -> None:
    export(plan_file, "executorch", tmp_path / "b")
    held = json.loads((tmp_path / "b" / "partition_tags.json").read_text())
    assert set(held["tags"]) == {f"node_{n}" for n in "abcdey"}
    assert {held["backends"][t] for t in held["tags"].values()} == {"QnnBackend", "VulkanBackend", "XnnpackBackend"}


def test_llama_cpp_takes_gguf_only(plan_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="is not a GGUF file"):
        export(plan_file, "llama.cpp", tmp_path / "b")
    assert not (tmp_path / "b").exists() and not list(tmp_path.glob(".b*")), "nothing half-written is left"


def test_overrides_name_layers_together() -> None:
    devices = {f"blk.{i}.{w}.weight": "GPUOpenCL" for i in range(4) for w in ("attn_q", "ffn_up")}
    devices |= {"blk.0.ffn_up.weight": "HTP0", "blk.2.ffn_up.weight": "HTP0", "output.weight": "CPU"}
    assert override_flags(devices) == [
        "--device", "GPUOpenCL,HTP0", "-ngl", "999", "-ot", "output\\.weight=CPU", "-ot", "blk\\.(0|2)\\.ffn_up\\.weight=HTP0",
    ]  # fmt: skip


@needs("onnxruntime")
def test_a_bundle_is_the_same_bytes_again_and_replaces_its_elder(plan_file: Path, tmp_path: Path) -> None:
    first = export(plan_file, "ort", tmp_path / "b")
    again = export(plan_file, "ort", tmp_path / "b")
    assert first == again == read_bundle(tmp_path / "b")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


@needs("onnxruntime")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 0}, r"has schema version 0 and this version reads 1: export the plan again, or use hetsched"),
        ({"quantization_schema": 7}, r"has quantization schema 7 and this version reads 1"),
        ({"operator_set": "none"}, r"has operator set 'none'"),
        ({"segments": 3}, r"is not a valid manifest: .*segments"),
        ({"files": {"../x": "0"}}, r"is damaged: '../x' is missing"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(plan_file: Path, tmp_path: Path, change: dict[str, Any], said: str) -> None:
    export(plan_file, "ort", tmp_path / "b")
    path = tmp_path / "b" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(PlanError, match=said):
        read_bundle(tmp_path / "b")


@needs("onnxruntime")
def test_a_changed_file_is_seen(plan_file: Path, tmp_path: Path) -> None:
    manifest = export(plan_file, "ort", tmp_path / "b")
    name = manifest.segments[0].file
    (tmp_path / "b" / name).write_bytes((tmp_path / "b" / name).read_bytes()[:-1])
    with pytest.raises(PlanError, match=rf"is damaged: '{name}' is changed since it was written"):
        read_bundle(tmp_path / "b")
    (tmp_path / "b" / name).unlink()
    with pytest.raises(PlanError, match=rf"'{name}' is missing"):
        read_bundle(tmp_path / "b")


@needs("onnxruntime")
def test_two_writers_at_once_do_not_meet(plan_file: Path, tmp_path: Path) -> None:
    with BundleFolder(tmp_path / "b") as half:
        half.write("a", b"1")
        whole = export(plan_file, "ort", tmp_path / "b")
        assert (half.path / "a").read_bytes() == b"1" and read_bundle(tmp_path / "b") == whole
        half.finish(whole)
    assert [p.name for p in (tmp_path / "b").iterdir()] != [] and not list(tmp_path.glob(".b.*"))


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    said = r"cannot write the bundle .*b: No space left on device; choose another place with -o"
    with pytest.raises(OptionError, match=said), BundleFolder(tmp_path / "b") as folder:
        folder.write("a", b"1")
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_arrays_may_have_any_name(tmp_path: Path) -> None:
    with BundleFolder(tmp_path / "b") as folder:
        arrays = {n: np.arange(3.0) for n in ("file", "allow_pickle", "a/b:0")}
        read = dict(np.load(folder.path / folder.write_arrays("x.npz", arrays)))
        assert set(read) == set(arrays) and read["file"].tolist() == [0, 1, 2]


@needs("onnxruntime")
def test_the_runner_says_which_input_is_wrong(plan_file: Path, tmp_path: Path) -> None:
    export(plan_file, "ort", tmp_path / "b")
    np.savez(tmp_path / "other.npz", z=np.zeros(3))
    ran = run_alone(tmp_path / "b", "--allow-cpu", str(tmp_path / "other.npz"))
    assert ran.returncode == 1 and "the input 'x' is missing, and the model wants f32 [1, 3, 8, 8]" in ran.stderr
    ran = run_alone(tmp_path / "b", "--allow-cpu", str(tmp_path / "nothing.npz"))
    assert ran.returncode == 1 and "is not a .npz file of the inputs" in ran.stderr


@needs("onnxruntime")
def test_files_outside_a_bundle_are_refused(plan_file: Path, tmp_path: Path) -> None:
    export(plan_file, "ort", tmp_path / "b")
    path = tmp_path / "b" / MANIFEST
    raw = json.loads(path.read_text())
    raw["segments"][0]["file"] = "../model.onnx"
    path.write_text(json.dumps(raw))
    with pytest.raises(PlanError, match=r"names '\.\./model.onnx', which is no file of the bundle"):
        read_bundle(tmp_path / "b")
    ran = run_alone(tmp_path / "b", "--allow-cpu")
    assert ran.returncode == 1 and "../model.onnx is no file of this bundle" in ran.stderr


def test_a_folder_of_something_else_stays(plan_file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(OptionError, match="something else is there"):
        export(plan_file, "ort", tmp_path / "mine")
    with pytest.raises(OptionError, match="does not exist"):
        export(plan_file, "ort", tmp_path / "no" / "b")
    with pytest.raises(OptionError, match=r"--to nothing: plans are exported to coreml"):
        export(plan_file, "nothing", tmp_path / "b")
    with pytest.raises(PlanError, match="is not a bundle"):
        read_bundle(tmp_path / "mine")
    assert "ort" in TARGETS
