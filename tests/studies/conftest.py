"""The arithmetic subject, importable by the processes of a study too."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)  # spawned processes inherit it, so that they can import the subject
