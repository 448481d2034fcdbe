"""A process that reads hostile files for the fuzzer and says what came of each: ``python guard.py``, one JSON line in, one out.

In: ``{"path": file or folder, "folder": its folder}``. Out: ``{"what": ..., "detail": ...}``, where ``what`` is

- ``ok`` (a graph), ``refused`` (an error of hetsched's own);
- ``escaped`` (another exception), ``memory`` (over 1 GB), ``outside`` (a file outside the folder was opened).

A crash or a hang shows in the process that waits. Standard error has a traceback of a crash (faulthandler).
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

from hetsched.errors import HetschedError, ModelError
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard, unfuse
from hetsched_cost_models.work import work_of

#: Growth of the address space that counts as too much, and the most that is allowed at all.
TOO_MUCH_BYTES, CEILING_BYTES = 1 << 30, 6 << 30
#: Characters of an error's message.
LONGEST_MESSAGE = 4096
#: Value of dims that a file leaves open; constants up to this size are read.
_DIM, _READ_BYTES = 4, 1 << 20
#: What Python itself may open: modules, locales, time zones of this interpreter and of this checkout.
_PLACES = (sys.prefix, sys.base_prefix, Path(__file__).parents[2] / "hetsched", *sys.path)
_OWN = tuple(dict.fromkeys(str(Path(p).resolve()) for p in _PLACES if p))


class Watch:
    """Notes files that are opened outside a folder (but for the file that the user names, which may be a link).

    An audit hook cannot be removed, so there is one for the whole process.
    """

    def __init__(self) -> None:
        self.folder = ""
        self.entry = ""
        self.outside: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not self.folder or not isinstance(arguments[0], str | bytes):
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path != self.entry and not path.startswith((self.folder + os.sep, "/proc/self/", "/dev/null", *_OWN)):
            self.outside.append(path)


def attempt(path: Path) -> str:
    """Load, fuse, undo, count the work, read small constants; what a user's plan would do with the file."""
    if path.suffix == ".guardtest":
        os.chdir(path.parent)
        exec(path.read_text(), {"HetschedError": HetschedError})
        return "ok"
    if path.name.endswith(".ranges.json"):
        from hetsched.ranges import read_ranges

        read_ranges(path)
        return "ok"
    graph = _load(path)
    fused = standard(graph)
    unfuse(fused)
    work_of(fused)
    for tensor in graph.tensors.values():
        if tensor.is_constant and tensor.data is not None and tensor.data.is_present and tensor.nbytes <= _READ_BYTES:
            tensor.numpy()
    return f"{len(graph.ops)} operators"


def _load(path: Path) -> Graph:
    """With a value for every dim that the loader asks for."""
    try:
        return load(path)
    except ModelError as error:
        names = re.findall(r"--dim (\S+)=N", str(error))
        if not names or "NAME" in names:
            raise
    return load(path, dict.fromkeys(names, _DIM))


def judged(path: Path, folder: Path, watch: Watch) -> dict[str, str]:
    """One case."""
    before, watch.outside = _address_space("VmSize"), []
    watch.folder, watch.entry = os.path.realpath(folder), os.path.realpath(path)
    try:
        result = {"what": "ok", "detail": attempt(path)}
    except HetschedError as error:
        result = {"what": "refused", "detail": str(error)}
        if "\n" in str(error) or len(str(error)) > LONGEST_MESSAGE:
            result = {"what": "escaped", "detail": f"a message of several lines, or a long one: {error}"[:3000]}
    except BaseException:  # the point of fuzzing: whatever else comes out
        result = {"what": "escaped", "detail": traceback.format_exc()[-3000:]}
    watch.folder = ""
    if watch.outside:
        return {"what": "outside", "detail": str(watch.outside[:3])}
    grown = _address_space("VmPeak") - before
    if result["what"] != "escaped" and grown > TOO_MUCH_BYTES:
        return {"what": "memory", "detail": f"{grown >> 20} MB more than before"}
    return result


def _address_space(field: str) -> int:
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(field))
    return int(line.split()[1]) << 10


def main() -> None:
    """Answer until the input ends."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (CEILING_BYTES, CEILING_BYTES))
    watch = Watch()
    print("ready", flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps(judged(Path(case["path"]), Path(case["folder"]), watch)), flush=True)


if __name__ == "__main__":
    main()
