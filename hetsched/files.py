"""Writing files so that nothing half-written is ever left behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hetsched.errors import OptionError


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to a temporary file in the same folder, then rename it to ``path``.

    Raises:
        OptionError: the folder does not exist or cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as e:
        raise OptionError(f"cannot write {path}: {e.strerror or e}; choose another place with -o") from e
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.chmod(name, 0o666 & ~_umask())  # noqa: PTH101
        os.replace(name, path)  # noqa: PTH105
    except BaseException as e:
        Path(name).unlink(missing_ok=True)
        if isinstance(e, OSError):
            raise OptionError(f"cannot write {path}: {e.strerror or e}; choose another place with -o") from e
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
