"""Writing files so that nothing half-written is ever left behind and nothing that is read is destroyed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hetsched.errors import OptionError


def check_destination(path: Path, inputs: Iterable[Path | str | None] = (), option: str = "-o") -> None:
    """Refuse a destination before any work is done: no folder, not a plain file, or one of the files that are read.

    Args:
        path: where something will be written.
        inputs: files that the same command reads; names that are no files (a SoC id) do no harm.
        option: how the user named ``path``; empty: by its place, or in Python.

    Raises:
        OptionError: it cannot be written, or would destroy an input.
    """
    instead = "choose another place" + (f" with {option}" if option else "")
    try:
        if path.is_dir():
            raise OptionError(f"cannot write {path}: it is a folder; {instead}")
        if path.exists() and not path.is_file():
            raise OptionError(f"cannot write {path}: it is a device or a pipe, not a file; {instead}")
        if not path.parent.is_dir():
            raise OptionError(f"cannot write {path}: the folder {path.parent} does not exist; {instead}")
        if not os.access(path.resolve().parent, os.W_OK):
            raise OptionError(f"cannot write {path}: the folder {path.parent} is read-only; {instead}")
        for given in inputs:
            if given is not None and _same(path, Path(given)):
                raise OptionError(f"cannot write {path}: it would replace {given}, which is read; {instead}")
    except (OSError, ValueError) as e:
        raise OptionError(f"cannot write {path}: {getattr(e, 'strerror', None) or e}; {instead}") from e


def check_page(path: Path, inputs: Iterable[Path | str | None] = ()) -> None:
    """The same for a page, which browsers know by its name.

    Raises:
        OptionError: as :func:`check_destination`, or the name does not end in ``.html``.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise OptionError(f"cannot write {path}: a page's name ends in .html; choose another one with -o")
    check_destination(path, inputs)


def _same(a: Path, b: Path) -> bool:
    try:
        return a.resolve() == b.resolve() or a.samefile(b)
    except OSError:
        return False


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to a temporary file in the same folder, then rename it to ``path`` (links are followed).

    A file of another kind (a model where a plan goes) is never replaced.

    Raises:
        OptionError: the folder does not exist or cannot be written, or there is something else at ``path``.
    """
    write_parts_atomically(path, (data,))


def write_parts_atomically(path: Path, parts: Iterable[bytes]) -> None:
    """The same for what is too large to be in memory at once; the first part has the first byte.

    Raises:
        OptionError: as :func:`write_atomically`.
    """
    import tempfile
    from itertools import chain

    check_destination(path, option="")
    rest = iter(parts)
    first = next(rest, b"")
    try:
        target = path.resolve()
        _refuse_other_kind(path, first)
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", suffix=".part", dir=target.parent)
    except OSError as e:
        raise OptionError(f"cannot write {path}: {e.strerror or e}; choose another place") from e
    try:
        with os.fdopen(handle, "wb") as f:
            f.writelines(chain((first,), rest))
        os.chmod(name, 0o666 & ~_umask())  # noqa: PTH101
        os.replace(name, target)  # noqa: PTH105
    except BaseException as e:
        Path(name).unlink(missing_ok=True)
        if isinstance(e, OSError):
            raise OptionError(f"cannot write {path}: {e.strerror or e}; choose another place") from e
        raise


def _refuse_other_kind(path: Path, data: bytes) -> None:
    """Plans, pages, archives and traces start with bytes of their own."""
    if path.is_file():
        with path.open("rb") as f:
            head = f.read(1)
        if head and head != data[:1]:
            raise OptionError(f"cannot write {path}: a file of another kind is there; remove it, or choose another place")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def is_plan_file(path: Path) -> bool:
    """Whether a file looks like JSON (a plan), judged by its first byte that is not white space."""
    if not path.is_file():
        return path.suffix == ".json"
    with path.open("rb") as f:
        return f.read(256).lstrip()[:1] == b"{"
