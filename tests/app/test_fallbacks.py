"""Faults in every delegate, and what the user's policy does about them: one table of delegates and of faults."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import hetsched
from hetsched.app.planned import Planned
from hetsched.app.running import Ran
from hetsched.cli.commands import app
from hetsched.errors import DelegateError, ExecutionError, HetschedError, OptionError, PlanError, UnsupportedModelError
from hetsched.lowering import mil, tflite
from hetsched.runtime import executable
from hetsched.runtime.delegates import coreml, load_delegate, neuropilot, null, openvino, ort, qnn, qnn_context
from hetsched.runtime.delegates.programs import ProgramSegment
from hetsched.runtime.delegates.wgpu import device
from hetsched.runtime.delegates.wgpu.segment import WgpuSegment
from hetsched.runtime.failures import NotFiniteError

Around = Callable[[Callable[..., Any]], Callable[..., Any]]
Patch = pytest.MonkeyPatch
PHONE = "snapdragon-8-gen-3"
DELEGATES = ("numba", "ort", "openvino", "qnn", "wgpu", "coreml", "neuropilot", "null")
MODEL = "g (float[2,8] x) => (float[2,4] y) { a = Relu(x) m = MatMul(a, w) y = Softmax(m) }"
X = {"x": np.random.default_rng(3).standard_normal((2, 8)).astype(np.float32)}
W = np.random.default_rng(4).standard_normal((8, 4)).astype(np.float32)


def expected(x: Any) -> Any:
    m = np.maximum(x, 0) @ W
    e = np.exp(m - m.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{MODEL}')
    made.graph.initializer.append(numpy_helper.from_array(W, "w"))
    for node in made.graph.node:
        node.name = f"node_{node.output[0]}"
    path = tmp_path_factory.mktemp("faults") / "model.onnx"
    onnx.save(made, path)
    return path


def planned_for(model: Path, soc: str, **options: Any) -> Planned:
    """The product on the NPU, everything else on the CPU."""
    forced = {"node_a": "cpu", "node_m": "npu", "node_y": "cpu"}
    planned: Planned = hetsched.plan(model, soc, forced=forced, precision="float", simulated=False, solver="rules", **options)
    return planned


@pytest.fixture(scope="module")
def planned(model: Path) -> Planned:
    made = planned_for(model, PHONE)
    assert [s.queue.partition(":")[0] for s in made.plan.segments] == ["cpu", "npu", "cpu"]
    return made


@pytest.fixture(autouse=True)
def quick(monkeypatch: Patch, tmp_path: Path) -> Iterator[threading.Event]:
    """What is stuck is not waited for, contexts are a test's own, and nothing stays stuck."""
    monkeypatch.setattr(executable, "_DRAIN_S", 0.05)
    monkeypatch.setattr(qnn_context, "folder_for", lambda target: tmp_path / "contexts" / target.soc_model)
    release = threading.Event()
    yield release
    release.set()


def present(name: str) -> None:
    if not load_delegate(name).probe().available:
        pytest.skip(f"{name} cannot run here")


def run(planned: Planned, name: str, fallback: str, **options: Any) -> Ran:
    """The NPU's segment by one delegate, the CPU's by another."""
    chosen = {"cpu": "ort" if name == "numba" else "numba", "npu": name}
    return hetsched.run(planned, inputs=X, delegate=chosen, fallback=fallback, repeat=3, **options)


