"""The other threads of a queue of several cores: they run a compiled program together with the queue's worker."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from hetsched.runtime.affinity import pin_to, usable
from hetsched.runtime.code import Code, compiled

#: Where the number of threads is in the arguments of a run.
_THREADS = 7


class Team:
    """Threads for all but the first core of a queue; none for a queue of one core.

    They wait by spinning for a moment and then by blocking, and end with :meth:`close`.
    """

    def __init__(self, queue: str, spins: int, code: Code | None = None) -> None:
        code = code or compiled()
        self._cores = usable(queue)
        self.threads = max(len(self._cores), 1)
        self._spins = spins
        self._run, self._wait, self._signal = code.run_program, code.wait_ge, code.signal
        self._flag = np.zeros(1, np.int64)
        self._task: tuple[int, tuple[Any, ...]] = (0, ())
        self._changed = threading.Condition()
        self._blocked = 0
        self._closed = False
        self._others: tuple[threading.Thread, ...] = ()

    def run(self, table: Any, steps: Any, shared: Any, stop: Any, stamps: Any, begin: int, end: int, turn: int, threads: int = 0) -> None:
        """Run steps of a program on the first ``threads`` threads (0: all); see :data:`hetsched_kernels.program.run_program`.

        A run on one thread is no turn of a program that others run on several.
        """
        threads = threads or self.threads
        if threads > 1:
            if not self._others:
                self._start()
            number = int(self._flag[0]) + 1
            self._task = (number, (table, steps, shared, stop, stamps, begin, end, threads, turn))
            self._signal(self._flag, 0, number)
            if self._blocked:
                with self._changed:
                    self._changed.notify_all()
        self._run(table, steps, shared, stop, stamps, begin, end, threads, turn)

    def close(self) -> None:
        """End the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _start(self) -> None:
        pin_to(self._cores[:1])
        names = [f"hetsched core {c}" for c in self._cores[1:]]
        cores = self._cores[1:]
        self._others = tuple(
            threading.Thread(target=self._serve, args=(c, i), name=n, daemon=True)
            for i, (c, n) in enumerate(zip(cores, names, strict=True), 1)
        )
        for thread in self._others:
            thread.start()

    def _serve(self, core: int, place: int) -> None:
        pin_to((core,))
        done = 0
        while not self._closed:
            if not self._wait(self._flag, 0, done + 1, self._spins):
                with self._changed:
                    self._blocked += 1
                    # The flag is looked at after counting in, and the leader looks at the count after setting it.
                    while self._flag[0] <= done and not self._closed:
                        self._changed.wait(0.1)
                    self._blocked -= 1
            if not self._closed:
                done, arguments = self._task
                if place < arguments[_THREADS]:
                    self._run(*arguments)
