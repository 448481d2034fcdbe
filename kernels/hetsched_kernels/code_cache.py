"""Where machine code is kept, between one process and the next: folders named by hashes of the sources that it is made of."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import get_ident
from typing import Any

from numba.core import config as numba_config

config: Any = numba_config
_PACKAGE = Path(__file__).parent
_IMPORT = re.compile(r"^from hetsched_kernels(?:\.(\w+))? import (\([^)]*\)|.*)", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?: as \w+)?")
_KEEP = 256


@cache
def _source(path: Path) -> bytes | None:
    """What a module was when this process first asked, which decorators do as the module is imported."""
    return path.read_bytes() if path.exists() else None


def source_digest(module: str) -> str:
    """Hash of a module of this package and of every module of the package that it imports, directly or not, as they were imported.

    Code that a process makes of old sources, which somebody edits meanwhile, must not be found by those that have the new ones.
    """
    return _digest(_PACKAGE, module)


@cache
def _digest(package: Path, module: str) -> str:
    seen: dict[str, bytes] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        source = _source(package / f"{name}.py")
        if name in seen or source is None:
            continue
        seen[name] = source
        for imported, names in _IMPORT.findall(source.decode()):
            todo += [imported] if imported else _NAME.findall(names)
    digest = hashlib.sha256()
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + seen[name])
    return digest.hexdigest()[:16]


def cache_root() -> Path:
    """Folder of all cached machine code: ``NUMBA_CACHE_DIR`` if set, else the user's cache folder."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR) / "hetsched_kernels"
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "hetsched" / "kernels"


@cache
def cache_folder(module: str) -> str:
    """Folder of the machine code that is made of a module's sources."""
    folder = cache_root() / f"{module}-{source_digest(module)}"
    if not folder.exists():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            _forget_old(folder.parent)
    return str(folder)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of the cache under a temporary name, then rename it; where that is not possible there is none."""
    part = path.with_name(f".{path.name[:100]}.{os.getpid()}-{get_ident()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _forget_old(root: Path) -> None:
    """Remove the folders of sources that are long gone: all but the most recent ones."""
    folders = sorted((p for p in root.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True)
    for stale in folders[_KEEP:]:
        shutil.rmtree(stale, ignore_errors=True)
