"""A subject that costs nothing to import and little to run: squares of numbers. Its plans are files that say who made them."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetsched.errors import InfeasibleError, OptionError
from hetsched.scenarios import Curve, Findings, Prepared
from hetsched.studies.folder import Folder
from hetsched.studies.running import prepared, run
from hetsched.studies.study_file import Study


@dataclass(frozen=True)
class Squares:
    """``x`` is squared; ``base`` is its plan. ``log``: a folder in which every simulation leaves marks; ``pause_s``: what it takes."""

    log: Path | None = None
    pause_s: float = 0.0

    def name(self, key: str) -> str:
        return "x" if key == "number" else key

    def prepare(self, inputs: Mapping[str, Any], folder: Path) -> Prepared:
        if "x" not in inputs:
            raise OptionError(f"there is no x in {dict(inputs)}")
        plan_key, key = (hashlib.sha256(repr(v).encode()).hexdigest()[:32] for v in (inputs.get("base", 0), sorted(inputs.items())))
        return Prepared(dict(inputs), key, plan_key)

    def plan(self, scenario: Prepared, path: Path) -> None:
        if scenario.inputs.get("base") == "impossible":
            raise InfeasibleError("nothing fits")
        self._mark(f"plan-{scenario.plan_key}")
        path.write_text(str(os.getpid()))

    def measure(self, scenario: Prepared, path: Path, curves: bool) -> Findings:
        x = scenario.inputs["x"]
        if x == "bad":
            raise OptionError("x = 'bad' is no number")
        if x == "fatal":
            os._exit(9)
        begun = self._mark(f"begun-{scenario.key}-{os.getpid()}")
        time.sleep(self.pause_s)
        self._mark(f"ended-{scenario.key}-{os.getpid()}", begun)
        assert isinstance(x, int | float)
        return Findings({"square": x * x}, {"line": Curve("1", (0.0, 1.0), (float(x), float(x * x)))} if curves else {})

    def _mark(self, name: str, begun: float | None = None) -> float:
        """Leave a mark with the times between which something happened; the same one twice is an error."""
        now = time.monotonic()
        if self.log is not None:
            with (self.log / f"{name}-{now:.6f}").open("x") as f:
                f.write(f"{now if begun is None else begun} {now}")
        return now


def study_of(count: int, bases: int = 1) -> Study:
    """``count`` squares for each of some plans."""
    return Study(title="squares", grid={"base": tuple(range(bases)), "x": tuple(range(count))})


if __name__ == "__main__":
    folder, log, count, pause, workers = sys.argv[1:]
    squares = Squares(Path(log), float(pause))
    run(prepared(study_of(int(count), 3), squares, Path()), squares, Folder(Path(folder)), workers=int(workers))
