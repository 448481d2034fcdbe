"""ONNX Runtime over the arena: what is copied and what is not, threads, and runs that fail or are given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ExecutionError
from hetsched.graph import Graph
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan

pytest.importorskip("onnxruntime")
HandPlan = Callable[..., Plan]
X = np.linspace(-2, 2, 8, dtype=np.float32)


def segment_of(executable: Any, queue: int = 0) -> Any:
    return executable.workers[queue].jobs[0].compiled


def test_nothing_is_copied(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Exp", "Neg")
    with compile_plan(graph, plan_by_hand(graph, delegate="ort")) as executable:
        result = executable.run({"x": X})
        assert segment_of(executable).moved == () and result.copied_bytes == 0
        assert [o.name for o in segment_of(executable).session.get_outputs()] == ["t2"]
    np.testing.assert_allclose(result.outputs["t2"], -np.exp(np.maximum(X, 0)), rtol=1e-6)


def over_the_input(graph: Graph, plan: Plan) -> Plan:
    """The last result in the bytes of the input."""
    first, last = graph.inputs[0], graph.outputs[0]
    at = next(b.offset for b in plan.buffers if b.tensor == first)
    moved = tuple(b.model_copy(update={"offset": at}) if b.tensor == last else b for b in plan.buffers)
    return plan.model_copy(update={"buffers": moved})


def test_an_output_over_an_input_is_written_beside_it(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Exp", "Neg")
    with compile_plan(graph, over_the_input(graph, plan_by_hand(graph, delegate="ort"))) as executable:
        result = executable.run({"x": X}, repeat=2)
        assert len(segment_of(executable).moved) == 1
    np.testing.assert_allclose(result.outputs["t2"], -np.exp(np.maximum(X, 0)), rtol=1e-6)
    assert result.copied_bytes == X.nbytes
    assert result.trace.counters["memory/copied by cpu:0"].values == [X.nbytes, X.nbytes]


def test_an_observer_sees_every_op(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Exp", "Neg")
    with compile_plan(graph, plan_by_hand(graph, delegate="ort")) as executable:
        observed = executable.run({"x": X}, observe=True).observed
    assert list(observed) == ["t0", "t1", "t2"]
    np.testing.assert_allclose(observed["t1"], np.exp(np.maximum(X, 0)), rtol=1e-6)


class Failing:
    """A session that fails at its ``n``-th run, and waits in it for ``seconds``."""

    def __init__(self, session: Any, n: int, error: Exception | None = None, seconds: float = 0.0) -> None:
        self.session, self.n, self.error, self.seconds, self.runs = session, n, error, seconds, 0

    def run_with_iobinding(self, binding: Any, options: Any) -> None:
        self.runs += 1
        until = time.monotonic() + self.seconds
        while self.runs == self.n and time.monotonic() < until and not options.terminate:
            time.sleep(0.01)
        if self.runs == self.n and (self.error or options.terminate):
            raise self.error or RuntimeError("Exiting due to terminate flag being set to true.")
        self.session.run_with_iobinding(binding, options)


def test_the_nth_run_fails_and_the_next_one_is_right(chain: Any, plan_by_hand: HandPlan, alternate: Any) -> None:
    graph = chain("Relu", "Exp", "Neg")
    with compile_plan(graph, plan_by_hand(graph, alternate, delegate="ort")) as executable:
        compiled = segment_of(executable, 1)
        compiled.session = Failing(compiled.session, 3, RuntimeError("the device is gone\nstack"))
        with pytest.raises(ExecutionError, match=r"ONNX Runtime failed in op1 \(nodes '/user/node_1', …\): the device is gone$"):
            executable.run({"x": X}, repeat=4)
        assert compiled.session.runs == 3
        assert np.isfinite(executable.run({"x": X}).outputs["t2"]).all()


def test_a_run_that_takes_too_long_is_stopped_in_the_runtime(chain: Any, plan_by_hand: HandPlan) -> None:
    graph = chain("Relu", "Exp", "Neg")
    with compile_plan(graph, plan_by_hand(graph, delegate="ort")) as executable:
        compiled = segment_of(executable)
        compiled.session = Failing(compiled.session, 1, seconds=30.0)
        with pytest.raises(ExecutionError, match="longer than its time limit"):
            executable.run({"x": X}, timeout_s=0.3)
        assert np.isfinite(executable.run({"x": X}).outputs["t2"]).all()


def test_threads_are_those_of_the_queue(chain: Any, plan_by_hand: HandPlan) -> None:
    import os

    cores = sorted(os.sched_getaffinity(0))
    graph = chain("Relu")
    queue = "cpu:" + ",".join(str(c) for c in cores[:2])
    with compile_plan(graph, plan_by_hand(graph, lambda i: queue, delegate="ort")) as executable:
        options = segment_of(executable).session.get_session_options()
        assert options.intra_op_num_threads == len(cores[:2])
        np.testing.assert_array_equal(executable.run({"x": X}).outputs["t0"], np.maximum(X, 0))


def test_a_completion_is_waited_for_until_there_is_no_reason_to() -> None:
    from hetsched.runtime.fences import Completion

    def give_up() -> None:
        raise ExecutionError("the run was given up")

    done, failed, pending = Completion(), Completion(), Completion()
    done.done()
    failed.done(ExecutionError("lost"))
    done.wait(give_up)
    with pytest.raises(ExecutionError, match="lost"):
        failed.wait(give_up)
    failed.settle(give_up)
    with pytest.raises(ExecutionError, match="given up"):
        pending.wait(give_up)
    threading.Timer(0.05, pending.done).start()
    pending.wait(lambda: None)
    assert pending.ended
