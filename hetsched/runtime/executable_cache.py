"""Where stored executables are kept between processes, and when one may be used.

An entry is found by what the plan file says, where it lies, the sources and libraries that compiled it and the processor that it
was compiled for. It is used only if the files that it was made of are the ones that are there now.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.runtime import executable_files as files
from hetsched.runtime.executable_files import Contents

#: All entries together take at most so much; the longest unused go first.
LIMIT_BYTES = 2 << 30
_SUFFIX = ".executable"
_PART = ".part"
#: A temporary file this old belongs to nobody any more.
_ABANDONED_S = 3600.0
#: A file that changed so shortly before it was looked at may change again without a trace.
SETTLED_NS = 20_000_000
#: Packages whose sources and parameter files decide what a plan compiles to, and libraries that take part in it.
_PACKAGES = ("hetsched", "hetsched_kernels", "hetsched_cost_models")
_LIBRARIES = ("numba", "llvmlite")


def folder() -> Path:
    """The folder of the entries: within ``NUMBA_CACHE_DIR`` if set, else the user's cache folder."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return Path(os.environ["NUMBA_CACHE_DIR"]) / "hetsched_executables"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hetsched" / "executables"


def key_of(plan: bytes, path: Path, level: int) -> str:
    """The name of the entry of a plan file at one of its levels.

    Args:
        plan: contents of the file.
        path: where it lies; its model is found from there.
        level: the throttle level.
    """
    return key_for({"plan": hashlib.sha256(plan).hexdigest(), "path": str(path.resolve()), "level": level})


def key_for(about: Mapping[str, Any]) -> str:
    """The name of the entry of what ``about`` says (as JSON), made by these sources and libraries for this processor."""
    made_of = {
        "about": about, "sources": list(_sources()), "python": sys.version, "numpy": np.__version__, "processor": _processor(),
        "settings": sorted((k, v) for k, v in os.environ.items() if k.startswith("NUMBA_")),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def identity(path: Path) -> list[int]:
    """What changes when a file is written or replaced: its number, size and times."""
    s = path.stat()
    return [s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns]


def find(key: str) -> Contents | None:
    """The entry, if it is whole and its files are unchanged; what is not is removed."""
    path = folder() / (key + _SUFFIX)
    try:
        contents = files.read(path)
        if all(identity(Path(name)) == known for name, known in contents.manifest["files"]):
            os.utime(path)
            return contents
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    with suppress(OSError):
        path.unlink()
    return None


def identities(paths: Sequence[Path], began_ns: int) -> list[tuple[str, list[int]]] | None:
    """Files and what is known of them.

    Args:
        paths: the files.
        began_ns: a time (``time.time_ns``) before any of them was read.

    Returns:
        None if one is not a plain file, or may have changed since ``began_ns``.
    """
    try:
        if not all(p.is_file() for p in dict.fromkeys(paths)):
            return None
        known = [(str(p.resolve()), identity(p)) for p in dict.fromkeys(paths)]
    except OSError:
        return None
    return known if all(max(i[3:]) < began_ns - SETTLED_NS for _, i in known) else None


def store(key: str, contents: Contents) -> None:
    """Keep an entry, under a temporary name until it is whole; where nothing can be written nothing is kept."""
    size = contents.nbytes
    if size > LIMIT_BYTES // 2:
        return
    path = folder() / (key + _SUFFIX)
    part = path.with_name(f".{key[:32]}.{os.getpid()}{_PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_room(path.parent, size)
        with part.open("wb") as f:
            files.write(f, contents)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _make_room(where: Path, size: int) -> None:
    """Remove what was abandoned, then the longest unused entries until ``size`` more bytes fit."""
    entries = []
    for p in where.iterdir():
        with suppress(OSError):
            s = p.stat()
            if p.suffix == _PART and s.st_mtime < time.time() - _ABANDONED_S:
                p.unlink()
            elif p.suffix == _SUFFIX:
                entries.append((s.st_mtime_ns, s.st_size, p))
    total = size + sum(n for _, n, _ in entries)
    for _, n, p in sorted(entries):
        if total <= LIMIT_BYTES:
            break
        with suppress(OSError):
            p.unlink()
        total -= n


def _sources() -> Iterator[tuple[str, int, int]]:
    """Names, sizes and times of all files of our packages, and of the libraries' versions."""
    for package in _PACKAGES:
        found = importlib.util.find_spec(package)
        for place in (found.submodule_search_locations or ()) if found else ():
            yield from sorted(_files(place, len(place)))
    for library in _LIBRARIES:
        found = importlib.util.find_spec(library)
        if found is not None and found.origin is not None:
            s = Path(found.origin).with_name("_version.py").stat()
            yield library, s.st_size, s.st_mtime_ns


def _files(place: str, root: int) -> Iterator[tuple[str, int, int]]:
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(entry.path, root)
            else:
                s = entry.stat()
                yield entry.path[root:], s.st_size, s.st_mtime_ns


def _processor() -> str:
    """What the processor is and can do, as the system says."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as f:  # noqa: PTH123
        return f.read(8192).partition("\n\n")[0].partition("microcode")[0] + _flags()
    return platform.processor()


def _flags() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as f:  # noqa: PTH123
        return next((line for line in f if line.startswith(("flags", "Features"))), "")
