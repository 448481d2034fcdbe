"""Executables that are stored and loaded again: the same bits, and nothing else than what was stored."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ExecutionError
from hetsched.frontends import load as load_model
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import Executable, make_inputs
from hetsched.runtime import compile as compile_plan
from hetsched.runtime import executable_cache as cache
from hetsched.runtime import executable_files as files
from hetsched.runtime.executable_cache import folder
from hetsched.runtime.loading import load
from hetsched.runtime.storing import UnstorableError, contents_of
from hetsched_kernels.native import usable

pytestmark = pytest.mark.skipif(not usable(), reason="executables are stored on x86-64 Linux only")
HandPlan = Callable[..., Plan]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """A convolution, a chain of functions (a kernel that takes addresses), a product and a sum with a constant."""
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"w": (8, 3, 3, 3), "m": (16, 24), "s": (24,)}
    values = [numpy_helper.from_array((rng.standard_normal(shape) * 0.2).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("MatMul", ["a", "m"], ["b"]),
        helper.make_node("Sin", ["b"], ["c"]),
        helper.make_node("Mul", ["c", "s"], ["d"]),
        helper.make_node("Exp", ["d"], ["e"]),
        helper.make_node("Transpose", ["e"], ["y"], perm=[0, 2, 3, 1]),
    ]
    x, y = helper.make_tensor_value_info("x", 1, [1, 3, 16, 16]), helper.make_tensor_value_info("y", 1, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], values), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    return standard(load_model(tmp_path / "m.onnx"))


def written(executable: Executable, path: Path, **about: Any) -> Path:
    contents = contents_of(executable)
    with path.open("wb") as file:
        files.write(file, contents._replace(manifest={**contents.manifest, **about}))
    return path


@pytest.mark.parametrize("two_queues", [False, True])
def test_a_loaded_executable_computes_the_same(
    graph: Graph, plan_by_hand: HandPlan, alternate: Callable[[int], str], two_queues: bool, tmp_path: Path
) -> None:
    feeds, others = make_inputs(graph, 0), make_inputs(graph, 1)
    plan = plan_by_hand(graph, alternate) if two_queues else plan_by_hand(graph)
    with compile_plan(graph, plan) as executable:
        written(executable, tmp_path / "it")
        expected, different = executable.run(feeds), executable.run(others)
    with load(files.read(tmp_path / "it")) as loaded:
        for _ in range(3):
            np.testing.assert_array_equal(loaded.run(feeds).outputs["y"], expected.outputs["y"])
            result = loaded.run(others)
            np.testing.assert_array_equal(result.outputs["y"], different.outputs["y"])
        assert [s.name for s in result.trace.spans if s.kind == "op"] == [s.name for s in expected.trace.spans if s.kind == "op"]
        with pytest.raises(ExecutionError, match="cannot be observed"):
            loaded.run(feeds, observe=True)


def test_an_executable_that_has_run_is_stored_the_same(graph: Graph, plan_by_hand: HandPlan, tmp_path: Path) -> None:
    with compile_plan(graph, plan_by_hand(graph)) as executable:
        before = contents_of(executable)
        executable.run(make_inputs(graph, 0))
        after = contents_of(executable)
    assert before.manifest == after.manifest
    assert all(np.array_equal(before.arrays[n], after.arrays[n]) for n in before.arrays)
    assert b"".join(before.pieces["data"].chunks()) == b"".join(after.pieces["data"].chunks())


def test_an_index_out_of_range_is_told_with_its_node(plan_by_hand: HandPlan, tmp_path: Path) -> None:
    import onnx
    from onnx import helper, numpy_helper

    table = numpy_helper.from_array(np.arange(20, dtype=np.float32).reshape(5, 4), "table")
    nodes = [helper.make_node("Gather", ["table", "i"], ["g"], "lookup"), helper.make_node("Neg", ["g"], ["y"], "negative")]
    i, y = helper.make_tensor_value_info("i", 7, [3]), helper.make_tensor_value_info("y", 1, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [i], [y], [table]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    graph = standard(load_model(tmp_path / "m.onnx"))
    good, bad = {"i": np.array([0, 4, -5])}, {"i": np.array([0, 5, 1])}
    with compile_plan(graph, plan_by_hand(graph)) as executable:
        written(executable, tmp_path / "it")
        with load(files.read(tmp_path / "it")) as loaded:
            for runs in (executable, loaded):
                for _ in range(2):
                    assert runs.run(good).outputs["y"].tolist() == [[-0.0, -1, -2, -3], [-16, -17, -18, -19], [-0.0, -1, -2, -3]]
                    with pytest.raises(ExecutionError, match=r"node 'lookup' .*the indices 'i' point outside"):
                        runs.run(bad)
        with pytest.raises(ExecutionError, match=r"node 'lookup' .*the indices 'i' point outside"):
            executable.run(bad, observe=True)


def test_python_steps_and_other_delegates_are_not_stored(graph: Graph, plan_by_hand: HandPlan) -> None:
    with compile_plan(graph, plan_by_hand(graph, precision=lambda i: "w8a8" if i == 0 else "f32")) as executable:
        executable.run(make_inputs(graph, 0))  # a convolution that is quantized while it runs
        with pytest.raises(UnstorableError, match="every step is a kernel"):
            contents_of(executable)
    with compile_plan(graph, plan_by_hand(graph), delegate="null") as executable, pytest.raises(UnstorableError):
        contents_of(executable)


def test_addresses_that_no_kernel_declares_are_refused(graph: Graph, plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    from hetsched_kernels.compilation import Kernel

    monkeypatch.setattr(Kernel, "address_arguments", ())
    assert any(op.type == "FusedElementwise" for op in graph.ops)
    with compile_plan(graph, plan_by_hand(graph)) as executable, pytest.raises(UnstorableError, match="holds addresses"):
        contents_of(executable)


@pytest.mark.parametrize("damage", ["flip in the manifest", "flip in the weights", "cut", "empty", "other format", "longer"])
def test_a_damaged_file_is_never_used(
    graph: Graph, plan_by_hand: HandPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path / "cache")
    with compile_plan(graph, plan_by_hand(graph)) as executable:
        contents = contents_of(executable)
    cache.store("k", contents._replace(manifest={**contents.manifest, "files": []}))
    (entry,) = cache.folder().iterdir()
    assert cache.find("k") is not None
    data = bytearray(entry.read_bytes())
    if damage == "flip in the manifest":
        data[100] ^= 1
    elif damage == "flip in the weights":
        data[-5000] ^= 64
    elif damage == "other format":
        data[0] ^= 1
    entry.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "longer": data + b"x"}.get(damage, bytes(data)))
    assert cache.find("k") is None
    assert not entry.exists()


def test_an_entry_lives_as_long_as_its_files_are_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path / "cache")
    model = tmp_path / "model"
    model.write_bytes(b"1234")
    assert cache.identities([model], model.stat().st_ctime_ns) is None  # it may have changed after it was read
    known = cache.identities([model], model.stat().st_ctime_ns + 10**9)
    cache.store("k", files.Contents({"files": known}, {}))
    assert cache.find("k") is not None
    os.utime(model, ns=(model.stat().st_atime_ns, model.stat().st_mtime_ns))  # only the time of change differs
    assert cache.find("k") is None
    assert cache.identities([tmp_path], 1 << 62) is None
    assert cache.identities([tmp_path / "absent"], 1 << 62) is None


def test_the_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(cache, "LIMIT_BYTES", 100_000)
    for number in range(5):
        cache.store(str(number), files.Contents({"files": []}, {"data": np.zeros(30_000, np.uint8)}))
        os.utime(cache.folder() / f"{number}.executable", ns=(number, number))
        assert cache.find("1") is not None or number != 1  # used last, kept longest
    assert sum(p.stat().st_size for p in cache.folder().iterdir()) <= 100_000
    assert cache.find("1") is not None
    assert cache.find("0") is None
    cache.store("huge", files.Contents({"files": []}, {"data": np.zeros(60_000, np.uint8)}))
    assert cache.find("huge") is None


def test_where_executables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/numba")
    assert folder() == Path("/numba/hetsched_executables")
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert folder() == Path("/caches/hetsched/executables")


def test_the_key_says_what_an_executable_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tmp_path / "plan.json"
    keys = {cache.key_of(b"a", plan, 0), cache.key_of(b"b", plan, 0), cache.key_of(b"a", plan, 1), cache.key_of(b"a", tmp_path / "p", 0)}
    monkeypatch.setenv("NUMBA_CPU_NAME", "nehalem")
    keys.add(cache.key_of(b"a", plan, 0))
    assert len(keys) == 5
    assert cache.key_of(b"a", plan, 0) == cache.key_of(b"a", plan, 0)
