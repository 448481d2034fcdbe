"""Bad calibration inputs and ranges files: one sentence, exit code 2, nothing written. Run in this process, which is quick."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hetsched import cli

PHONE = ["--soc", "snapdragon-8-gen-3"]
W8A8 = ["--precision", "w8a8"]


def net(folder: Path) -> str:
    """A product of a ``[1, 4]`` input with a weight, in ``net.onnx``."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32), "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "net.onnx")
    return "net.onnx"


def arrays(folder: Path, **values: Any) -> str:
    np.savez(folder / "x.npz", **values)
    return "x.npz"


def samples(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def good(folder: Path) -> list[str]:
    return ["calibrate-ranges", net(folder), arrays(folder, x=samples(3, 1, 4))]


def with_arrays(**values: Any) -> Callable[[Path], list[str]]:
    return lambda folder: ["calibrate-ranges", net(folder), arrays(folder, **values)]


def with_options(*options: str) -> Callable[[Path], list[str]]:
    return lambda folder: [*good(folder), *options]


def infinite(folder: Path) -> list[str]:
    x = samples(3, 1, 4)
    x[2, 0, 1] = np.nan
    return ["calibrate-ranges", net(folder), arrays(folder, x=x)]


def no_archive(folder: Path) -> list[str]:
    (folder / "x.npz").write_bytes(b"PK\3\4 nothing")
    return ["calibrate-ranges", net(folder), "x.npz"]


def pickled(folder: Path) -> list[str]:
    return ["calibrate-ranges", net(folder), arrays(folder, x=np.array([{"a": 1}], object))]


def onto_the_model(folder: Path) -> list[str]:
    return [*good(folder), "-o", "net.onnx"]


def onto_the_inputs(folder: Path) -> list[str]:
    return [*good(folder), "-o", "x.npz"]


def quantized(folder: Path) -> list[str]:
    args = good(folder)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["q"], "edge"), helper.make_node("DequantizeLinear", ["q", "s"], ["y"])]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [numpy_helper.from_array(np.array(0.1, np.float32), "s")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "net.onnx")
    return args


def planned_with(change: Callable[[dict[str, Any]], Any], verb: str = "plan") -> Callable[[Path], list[str]]:
    """Plan with the ranges file after ``change``, which edits its JSON value in place or returns another text."""

    def prepare(folder: Path) -> list[str]:
        assert run(folder, good(folder)) == 0
        file = folder / "net.onnx.ranges.json"
        value = json.loads(file.read_text())
        text = change(value)
        file.write_text(text if isinstance(text, str) else json.dumps(value))
        return [verb, "net.onnx", *W8A8, *(PHONE if verb == "plan" else [])]

    return prepare


def a_directory(folder: Path) -> list[str]:
    (folder / "r").mkdir()
    return ["plan", net(folder), *W8A8, *PHONE, "--ranges", "r"]


def of_a_plan(folder: Path) -> list[str]:
    assert run(folder, good(folder)) == 0
    assert run(folder, ["plan", "net.onnx", *W8A8, *PHONE, "-o", "plan.json"]) == 0
    return ["run", "plan.json", "--ranges", "net.onnx.ranges.json"]


def onto_the_ranges(folder: Path) -> list[str]:
    assert run(folder, good(folder)) == 0
    return ["plan", "net.onnx", *W8A8, *PHONE, "-o", "net.onnx.ranges.json"]


def lost(folder: Path) -> list[str]:
    assert run(folder, good(folder)) == 0
    assert run(folder, ["plan", "net.onnx", *W8A8, "-o", "plan.json"]) == 0
    (folder / "net.onnx.ranges.json").unlink()
    return ["run", "plan.json"]


def without_ranges(folder: Path) -> list[str]:
    return ["run", net(folder), *W8A8]


def plan_without_ranges(folder: Path) -> list[str]:
    assert run(folder, ["plan", net(folder), *W8A8, "-o", "plan.json"]) == 0
    return ["run", "plan.json"]


def scaled(value: dict[str, Any]) -> None:
    value["ranges"]["x"]["min"] = 1e9


