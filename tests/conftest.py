"""Small models that any test may use; made here, so that no test depends on files outside the repository."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, settings
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parent.parent

# A slow machine is no fault of the code: no deadlines. CI runs the same examples every time; elsewhere they vary.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def two_branch_model(channels: int = 8, size: int = 16) -> onnx.ModelProto:
    """A seeded net with two parallel branches: stem conv, two conv chains, add, pool, classifier."""
    rng = np.random.default_rng(7)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        fan = int(np.prod(shape[1:])) or 1
        return numpy_helper.from_array((rng.standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32), name)

    c = channels
    weights = [
        weight("stem.w", c, 3, 3, 3), weight("stem.b", c), weight("a1.w", c, c, 3, 3), weight("a2.w", c, c, 1, 1),
        weight("b1.w", c, c, 3, 3), weight("b2.w", c, c, 1, 1), weight("fc.w", 10, c), weight("fc.b", 10),
    ]  # fmt: skip
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "stem.w", "stem.b"], ["stem"], "stem", **pads),
        helper.make_node("Relu", ["stem"], ["stem.relu"], "stem.relu"),
        helper.make_node("Conv", ["stem.relu", "a1.w"], ["a1"], "a1", **pads),
        helper.make_node("Relu", ["a1"], ["a1.relu"], "a1.relu"),
        helper.make_node("Conv", ["a1.relu", "a2.w"], ["a2"], "a2"),
        helper.make_node("Conv", ["stem.relu", "b1.w"], ["b1"], "b1", **pads),
        helper.make_node("Sigmoid", ["b1"], ["b1.act"], "b1.act"),
        helper.make_node("Conv", ["b1.act", "b2.w"], ["b2"], "b2"),
        helper.make_node("Add", ["a2", "b2"], ["sum"], "sum"),
        helper.make_node("GlobalAveragePool", ["sum"], ["pool"], "pool"),
        helper.make_node("Flatten", ["pool"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "fc.w", "fc.b"], ["y"], "fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes, "two_branch",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, size, "width"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(autouse=True, scope="session")
def executables_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests run is not stored in the user's cache."""
    folder = tmp_path_factory.mktemp("executables")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hetsched.runtime.executable_cache.folder", lambda: folder)
        yield


@pytest.fixture
def two_branch(tmp_path: Path) -> Path:
    """The two-branch model as a file; its dim ``width`` must be bound."""
    path = tmp_path / "two_branch.onnx"
    path.write_bytes(two_branch_model().SerializeToString())
    return path


@pytest.fixture
def two_branch_heavy(tmp_path: Path) -> Path:
    """The same net with branches long enough to be worth two queues."""
    path = tmp_path / "two_branch_heavy.onnx"
    path.write_bytes(two_branch_model(channels=64, size=96).SerializeToString())
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command of ``hetsched``: its exit code, and what it wrote to both streams."""
    from hetsched.cli import main

    def go(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hetsched", *map(str, args)])
        with pytest.raises(SystemExit) as e:
            main()
        return int(e.value.code or 0), *capsys.readouterr()

    return go


@pytest.fixture
def real_model() -> Iterator[Callable[[str], Path]]:
    """Path of a real model that ``make models`` brings; skips, visibly, where it is absent."""

    def find(name: str) -> Path:
        path = ROOT / "models" / f"{name}.onnx"
        if not path.is_file():
            pytest.skip(f"models/{name}.onnx is absent: run 'make models'")
        return path

    yield find


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Write an ONNX model, given as a proto or as the text of its graph, and return its path."""

    def write(model: onnx.ModelProto | str, opset: int = 18, domains: str = "", name: str = "model") -> Path:
        if isinstance(model, str):
            model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{domains}]>\n{model}')
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return write
