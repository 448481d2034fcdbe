"""``fluid.run`` compiled. Importing this imports numba; only runs of many pieces do.

The machine code is cached beside this file (or where ``NUMBA_CACHE_DIR`` says), so that only the first process on a machine compiles.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from numba import njit

from hetsched_simulations import fluid

_compiled: dict[str, Any] = dict(vars(fluid))
for _name in ("share", "fits", "compete", "begin", "begin_all", "served", "until_next", "run"):  # each after those that it calls
    _compiled[_name] = njit(cache=True, nogil=True, error_model="numpy")(FunctionType(getattr(fluid, _name).__code__, _compiled, _name))

#: The same code as ``fluid.run``.
run: Any = _compiled["run"]
