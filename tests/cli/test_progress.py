"""Work that reports nothing still shows a person that it goes on."""

from __future__ import annotations

import time

import pytest

from hetsched.cli import progress
from hetsched.cli.progress import Bar


def test_a_bar_appears_by_itself_and_goes_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0.01)

    def start(bar: Bar) -> None:
        bar._stop, bar._update = (lambda: shown.append("stopped")), lambda stage, share: shown.append(stage)

    monkeypatch.setattr(Bar, "_start", start)
    bar = Bar("working", enabled=True)
    deadline = time.monotonic() + 10
    while not shown and time.monotonic() < deadline:
        time.sleep(0.005)
    bar.stage("measuring")
    bar.close()
    bar.stage("too late")
    assert shown == ["", "measuring", "stopped"]


def test_nothing_appears_for_work_that_is_over_or_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bar, "_start", lambda bar: pytest.fail("it appeared"))
    Bar("short", enabled=True).close()
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0.0)
    quiet = Bar("quiet", enabled=False)
    quiet.stage("x")
    quiet.close()