KINDS: list[tuple[str, Callable[[Path], list[str]], str]] = [
    ("no_file", lambda folder: ["calibrate-ranges", net(folder), "nowhere.npz"], "nowhere.npz"),
    ("no_archive", no_archive, "x.npz is not a readable"),
    ("pickled", pickled, "x.npz is not a readable"),
    ("no_inputs", lambda folder: ["calibrate-ranges", net(folder)], "INPUTS.npz"),
    ("no_model", lambda folder: ["calibrate-ranges", "nowhere.onnx", arrays(folder, x=samples(1, 4))], "nowhere.onnx"),
    ("wrong_name", with_arrays(image=samples(3, 1, 4)), "'image'"),
    ("one_name_too_many", with_arrays(x=samples(3, 1, 4), z=samples(1)), "'z'"),
    ("empty_archive", with_arrays(), "no array 'x'"),
    ("wrong_shape", with_arrays(x=samples(3, 1, 5)), "[3, 1, 5]"),
    ("wrong_type", with_arrays(x=samples(3, 1, 4).astype(np.float64)), "float64"),
    ("no_samples", with_arrays(x=samples(0, 1, 4)), "is empty"),
    ("not_a_number", infinite, "NaN"),
    ("unknown_method", with_options("--method", "magic"), "'magic'"),
    ("silly_percentile", with_options("--method", "percentile", "--percentile", "120"), "120"),
    ("unknown_granularity", with_options("--granularity", "pixel"), "'pixel'"),
    ("unknown_dim", with_options("--dim", "nope=3"), "nope"),
    ("unwritable", with_options("-o", "no/such/folder/r.json"), "no/such/folder"),
    ("onto_the_model", onto_the_model, "net.onnx"),
    ("onto_the_inputs", onto_the_inputs, "x.npz"),
    ("quantized", quantized, "'edge'"),
    ("damaged", planned_with(lambda v: '{"schema_version": 1, "ran'), "net.onnx.ranges.json"),
    ("empty_file", planned_with(lambda v: ""), "net.onnx.ranges.json"),
    ("nested", planned_with(lambda v: "[" * 100_000), "net.onnx.ranges.json"),
    ("other_model", planned_with(lambda v: v["model"].update(sha256="0" * 64)), "run 'hetsched calibrate-ranges' again"),
    ("newer_schema", planned_with(lambda v: v.update(schema_version=2)), "schema_version"),
    ("upside_down", planned_with(scaled), "ranges.x"),
    ("infinity", planned_with(lambda v: json.dumps(v).replace("3", "1e999", 1)), "net.onnx.ranges.json"),
    ("foreign_key", planned_with(lambda v: v.update(secret=1)), "secret"),
    ("damaged_for_run", planned_with(lambda v: "{", "run"), "net.onnx.ranges.json"),
    ("a_directory", a_directory, "no ranges file r"),
    ("no_ranges_file", lambda folder: ["plan", net(folder), *W8A8, *PHONE, "--ranges", "nowhere.json"], "nowhere.json"),
    ("ranges_for_float", lambda folder: ["plan", net(folder), *PHONE, "--ranges", "nowhere.json"], "--precision auto"),
    ("of_a_plan", of_a_plan, "--ranges and --set belong to 'hetsched plan'"),
    ("onto_the_ranges", onto_the_ranges, "net.onnx.ranges.json"),
    ("lost", lost, "net.onnx.ranges.json"),
    ("without_ranges", without_ranges, "--precision w8a8-dynamic"),
    ("plan_without_ranges", plan_without_ranges, "hetsched calibrate-ranges net.onnx"),
]


def run(folder: Path, args: list[str]) -> int:
    """The command line in this process; its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["hetsched", *args])
        with pytest.raises(SystemExit) as done:
            cli.main()
    return int(done.value.code or 0)


@pytest.mark.parametrize(("prepare", "named"), [k[1:] for k in KINDS], ids=[k[0] for k in KINDS])
def test_one_sentence_and_exit_code_2(
    prepare: Callable[[Path], list[str]], named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    args = prepare(tmp_path)
    capfd.readouterr()
    before = {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    code = run(tmp_path, args)
    out, err = capfd.readouterr()
    assert code == 2, err
    assert len(err.strip().splitlines()) == 1 and err.startswith("hetsched: ") and named in err
    assert "internal error" not in err and out == ""
    assert {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_good_input_writes_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, [*good(tmp_path), "--method", "percentile", "--percentile", "99.9", "--symmetric"]) == 0
    said = capfd.readouterr().out
    assert "2 of 2 float tensors" in said and "percentile 99.9, symmetric, per tensor, 3 samples" in said
    assert run(tmp_path, [*good(tmp_path), "--granularity", "channel", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert list(found) == [
        "model", "method", "percentile", "granularity", "symmetric", "samples", "tensors", "ranges", "ranges_path",
    ]  # fmt: skip
    assert found["ranges_path"] == "net.onnx.ranges.json" and (tmp_path / "net.onnx.ranges.json").is_file()