class Proxy:
    """An object of a runtime, one of whose methods is replaced."""

    def __init__(self, inner: Any, name: str, around: Around) -> None:
        self._inner = inner
        setattr(self, name, around(getattr(inner, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def in_submit(name: str, monkeypatch: Patch, around: Around) -> None:
    """Put something around the call of a delegate's runtime that does the work."""
    if name == "numba":
        monkeypatch.setattr(ProgramSegment, "run", around(ProgramSegment.run))
    elif name == "null":
        monkeypatch.setattr(null, "_sleep_until", around(null._sleep_until))
    elif name in ("ort", "qnn"):
        module: Any = {"ort": ort, "qnn": qnn}[name]
        bound = module.bound_segment
        monkeypatch.setattr(
            module, "bound_segment", lambda job, said, s, *rest: bound(job, said, Proxy(s, "run_with_iobinding", around), *rest)
        )
    elif name == "openvino":
        request = openvino._request
        monkeypatch.setattr(openvino, "_request", lambda *a: Proxy(request(*a), "start_async", around))
    elif name == "wgpu":
        monkeypatch.setattr(WgpuSegment, "submit", around(WgpuSegment.submit))
    else:
        copied: Any = {"coreml": coreml, "neuropilot": neuropilot}[name]
        opened = copied.opened
        monkeypatch.setattr(copied, "opened", lambda *a: around(opened(*a)))


def failing(n: int) -> Around:
    """Fails at the ``n``-th call."""

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        calls = iter(range(1, 1_000_000))

        def called(*args: Any, **named: Any) -> Any:
            if next(calls) == n:
                raise RuntimeError("the device was lost")
            return function(*args, **named)

        return called

    return around


def stuck(release: threading.Event, n: int) -> Around:
    """Does not return from the ``n``-th call before it is released."""

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        calls = iter(range(1, 1_000_000))

        def called(*args: Any, **named: Any) -> Any:
            if next(calls) == n:
                release.wait(20)
                raise RuntimeError("released")
            return function(*args, **named)

        return called

    return around


def check_fallback(ran: Ran, name: str, reason: str) -> None:
    """It gave the right numbers without the delegate, and says so everywhere."""
    np.testing.assert_allclose(ran.outputs["y"], expected(X["x"]), rtol=1e-4, atol=1e-5)
    summary = ran.summary()
    (said,) = summary["fallbacks"]
    assert summary["fallback"] == "cpu" and said["segment"] == 1 and said["queue"] == "npu" and said["from"] == name
    assert reason in said["reason"] and said["to"].split()[0] == ("ort" if name == "numba" else "numba")
    assert summary["delegates"]["npu"] == [said["to"].split()[0]]
    (instant,) = (i for i in ran.trace.instants if i.kind == "fallback")
    assert instant.name == "npu" and reason in instant.detail
    assert any(note.startswith("fallback (cpu): segment 1 on npu went from") for note in ran.trace.notes)
    assert any(note.startswith("fallback (cpu): segment 1 on npu went from") for note in ran.notes)


def both_policies(planned: Planned, name: str, reason: str, error: type[HetschedError], **options: Any) -> None:
    """Without a policy it is an error that names the segment; with one it runs."""
    with pytest.raises(error) as caught:
        run(planned, name, "none", **options)
    assert reason in str(caught.value) and (caught.value.segments, caught.value.delegate) == ((1,), name)
    check_fallback(run(planned, name, "cpu", **options), name, reason)


# -- the table -----------------------------------------------------------------------------------------------------------------------

#: Delegates whose runtime is a package of its own: the module that is missing, and how the delegate looks for its version.
PACKAGES = {
    "ort": "onnxruntime", "openvino": "openvino", "qnn": "onnxruntime_qnn", "wgpu": "wgpu", "coreml": "coremltools",
    "neuropilot": "ai-edge-litert",
}  # fmt: skip


@pytest.mark.parametrize("name", PACKAGES)
def test_the_library_is_absent(name: str, planned: Planned, monkeypatch: Patch) -> None:
    def gone(package: str) -> str:
        raise PackageNotFoundError(package)

    if name in ("coreml", "neuropilot"):
        monkeypatch.setattr({"coreml": coreml, "neuropilot": neuropilot}[name], "version", gone)
    else:
        monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    device.find_adapter.cache_clear()
    try:
        both_policies(planned, name, "is not installed: install hetsched[", PlanError)
    finally:
        device.find_adapter.cache_clear()


@pytest.mark.parametrize("name", [n for n in DELEGATES if n != "null"])
def test_an_op_is_refused(name: str, planned: Planned, monkeypatch: Patch) -> None:
    present(name)
    cls: Any = type(load_delegate(name))
    plain = cls.supports

    def supports(self: Any, op: Any, graph: Any, precision: str) -> str | None:
        return "not on this device" if op.type == "MatMul" else plain(self, op, graph, precision)

    monkeypatch.setattr(cls, "supports", supports)
    both_policies(planned, name, "node_m", UnsupportedModelError)


def damaged(name: str, monkeypatch: Patch) -> None:
    """What a delegate writes for its runtime is cut short."""
    if name == "coreml":

        def package(*args: Any, **named: Any) -> None:
            mil.mil_package(*args, **named)
            for path in Path(args[3]).rglob("*.mlmodel"):
                path.write_bytes(path.read_bytes()[:-40])

        monkeypatch.setattr(coreml, "mil_package", package)
    elif name == "neuropilot":
        monkeypatch.setattr(neuropilot, "tflite_model", lambda *a: tflite.tflite_model(*a)[:16])
    elif name == "wgpu":
        plain = device.Gpu.pipeline
        monkeypatch.setattr(device.Gpu, "pipeline", lambda self, source, writable: plain(self, source[:100], writable))
    else:
        module: Any = {"ort": ort, "openvino": openvino, "qnn": qnn}[name]
        monkeypatch.setattr(module, "onnx_model", lambda *a, **k: b"\x08\x0a\x3a\xff\xff")


@pytest.mark.parametrize("name", ["ort", "openvino", "qnn", "wgpu", "coreml", "neuropilot"])
def test_an_artefact_is_damaged(name: str, planned: Planned, monkeypatch: Patch) -> None:
    present(name)
    damaged(name, monkeypatch)
    with pytest.raises(HetschedError) as caught:
        run(planned, name, "none")
    assert caught.value.exit_code == 2 and (caught.value.segments, caught.value.delegate) == ((1,), name)
    check_fallback(run(planned, name, "cpu"), name, "")


def test_a_damaged_context_is_compiled_again(planned: Planned, tmp_path: Path) -> None:
    """It is a copy of what can be made again: no fallback."""
    present("qnn")
    run(planned, "qnn", "none")
    (context,) = (tmp_path / "contexts").rglob("*.onnx")
    context.write_bytes(context.read_bytes()[:-20])
    ran = run(planned, "qnn", "cpu")
    assert ran.summary()["fallbacks"] == [] and ran.summary()["delegates"]["npu"] == ["qnn"]


def test_the_wrong_soc(model: Path) -> None:
    """The other delegates compile for this machine whatever the plan's SoC is; qnn compiles for a chip."""
    present("qnn")
    both_policies(planned_for(model, "dimensity-9300"), "qnn", "cannot compile for dimensity-9300", DelegateError)


@pytest.mark.parametrize(("name", "n"), [*((name, 2) for name in DELEGATES), ("null", 1), ("null", 4)])
def test_the_nth_submission_fails(name: str, n: int, planned: Planned, monkeypatch: Patch) -> None:
    present(name)
    in_submit(name, monkeypatch, failing(n))
    with pytest.raises(ExecutionError) as caught:
        run(planned, name, "none")
    assert "the device was lost" in str(caught.value) and (caught.value.segments, caught.value.delegate) == ((1,), name)
    assert caught.value.exit_code == 1
    monkeypatch.undo()
    in_submit(name, monkeypatch, failing(n))
    check_fallback(run(planned, name, "cpu"), name, "the device was lost")


@pytest.mark.parametrize("name", DELEGATES)
def test_a_submission_does_not_end(name: str, planned: Planned, monkeypatch: Patch, quick: threading.Event) -> None:
    present(name)
    in_submit(name, monkeypatch, stuck(quick, 2))
    ran = run(planned, name, "cpu", timeout_s=0.5)
    check_fallback(ran, name, "time limit")


@pytest.mark.parametrize("name", ["coreml", "wgpu"])  # the emulator of the HTP saturates
def test_a_segment_overflows(name: str, planned: Planned) -> None:
    """Inputs whose product is beyond float16 and within float32."""
    present(name)
    large = {"x": np.full((2, 8), 3e4, np.float32)}
    chosen = {"cpu": "numba", "npu": name}
    options: dict[str, Any] = {"inputs": large, "delegate": chosen, "repeat": 1}
    if load_delegate(name).supports(planned.graph.ops[1], planned.graph, "f16") is not None:
        pytest.skip(f"{name} has no float16 here")
    with pytest.raises(NotFiniteError, match=r"segment 1 on npu wrote infinities .* in f16 and from finite inputs: use --fallback cpu"):
        hetsched.run(planned, fallback="none", **options)
    ran = hetsched.run(planned, fallback="cpu", **options)
    np.testing.assert_allclose(ran.outputs["y"], expected(large["x"]), rtol=1e-4)
    assert ran.summary()["fallbacks"][0]["to"] == "numba in f32"


def test_the_next_best_plan_does_without_the_processor(planned: Planned, monkeypatch: Patch) -> None:
    in_submit("null", monkeypatch, failing(2))
    ran = hetsched.run(planned, inputs=X, delegate={"cpu": "numba", "gpu": "ort", "npu": "null"}, fallback="next-best", repeat=2)
    np.testing.assert_allclose(ran.outputs["y"], expected(X["x"]), rtol=1e-4, atol=1e-5)
    (said,) = ran.summary()["fallbacks"]
    assert said["from"] == "null" and said["to"] == "a plan without the npu" and "the device was lost" in said["reason"]
    assert {s.queue.partition(":")[0] for s in ran.planned.plan.segments} <= {"cpu", "gpu"}
    assert [i.name for i in ran.trace.instants if i.kind == "fallback"] == ["npu"]


def test_the_policies_come_to_an_end(planned: Planned, monkeypatch: Patch) -> None:
    """Every CPU delegate fails, or every processor: the last error says what was tried."""
    for name in ("numba", "ort", "openvino"):
        cls: Any = type(load_delegate(name))
        monkeypatch.setattr(cls, "supports", lambda self, op, graph, precision: "not today")
    with pytest.raises(UnsupportedModelError, match=r"--fallback cpu found no CPU delegate for node .*: \w+ says that not today"):
        run(planned, "ort", "cpu")
    with pytest.raises(HetschedError, match=r"--fallback next-best found no plan without the"):
        hetsched.run(planned, inputs=X, delegate={"cpu": "numba", "gpu": "ort", "npu": "ort"}, fallback="next-best")
    with pytest.raises(PlanError, match=r"to a plan without the cpu and the npu: .*; then: .*say who stands in"):
        run(planned, "ort", "next-best")


def test_the_exit_code(model: Path, planned: Planned, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]) -> None:
    """0: done, with a fallback that the user allowed; else what the error says."""
    path = planned.save(tmp_path / "plan.json")
    np.savez(tmp_path / "x.npz", **X)  # type: ignore[arg-type]
    command = ["run", str(path), "--delegate", "cpu=numba", "--delegate", "npu=null", "--input", str(tmp_path / "x.npz"), "--json"]
    in_submit("null", monkeypatch, failing(2))
    with pytest.raises(ExecutionError) as caught:
        app(args=command, standalone_mode=False)
    assert caught.value.exit_code == 1
    monkeypatch.undo()
    in_submit("null", monkeypatch, failing(2))
    capsys.readouterr()
    assert not app(args=[*command, "--fallback", "cpu"], standalone_mode=False)
    summary = json.loads(capsys.readouterr().out)
    assert [f["from"] for f in summary["fallbacks"]] == ["null"] and summary["fallback"] == "cpu"
    for wrong, said in (("--fallback=gpu", "use one of none, cpu, next-best"), ("--timeout=0", "makes no sense")):
        with pytest.raises(OptionError, match=said):
            app(args=[*command, wrong], standalone_mode=False)
