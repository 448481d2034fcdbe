"""The folder of a study: one small record a finished scenario, plans, and who is at work on what.

A record is written to a temporary name and renamed, so whatever is there is whole, whenever a process was killed. *Claims* are locks
on single bytes of one file, at the place that a key names: the system drops them with the process that holds them, so none is
ever left over.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hetsched.errors import OptionError
from hetsched.files import write_atomically
from hetsched.scenarios import Findings, Prepared

MARK = "study.json"
#: The byte that is locked by the one process that hands scenarios out; keys lock bytes after it.
_WHOLE = 0
_KEY_DIGITS = 15


@dataclass(frozen=True)
class Folder:
    """Where a study keeps what it found."""

    path: Path

    @property
    def results(self) -> Path:
        """The table of results: one row a scenario."""
        return self.path / "results.parquet"

    @property
    def curves(self) -> Path:
        """The table of curves."""
        return self.path / "curves.parquet"

    @property
    def page(self) -> Path:
        """The page."""
        return self.path / "index.html"

    def plan(self, key: str) -> Path:
        """The file of a plan."""
        return self.path / "plans" / f"{key}.json"

    def record(self, key: str) -> Path:
        """The file of a scenario's record."""
        return self.path / "records" / f"{key}.json"

    def prepare(self) -> None:
        """Make the folder and what is in it; sweep what killed processes left half-written.

        Raises:
            OptionError: there is something else, it is damaged, or it cannot be written.
        """
        if self.path.exists() and not self.path.is_dir():
            raise OptionError(f"cannot keep a study in {self.path}: it is a file; choose another place with -o")
        if self.path.is_dir() and any(self.path.iterdir()) and not (self.path / MARK).is_file():
            raise OptionError(f"cannot keep a study in {self.path}: it holds other files; choose another place with -o")
        if (self.path / MARK).is_file():
            self.about()
        try:
            for part in ("records", "plans"):
                (self.path / part).mkdir(parents=True, exist_ok=True)
            if not (self.path / MARK).is_file():
                write_atomically(self.path / MARK, b"{}\n")
        except OSError as e:
            raise OptionError(f"cannot keep a study in {self.path}: {e.strerror or e}; choose another place with -o") from e

    def sweep(self) -> None:
        """Remove what killed processes left half-written; only while nobody else is at work."""
        for part in (self.path, self.path / "records", self.path / "plans"):
            for left in part.glob(".*.part"):
                left.unlink(missing_ok=True)

    def mark(self, about: dict[str, Any]) -> None:
        """Write what the study is about; see :meth:`about`."""
        write_atomically(self.path / MARK, (json.dumps(about, indent=1, sort_keys=True) + "\n").encode())

    def about(self) -> dict[str, Any]:
        """What :meth:`mark` wrote.

        Raises:
            OptionError: the folder is not one of a study, or its mark is damaged.
        """
        mark = self.path / MARK
        if not mark.is_file():
            raise OptionError(f"{self.path} is not the folder of a study: make one with 'hetsched study STUDY -o {self.path}'")
        try:
            return dict(json.loads(mark.read_text("utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as e:
            raise OptionError(f"{mark} is damaged: write {{}} into it, and run the study again; its records are kept") from e

    def recorded(self) -> frozenset[str]:
        """Keys of the scenarios that have a record."""
        return frozenset(p.stem for p in (self.path / "records").glob("*.json"))

    def write(self, scenario: Prepared, found: Findings) -> None:
        """Record a finished scenario."""
        data = {"inputs": dict(scenario.inputs), **asdict(found)}
        write_atomically(self.record(scenario.key), json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())

    def read(self, key: str) -> Findings:
        """The record of a scenario.

        Raises:
            OptionError: it is absent or damaged.
        """
        path = self.record(key)
        try:
            found: Findings = _record().validate_json(path.read_bytes())
            if any(len(c.times_s) != len(c.values) for c in found.curves.values()):
                raise ValueError("a curve has other times than values")
            return found
        except (OSError, ValueError) as e:
            raise OptionError(f"the record {path} cannot be read: remove it, and run the study again") from e

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder against another study command.

        Raises:
            OptionError: another one is at work.
        """
        if not _lock(_claims(self.path.resolve()), _WHOLE, wait=False):
            raise OptionError(f"another 'hetsched study' is at work in {self.path}: wait for it, or choose another place with -o")
        try:
            yield
        finally:
            _unlock(_claims(self.path.resolve()), _WHOLE)

    @contextmanager
    def claimed(self, key: str) -> Iterator[None]:
        """Hold a scenario or a plan against other processes; waits while one of them holds it."""
        at = 1 + int(key[:_KEY_DIGITS], 16)
        _lock(_claims(self.path.resolve()), at, wait=True)
        try:
            yield
        finally:
            _unlock(_claims(self.path.resolve()), at)


@cache
def _record() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Findings)


@cache
def _claims(path: Path) -> int:
    """The file of claims, opened once a process: closing any handle of it would drop all of the process's locks."""
    return os.open(path / "claims.lock", os.O_RDWR | os.O_CREAT, 0o666)


def _lock(handle: int, at: int, wait: bool) -> bool:
    fcntl = _fcntl()
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, at)
    except OSError as e:
        if e.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise OptionError(f"this file system keeps no locks ({e.strerror}): choose another place with -o") from e
    return True


def _unlock(handle: int, at: int) -> None:
    fcntl = _fcntl()
    fcntl.lockf(handle, fcntl.LOCK_UN, 1, at)


def _fcntl() -> Any:
    try:
        import fcntl
    except ModuleNotFoundError as e:
        raise OptionError(
            "studies need the file locks of Linux or macOS, which this system does not have: run them there, or in WSL"
        ) from e
    return fcntl
