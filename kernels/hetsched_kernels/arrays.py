"""The words that a kernel's parameters are declared with.

A kernel's compiled signature is read from its annotations. ``In…`` parameters are flat, C-contiguous, aligned arrays that
may be read-only; ``Out…`` parameters are written to. ``int`` is int64, ``float`` is float32, ``bool`` is a boolean.
``InT`` / ``OutT`` (and ``InS``) stand for the element types that the decorator lists. ``InAddress`` is an int64 array of addresses.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

InT: TypeAlias = Array
OutT: TypeAlias = Array
InS: TypeAlias = Array
OutS: TypeAlias = Array
InAddress: TypeAlias = Array
InF64: TypeAlias = Array
OutF64: TypeAlias = Array
InF32: TypeAlias = Array
OutF32: TypeAlias = Array
InI64: TypeAlias = Array
OutI64: TypeAlias = Array
InI32: TypeAlias = Array
OutI32: TypeAlias = Array
InI16: TypeAlias = Array
OutI16: TypeAlias = Array
InI8: TypeAlias = Array
OutI8: TypeAlias = Array
InU64: TypeAlias = Array
OutU64: TypeAlias = Array
InU32: TypeAlias = Array
OutU32: TypeAlias = Array
InU16: TypeAlias = Array
OutU16: TypeAlias = Array
InU8: TypeAlias = Array
OutU8: TypeAlias = Array
InBool: TypeAlias = Array
OutBool: TypeAlias = Array

#: What a kernel takes for "there is none" where an array is optional (a bias, a mask, a zero point).
NO_F32 = np.zeros(0, np.float32)
NO_I32 = np.zeros(0, np.int32)
NO_U8 = np.zeros(0, np.uint8)
