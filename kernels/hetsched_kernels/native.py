"""Linked machine code in memory, called without numba and without LLVM.

The functions of an image take one pointer, to their arguments as int64 (:mod:`hetsched_kernels.program`). While they run the
GIL is not held.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from hetsched_kernels.tables import Image

#: C functions under names of our own (:mod:`hetsched_kernels.program`).
_OWN = "hetsched_"
#: What belongs to Python or to numba is never called from here.
_FOREIGN = ("Py", "_Py", "NRT_", "numba_", _OWN)


def usable() -> bool:
    """Whether images can be mapped and run here: on Linux, on x86-64."""
    return sys.platform == "linux" and os.uname().machine == "x86_64" and sys.maxsize > 1 << 32


@cache
def _libraries() -> tuple[Any, ...]:
    found = [ctypes.CDLL(None)]
    with suppress(OSError):
        found.append(ctypes.CDLL("libm.so.6"))
    return tuple(found)


def address_of(name: str) -> int | None:
    """The address of a function of the C library, None if there is none or it is not for kernels."""
    name = name.removeprefix(_OWN)
    if name.startswith(_FOREIGN):
        return None
    for library in _libraries():
        if hasattr(library, name):
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    return None


class Native:
    """An image in memory, as long as this object lives.

    Raises:
        OSError: the system does not let it be executed, or a C function is missing.
    """

    def __init__(self, image: Image) -> None:
        self._memory = mmap.mmap(-1, max(len(image.data), 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        view = np.frombuffer(self._memory, np.uint8)
        self.address = view.ctypes.data
        view[: len(image.data)] = np.frombuffer(image.data, np.uint8)
        for places, value in [(image.inside, self.address), *((p, _needed(name)) for name, p in image.imports.items())]:
            for place in places:
                view[place : place + 8].view(np.int64)[0] += value
        protect = _libraries()[0].mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if protect(self.address, len(self._memory), mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError("this system does not let machine code be mapped")
        self._symbols = image.symbols

    def pointer(self, symbol: str) -> int:
        """The address of a function."""
        return self.address + self._symbols[symbol]

    def function(self, symbol: str) -> Callable[..., None]:
        """A function as a kernel is called, with arrays and numbers (a float is taken as float32); what it returns is lost."""
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.pointer(symbol))

        def run(*args: Any) -> None:
            words: list[int] = []
            for a in args:
                words += [a.__array_interface__["data"][0], a.size] if isinstance(a, np.ndarray) else [_word(a)]
            call((ctypes.c_int64 * len(words))(*words))

        run.__dict__["image"] = self  # the code lives as long as whoever may call it
        return run


def _word(number: Any) -> int:
    """A number as a kernel takes it: its value, or the bits of a float32."""
    return int(np.float32(number).view(np.int32)) if isinstance(number, float) else int(number)


def _needed(name: str) -> int:
    address = address_of(name)
    if address is None:
        raise OSError(f"this system has no function {name}")
    return address
