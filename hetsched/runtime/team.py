"""The other threads of a queue of several cores: they run a compiled program together with the queue's worker."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from hetsched.errors import ExecutionError
from hetsched.runtime.affinity import pin_to, unpin, usable
from hetsched.runtime.code import Code, compiled
from hetsched_kernels.tables import MAIL, MAILS, mailbox

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Team:
    """Threads for all but the first core of a queue; none for a queue of one core.

    They wait by spinning for a moment and then by blocking, and end with :meth:`close`, which also lets the calling thread, pinned
    meanwhile, move again.
    """

    def __init__(self, queue: str, spins: int, code: Code | None = None) -> None:
        code = code or compiled()
        self._cores = usable(queue)
        self.threads = max(len(self._cores), 1)
        self._spins = spins
        self._code, self._enter = code, _ENTRY(code.run_thunk)
        self._mail = mailbox()
        self._number = 0
        self._runs: dict[int, _Run] = {}
        self._old: list[_Run] = []
        self._changed = threading.Condition()
        self._blocked = 0
        self._closed = self._moved = False
        self._leader = 0
        self._others: tuple[threading.Thread, ...] = ()
        self._own: tuple[Any, ...] = ()

    def run(self, table: Any, steps: Any, shared: Any, stop: Any, stamps: Any, begin: int, end: int, turn: int, threads: int = 0) -> None:
        """Run steps of a program on the first ``threads`` threads (0: all); see :data:`hetsched_kernels.program.run_program`.

        A run on one thread is no turn of a program that others run on several.

        Raises:
            ExecutionError: the team was closed.
        """
        if self._closed:
            raise ExecutionError("what was closed computes no more: open it again")
        threads = threads or self.threads
        if self._moved:
            self._pin()
        own = self._runs.get(id(table))
        if own is None or any(a is not b for a, b in zip(own.arrays, (table, steps, shared, stop, stamps), strict=True)):
            own = self._new((table, steps, shared, stop, stamps))
        own.slots[10:] = (begin, end, threads, turn)
        if threads == 1:
            self._enter(own.address)
            return
        if not self._others:
            self._start()
        try:
            self._call(own)
            self._enter(own.address)
        except BaseException:  # an interrupt: the others may be in the middle of it, and what they have done is not done again
            self._enter(own.address)
            raise

    def _new(self, arrays: tuple[Any, ...]) -> _Run:
        """A program's run with other arrays than before. The old ones are kept until all threads have begun a later run."""
        if (old := self._runs.get(id(arrays[0]))) is not None:
            self._old.append(old)
        self._old = [r for r in self._old if any(own[0] <= r.number for own in self._own)]
        self._runs[id(arrays[0])] = new = _Run(*arrays)
        return new

    def _call(self, run: _Run) -> None:
        """Let the other threads begin a run."""
        self._number += 1
        run.number = self._number
        at = (1 + self._number % MAILS) * MAIL
        self._mail[at + 1 : at + MAIL - 1] = run.slots
        self._code.signal(self._mail, 0, self._number)
        if self._blocked:
            with self._changed:
                self._changed.notify_all()

    def move(self, cores: Sequence[int]) -> None:
        """Let the first threads be on these of the team's cores from the next run on, and the other threads on the others."""
        order = (*(c for c in cores if c in self._cores), *(c for c in self._cores if c not in cores))
        self._moved = self._moved or order != self._cores
        self._cores = order

    def close(self) -> None:
        """End the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._leader:
            unpin(self._leader)

    def _pin(self) -> None:
        """The calling thread is the first; the others may wait or spin meanwhile."""
        self._moved = False
        self._leader = threading.get_native_id()
        pin_to(self._cores[:1])
        for core, thread in zip(self._cores[1:], self._others, strict=False):
            if thread.native_id is not None:
                pin_to((core,), thread.native_id)

    def _start(self) -> None:
        cores = self._cores[1:]
        self._own = tuple(np.zeros(MAIL, np.int64) for _ in cores)
        self._others = tuple(
            threading.Thread(target=self._serve, args=(own, i), name=f"hetsched core {c}", daemon=True)
            for i, (c, own) in enumerate(zip(cores, self._own, strict=True), 1)
        )
        for thread in self._others:
            thread.start()
        self._pin()

    def _serve(self, own: Any, place: int) -> None:
        """Be a thread of the team. While it spins it stays in compiled code: it never waits for the interpreter's lock then."""
        while not self._closed:
            self._code.serve(self._mail, own, self._code.run_thunk, _address(own[1:]), place, self._spins)
            with self._changed:
                self._blocked += 1
                # The mail is looked at after counting in, and the leader looks at the count after writing it.
                while self._mail[0] <= own[0] and not self._closed:
                    self._changed.wait(0.1)
                self._blocked -= 1


class _Run:
    """What a program is run with: its arrays, which late threads may still look at, and its slots; ``number`` is that of its last run."""

    def __init__(self, *arrays: Any) -> None:
        self.arrays, self.number = arrays, 0
        self.slots = np.zeros(MAIL - 2, np.int64)
        self.slots[:10] = [n for a in arrays for n in (_address(a), a.size)]
        self.address = _address(self.slots)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
