"""A queue of two cores computes what a queue of one does, and can be given up."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ExecutionError
from hetsched.frontends import load
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime import make_inputs
from hetsched.runtime.affinity import allowed, cores_of
from hetsched.runtime.code import compiled
from hetsched.runtime.team import Team
from hetsched_kernels import codes
from hetsched_kernels.binary import binary_int
from hetsched_kernels.movement import fill
from hetsched_kernels.program import Call, compile_program, counters


@pytest.fixture
def graph(tmp_path: Path) -> Any:
    """A convolution, a function, a product and a layer normalisation, each large enough to be split."""
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"w": (24, 3, 3, 3), "m": (32, 48), "s": (48,)}
    values = [numpy_helper.from_array((rng.standard_normal(shape) * 0.2).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "m"], ["c"]),
        helper.make_node("LayerNormalization", ["c", "s"], ["y"]),
    ]
    x, y = helper.make_tensor_value_info("x", 1, [1, 3, 32, 32]), helper.make_tensor_value_info("y", 1, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], values), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    return standard(load(tmp_path / "m.onnx"))


def two_cores() -> str:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0, 1]
    return f"cpu:{cores[0]},{cores[-1]}" if len(cores) > 1 else "cpu:0,1"


def test_two_cores_compute_what_one_does(graph: Any, plan_by_hand: Callable[..., Plan]) -> None:
    feeds = make_inputs(graph, 0)
    with compile_plan(graph, plan_by_hand(graph)) as one, compile_plan(graph, plan_by_hand(graph, lambda i: two_cores())) as two:
        expected = one.run(feeds).outputs["y"]
        for _ in range(5):
            result = two.run(feeds, repeat=10)
            np.testing.assert_array_equal(result.outputs["y"], expected)
        observed = two.run(feeds, observe=True)
    np.testing.assert_array_equal(observed.outputs["y"], expected)
    assert {s.name for s in result.trace.spans if s.kind == "op"} == {op.name for op in graph.ops}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one core, or no pinning")
def test_threads_move_to_other_cores_between_runs() -> None:
    """The first threads, the leader among them, are where they are told; the others are not lost."""
    old = threading.enumerate()
    team, steps = Team(two_cores(), 16), compile_program([[Call(fill, ("uint64",), (np.zeros(8, np.uint64), np.ones(1, np.uint64)))]])
    shared, stop, stamps = counters(1), np.zeros(1, np.int64), np.zeros(0, np.int64)
    first, last = cores_of(two_cores())
    try:
        for turn, to in ((0, (first, last)), (1, (last,)), (1, (last, first)), (2, (first, last))):
            team.move(to)
            team.run(steps.table, steps.steps, shared, stop, stamps, 0, 1, turn, len(to))
            assert os.sched_getaffinity(0) == {to[0]}
            new = [t.native_id for t in threading.enumerate() if t not in old]
            assert [os.sched_getaffinity(i) for i in new if i is not None] == [{first if to[0] == last else last}]
    finally:
        team.close()
    assert os.sched_getaffinity(0) == allowed()


def test_a_run_that_is_out_of_time_stops_and_can_be_repeated(graph: Any, plan_by_hand: Callable[..., Plan]) -> None:
    feeds, others = make_inputs(graph, 0), make_inputs(graph, 1)
    with compile_plan(graph, plan_by_hand(graph, lambda i: two_cores())) as executable:
        expected = executable.run(feeds).outputs["y"]
        for _ in range(3):
            with pytest.raises(ExecutionError, match="time limit"):
                executable.run(others, repeat=1_000_000, timeout_s=0.05)
            np.testing.assert_array_equal(executable.run(feeds).outputs["y"], expected)


def test_where_threads_cannot_be_pinned_all_cores_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert allowed.__wrapped__() == frozenset(range(os.cpu_count() or 1))


def test_what_is_closed_does_not_wait_for_threads_that_have_ended() -> None:
    out, team = np.zeros(64, np.uint64), Team(two_cores(), 1)
    program, shared, stop = compile_program([[Call(fill, ("uint64",), (out, np.ones(1, np.uint64)))]]), counters(1), np.zeros(1, np.int64)
    team.run(program.table, program.steps, shared, stop, np.zeros(0, np.int64), 0, 1, 0)
    assert (out == 1).all()
    team.close()
    team.close()
    with pytest.raises(ExecutionError, match="computes no more"):
        team.run(program.table, program.steps, shared, stop, np.zeros(0, np.int64), 0, 1, 1)


NO_STAMPS = np.zeros(0, np.int64)
two_needed = pytest.mark.skipif(len(allowed()) < 2, reason="one core")


def mixing() -> tuple[Any, Any]:
    """A program whose result tells of a call that was left out, made twice or made too early; and its memory, int64 [2, 4, 8]."""
    x, one, shape = np.arange(64, dtype=np.int64), np.ones(1, np.int64), np.array([8], np.int64)
    a, b, three = np.split(x[:32], 4), np.split(x[32:], 4), np.full(8, 3, np.int64)
    times = [Call(binary_int, ("int64",), (a[i], three, b[i], codes.MUL, shape, one, one)) for i in range(4)]
    plus = [Call(binary_int, ("int64",), (b[i], b[(i + 1) % 4], a[i], codes.ADD, shape, one, one)) for i in range(4)]
    return compile_program([times, plus, times[:1], plus[:3]]), x


def expected_after(turns: int) -> Any:
    program, x = mixing()
    for _ in range(turns):
        Team("cpu", 1).run(program.table, program.steps, counters(4), np.zeros(1, np.int64), NO_STAMPS, 0, 4, 0)
    return x


class Mixed:
    """The program on a team."""

    def __init__(self, team: Team) -> None:
        (self.program, self.x), self.team, self.turn = mixing(), team, 0
        self.shared, self.stop = counters(4), np.zeros(1, np.int64)

    def run(self, threads: int = 2) -> None:
        turn, self.turn = self.turn, self.turn + (threads > 1)
        self.team.run(self.program.table, self.program.steps, self.shared, self.stop, NO_STAMPS, 0, 4, turn, threads)


@two_needed
def test_thousands_of_short_runs_lose_and_repeat_nothing() -> None:
    """Two teams, two programs each; the other thread spins, blocks, skips runs and is overtaken by more runs than the ring holds."""
    rng, teams = random.Random(0), (Team(two_cores(), 20), Team(two_cores(), 5000))
    mixed = [Mixed(team) for team in teams for _ in range(2)]
    done = [0] * 4
    try:
        for _ in range(4000):
            which = rng.randrange(4)
            mixed[which].run(rng.choice((1, 2, 2, 2)))
            done[which] += 1
            if rng.random() < 0.01:
                time.sleep(rng.choice((0, 1e-4, 1e-3)))
    finally:
        for team in teams:
            team.close()
    for m, turns in zip(mixed, done, strict=True):
        np.testing.assert_array_equal(m.x, expected_after(turns))


@two_needed
def test_the_portable_path_loses_and_repeats_nothing() -> None:
    """The same runs as numba compiles them for a processor of which nothing is known."""
    test = f"{__file__}::test_thousands_of_short_runs_lose_and_repeat_nothing"
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test], capture_output=True, text=True, check=False,
        env={**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]


@two_needed
def test_a_thread_that_is_late_makes_no_call_again_and_finds_what_it_looks_at() -> None:
    """All runs are over before it looks; counters that were replaced meanwhile live until it has begun a later run."""
    code, begin = compiled(), threading.Event()

    def late(*args: Any) -> None:
        begin.wait()
        code.serve(*args)

    team = Team(two_cores(), 100, code._replace(serve=late))
    mixed = Mixed(team)
    try:
        for _ in range(20):
            mixed.run()
        old, mixed.shared, mixed.turn = weakref.ref(mixed.shared), counters(4), 0
        for _ in range(3):
            mixed.run()
        assert old() is not None
        begin.set()
        runs = 23
        while old() is not None and runs < 10_000:
            mixed.shared, mixed.turn, runs = counters(4), 0, runs + 1
            mixed.run()
            time.sleep(1e-3)
        assert old() is None
    finally:
        begin.set()
        team.close()
    np.testing.assert_array_equal(mixed.x, expected_after(runs))


@two_needed
@pytest.mark.parametrize("published", [False, True])
def test_an_interrupt_leaves_no_run_half_done(published: bool) -> None:
    """It comes before the other thread is told of a run, or just after."""
    code, interrupts = compiled(), [0, 1, 0, 1, 0]

    def signal(*args: Any) -> None:
        now = interrupts.pop()
        if published or not now:
            code.signal(*args)
        if now:
            raise KeyboardInterrupt

    team = Team(two_cores(), 100, code._replace(signal=signal))
    mixed = Mixed(team)
    try:
        for interrupt in (False, True, False, True, False):
            if interrupt:
                with pytest.raises(KeyboardInterrupt):
                    mixed.run()
            else:
                mixed.run()
    finally:
        team.close()
    np.testing.assert_array_equal(mixed.x, expected_after(5))


@two_needed
@pytest.mark.parametrize("spins", [1, 1 << 16])
def test_threads_end_when_what_they_belong_to_is_closed(spins: int) -> None:
    """Whether they spin, block or have just begun."""
    old = threading.enumerate()
    for runs in (1, 1, 1, 30):
        mixed = Mixed(Team(two_cores(), spins))
        for _ in range(runs):
            mixed.run()
        mixed.team.close()
        for thread in [t for t in threading.enumerate() if t not in old and t.name.startswith("hetsched core")]:
            thread.join(60)
            assert not thread.is_alive()
        np.testing.assert_array_equal(mixed.x, expected_after(runs))


@two_needed
def test_a_program_that_was_stopped_runs_whole_again() -> None:
    """A stopped run makes no call, but is a turn."""
    team = Team(two_cores(), 100)
    mixed = Mixed(team)
    try:
        for turn in range(200):
            mixed.stop[0] = turn % 2
            mixed.run()
    finally:
        team.close()
    np.testing.assert_array_equal(mixed.x, expected_after(100))
