"""Progress on standard error, only for a person and only when it takes over a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOW_AFTER_S = 1.0


class Bar:
    """A bar that appears once the work has taken a second, whether or not it reports anything.

    ``stage`` names what happens, ``share`` moves it (0..1).
    """

    def __init__(self, title: str, enabled: bool) -> None:
        self._title, self._enabled, self._began = title, enabled, time.monotonic()
        self._stop: Callable[[], None] | None = None
        self._update: Callable[[str, float | None], None] = lambda stage, share: None
        self._lock, self._closed = threading.Lock(), False
        self._timer = threading.Timer(SHOW_AFTER_S, self._show, ("", None))
        self._timer.daemon = True
        if enabled:
            self._timer.start()

    def stage(self, text: str) -> None:
        """Name what is being done."""
        self._show(text, None)

    def share(self, done: float) -> None:
        """Say how much is done, 0..1."""
        self._show("", done)

    def close(self) -> None:
        """Remove the bar."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._stop:
                self._stop()

    def _show(self, text: str, share: float | None) -> None:
        if not self._enabled or time.monotonic() - self._began < SHOW_AFTER_S:
            return
        with self._lock:
            if self._closed:
                return
            if self._stop is None:
                self._start()
            self._update(text, share)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
        )  # fmt: skip
        task = bar.add_task(self._title, total=None)
        bar.start()

        def update(text: str, share: float | None) -> None:
            if text:
                bar.update(task, description=f"{self._title}: {text}")
            if share is not None:
                bar.update(task, total=1.0, completed=share)

        self._stop, self._update = bar.stop, update


@contextmanager
def progress(title: str, quiet: bool) -> Iterator[Bar]:
    """A :class:`Bar` that is removed at the end; silent with ``--json`` or when nobody watches."""
    bar = Bar(title, enabled=not quiet and sys.stderr is not None and sys.stderr.isatty())
    try:
        yield bar
    finally:
        bar.close()
