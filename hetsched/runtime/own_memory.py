"""How much memory this process has held at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
_FIELD = "VmHWM:"


def peak_memory_bytes(status: Path = STATUS) -> int:
    """Most memory that was resident at once since the process began its program, mapped files included.

    Linux counts that with the address space (``VmHWM``, in KiB). What ``getrusage`` tells begins with the peak of the process that
    started this one, and is used where there is nothing else.

    Args:
        status: where Linux shows it.
    """
    try:
        line = next((v for v in status.read_text(encoding="ascii", errors="replace").splitlines() if v.startswith(_FIELD)), "")
    except OSError:
        line = ""
    number = line.removeprefix(_FIELD).removesuffix("kB").strip()
    if number.isdecimal():
        return int(number) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
