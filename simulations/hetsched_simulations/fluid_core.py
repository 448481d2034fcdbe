"""``fluid.run`` compiled. Importing this imports numba; only runs of many pieces do.

The machine code is cached beside this file (or where ``NUMBA_CACHE_DIR`` says), so that only the first process on a machine compiles.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from numba import njit

from hetsched_simulations import fluid

_PARTS = {name: njit(cache=True, nogil=True, error_model="numpy")(getattr(fluid, name)) for name in ("share", "fits", "compete", "begin")}
#: The same code as ``fluid.run``, with its parts compiled too.
run: Any = njit(cache=True, nogil=True, error_model="numpy")(FunctionType(fluid.run.__code__, {**vars(fluid), **_PARTS}, "run"))
