"""Running cases in a guarded process: a crash or a hang is a finding, not the end."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cases import Case

#: Seconds of processor time after which a case hangs, and of the clock, for one that sleeps or a machine that is busy.
HANG_S, ASLEEP_S = 10.0, 90.0
#: Verdicts that are findings.
FINDINGS = frozenset({"escaped", "memory", "outside", "crash", "hang"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a case; ``detail`` is the error's text or a traceback."""

    what: str
    detail: str

    @property
    def is_finding(self) -> bool:
        """Whether the loader did something that it must not."""
        return self.what in FINDINGS

    @property
    def signature(self) -> str:
        """What two findings of one cause share: the verdict and the last line of code of ours in a traceback, or the kind."""
        if self.what != "escaped":
            return self.what
        lines = [x.strip() for x in self.detail.splitlines() if x.strip()]
        code = [x for x in lines if x.startswith("File ") and "hetsched" in x]
        return f"{self.what} {lines[-1].split(':')[0] if lines else ''} {code[-1] if code else ''}"


class Worker:
    """One guarded process, started when it is needed. A case may take ``hang_s`` seconds of processor time."""

    def __init__(self, hang_s: float = HANG_S) -> None:
        self._hang_s = hang_s
        self._process: subprocess.Popen[str] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by __exit__)
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()
        self._folder.cleanup()
        self._errors.close()

    def run(self, case: Case) -> Verdict:
        """Read one case. A file ``secret.bin`` lies beside its folder, so that ways out of the folder lead somewhere."""
        self._count += 1
        base = Path(self._folder.name)
        (base / "secret.bin").write_bytes(bytes(4096))
        folder = base / f"case{self._count}"
        path = case.write(folder)
        verdict = self._ask(path, folder)
        case.remove(folder)
        if verdict.is_finding and verdict.what != "escaped":
            self._stop()
        return verdict

    def _ask(self, path: Path, folder: Path) -> Verdict:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps({"path": str(path), "folder": str(folder)}) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return Verdict("crash", self._last_words())
        if not _answers(process, self._hang_s):
            return Verdict("hang", f"over {self._hang_s:.0f} s")
        line = process.stdout.readline()
        return Verdict(**json.loads(line)) if line.endswith("\n") else Verdict("crash", self._last_words())

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._errors.seek(0)
            self._errors.truncate()
            guard = [sys.executable, str(Path(__file__).with_name("guard.py"))]
            self._process = subprocess.Popen(guard, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True)
            assert self._process.stdout is not None
            self._process.stdout.readline()  # it says that it is ready
        return self._process

    def _last_words(self) -> str:
        code = None if self._process is None else self._process.wait()
        self._errors.seek(0)
        return f"exit {code}: {self._errors.read()[-2000:]}"

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _answers(process: subprocess.Popen[str], hang_s: float) -> bool:
    """Wait for an answer, or the end; False after too much time."""
    began, used = time.monotonic(), _processor_s(process.pid)
    with selectors.DefaultSelector() as ready:
        assert process.stdout is not None
        ready.register(process.stdout, selectors.EVENT_READ)
        while not ready.select(0.5):
            if _processor_s(process.pid) - used > hang_s or time.monotonic() - began > ASLEEP_S:
                return False
    return True


def _processor_s(pid: int) -> float:
    """Processor time of a process so far (Linux)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
