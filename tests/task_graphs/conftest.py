"""The task graphs' modules, as the package ``task_graphs``; anrg-saga where ``make peers`` has put it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(sys.prefix) / "peers")]
