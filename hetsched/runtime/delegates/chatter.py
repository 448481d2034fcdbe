"""What vendors' libraries print when all is well, kept from the user's terminal and from ``--json``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile

#: Parts of lines that say nothing.
_CHATTER = (b"# LIBNATIVE: No alternate configuration", b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU", b"[W:onnxruntime:")


@contextmanager
def without_chatter() -> Iterator[None]:
    """Drop such lines from both outputs of this process; whatever else libraries print goes to the standard error afterwards."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with TemporaryFile() as held:
        try:
            for output in (1, 2):
                os.dup2(held.fileno(), output)
            yield
        finally:
            for output, own in zip((1, 2), kept, strict=True):
                os.dup2(own, output)
                os.close(own)
            held.seek(0)
            said = b"".join(line for line in held if line.strip() and not any(c in line for c in _CHATTER))
            if said:
                os.write(2, said)
