"""Programs: what they run, with one thread and with several, and how they are stopped."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from hetsched_kernels import codes
from hetsched_kernels.cast import cast
from hetsched_kernels.elementwise import unary_f32
from hetsched_kernels.nhwc import from_nhwc
from hetsched_kernels.program import Call, addresses, compile_program, counters, run_program, serve, slots_of
from hetsched_kernels.tables import MAIL, MAIL_THREADS, MAILS, mailbox

NOT_WANTED = np.zeros(0, np.int64)


def increments(rounds: int, parts: int) -> tuple[Any, Any]:
    """Steps that compute x = exp(log(x)) by parts, ``rounds`` times, and x."""
    x = np.linspace(1, 2, 64 * parts).astype(np.float32)
    steps = []
    for _ in range(rounds):
        for code in (codes.UNARY["Neg"], codes.UNARY["Abs"]):
            cuts = [x[64 * i : 64 * (i + 1)] for i in range(parts)]
            steps.append([Call(unary_f32, (), (cut, cut, code, 0.0, 0.0)) for cut in cuts])
    return steps, x


def test_arguments_of_every_kind_arrive() -> None:
    """Arrays, integers, floats and booleans; arrays of booleans too."""
    x, clipped = np.array([-2, 0.5, 3], np.float32), np.zeros(3, np.float32)
    planes, order = np.arange(6, dtype=np.uint8), np.zeros(6, np.uint8)
    truth, numbers = np.array([True, False]), np.zeros(2, np.float32)
    program = compile_program([
        [Call(unary_f32, (), (x, clipped, codes.UNARY["Clip"], -0.25, 0.75))],
        [Call(from_nhwc, (), (planes, order, 1, 2, 3, True)), Call(cast, ("bool", "float32"), (truth, numbers))],
    ])  # fmt: skip
    stamps = np.zeros(2, np.int64)
    run_program(program.table, program.steps, counters(2), np.zeros(1, np.int64), stamps, 0, 2, 1, 0)
    assert clipped.tolist() == [-0.25, 0.5, 0.75]
    assert order.tolist() == [128, 130, 132, 129, 131, 133]
    assert numbers.tolist() == [1.0, 0.0]
    assert 0 < stamps[0] <= stamps[1]


def test_threads_share_the_calls_of_each_step_and_keep_their_order() -> None:
    """Two threads, many turns: a call run twice or a step begun too early would leave a negative number."""
    steps, x = increments(20, 6)
    expected = x.copy()
    program, shared, stop = compile_program(steps), counters(len(steps)), np.zeros(1, np.int64)

    def turns() -> None:
        for turn in range(30):
            run_program(program.table, program.steps, shared, stop, NOT_WANTED, 0, len(steps), 2, turn)

    other = threading.Thread(target=turns)
    other.start()
    turns()
    other.join(60)
    assert not other.is_alive()
    np.testing.assert_array_equal(x, expected)
    assert shared.max() == 30 * 6


def test_one_of_two_threads_is_enough() -> None:
    steps, x = increments(2, 3)
    program = compile_program(steps[:3])
    run_program(program.table, program.steps, counters(3), np.zeros(1, np.int64), NOT_WANTED, 0, 3, 2, 0)
    assert (x < 0).all()


def test_a_stopped_program_leaves_its_calls_out() -> None:
    steps, x = increments(1, 2)
    program = compile_program(steps[:1])
    for threads in (1, 2):
        run_program(program.table, program.steps, counters(1), np.ones(1, np.int64), NOT_WANTED, 0, 1, threads, 0)
        assert (x > 0).all()


def test_a_thread_that_serves_takes_the_newest_run_and_only_if_it_is_wanted() -> None:
    steps, x = increments(1, 2)
    program, shared, stop = compile_program(steps[:1]), counters(1), np.zeros(1, np.int64)
    mail, own, (thunk,) = mailbox(), np.zeros(MAIL, np.int64), addresses([Call(run_program, (), ())])
    for number in range(1, 3 * MAILS + 1):
        slots = slots_of(Call(run_program, (), (program.table, program.steps, shared, stop, NOT_WANTED, 0, 1, 2, 0)))
        if number < 3 * MAILS:
            slots[:10] = 0  # nobody may look at these
        mail[(1 + number % MAILS) * MAIL :][1 : 1 + slots.size] = slots
        mail[0] = number
    serve(mail, own, thunk, own[1:].ctypes.data, 2, 10)
    assert (own[0], own[MAIL_THREADS], shared.max()) == (3 * MAILS, 2, 0)
    own[0] = 0
    serve(mail, own, thunk, own[1:].ctypes.data, 1, 10)
    assert (x < 0).all()
    own[0] = 0
    serve(mail, own, thunk, own[1:].ctypes.data, 1, 10)
    assert (x < 0).all()
    assert shared.max() == 2
