"""The one place that decides how kernels are compiled and cached.

:func:`kernel` marks an entry point: it compiles on its first call, with the one signature that its annotations state, and
keeps the machine code in a cache folder named by a hash of the sources that it is made of. :func:`block` marks a building
block that only kernels call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any, Protocol, overload

import numpy as np
from numba import njit, types
from numba.core import config as numba_config

from hetsched_kernels.code_cache import cache_folder, source_digest

#: Sums may be reordered and contracted (NaN and infinities stay exact); needed for a reduction to use vectors at all.
REORDER = frozenset({"reassoc", "nsz", "contract"})
#: Products and sums may be contracted to a fused multiply-add; nothing else.
CONTRACT = frozenset({"contract"})

config: Any = numba_config
_lock = RLock()

_SCALARS = {"int": types.int64, "float": types.float32, "bool": types.boolean}
_ELEMENTS = {
    "F64": types.float64, "F32": types.float32, "I64": types.int64, "I32": types.int32, "I16": types.int16, "I8": types.int8,
    "U64": types.uint64, "U32": types.uint32, "U16": types.uint16, "U8": types.uint8, "Bool": types.boolean,
    "Address": types.int64,
}  # fmt: skip
_NAMES = {
    "float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "Bool",
}  # fmt: skip


def _dispatcher(function: Callable[..., Any], fast: frozenset[str], *, inline: bool) -> Any:
    """A numba dispatcher whose cache lives in the folder of its sources."""
    options: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": set(fast) or False}
    if inline:
        options["forceinline"] = True
    dispatcher = njit(**options)(function)
    cached_in_sources(dispatcher, function)
    return dispatcher


def cached_in_sources(compiled: Any, function: Callable[..., Any]) -> None:
    """Let numba keep the code of ``compiled`` in the folder of the sources of ``function``'s module."""
    with _lock:
        before = config.CACHE_DIR
        config.CACHE_DIR = cache_folder(function.__module__.rpartition(".")[2])
        try:
            compiled.enable_caching()
        except RuntimeError:
            pass  # nowhere to write: compile again in every process
        finally:
            config.CACHE_DIR = before


@overload
def block(function: Callable[..., Any]) -> Any: ...


@overload
def block(*, fast: frozenset[str] = ..., inline: bool = ...) -> Callable[[Callable[..., Any]], Any]: ...


def block(function: Callable[..., Any] | None = None, *, fast: frozenset[str] = CONTRACT, inline: bool = False) -> Any:
    """Mark a building block: compiled into the kernels that call it.

    Args:
        function: the block, callable from kernels and from other blocks.
        fast: the floating-point liberties that its arithmetic may take.
        inline: always inline it into its caller (needed where its caller's loop must vectorise through it).
    """
    if function is None:
        return lambda f: _dispatcher(f, fast, inline=inline)
    return _dispatcher(function, fast, inline=inline)


class Installable(Protocol):
    """Shared code that must be known to LLVM before a kernel that calls it (:class:`hetsched_kernels.external.External`)."""

    def install(self) -> None:
        """Make it known."""


class Kernel:
    """An entry point: a callable that compiles the signature that it needs on first use.

    Attributes:
        name: the function's name.
        python: the function.
        needs: the external functions that it calls.
    """

    def __init__(
        self, function: Callable[..., Any], fast: frozenset[str], needs: Sequence[Installable], elements: dict[str, Sequence[str]]
    ) -> None:
        source_digest(function.__module__.rpartition(".")[2])  # now: the code is made later
        self.name = function.__name__
        self.python = function
        self.__doc__ = function.__doc__
        self._fast = fast
        self.needs = tuple(needs)
        self._elements = elements
        self._names = [k for k in function.__annotations__ if k != "return"]
        self._annotations = [str(function.__annotations__[k]) for k in self._names]
        self._dispatcher: Any = None
        self._ready: set[str] = set()
        self._known: dict[tuple[str, ...], tuple[Any, ...]] = {}
        self._keys = [next((i for i, a in enumerate(self._annotations) if a[-1] == letter and len(a) < 5), 0) for letter in elements]

    def __call__(self, *args: Any) -> Any:
        """Run the kernel; arguments are those of the decorated function, by position."""
        key = "".join([args[i].dtype.name for i in self._keys])
        if key not in self._ready:
            self.compile(*[args[i].dtype for i in self._keys])
        return self._dispatcher(*args)

    def compile(self, *dtypes: Any) -> Any:
        """Compile, or load from the cache, the variant for these element types; returns numba's dispatcher.

        Args:
            dtypes: one numpy dtype for each of the decorator's element letters, none where it has none.

        Raises:
            TypeError: the kernel has no variant for those types.
        """
        names = [np.dtype(d).name for d in dtypes]
        signature = self.signature(*names)
        with _lock:
            for need in self.needs:
                need.install()
            if self._dispatcher is None:
                self._dispatcher = _dispatcher(self.python, self._fast, inline=False)
            self._dispatcher.disable_compile(False)
            self._dispatcher.compile(signature)
            self._dispatcher.disable_compile(True)
            self._ready.add("".join(names))
        return self._dispatcher

    @property
    def address_arguments(self) -> tuple[int, ...]:
        """Positions of the arguments that are arrays of addresses."""
        return tuple(i for i, a in enumerate(self._annotations) if a == "InAddress")

    @property
    def written_arguments(self) -> tuple[int, ...]:
        """Positions of the arguments that are arrays to be written to."""
        return tuple(i for i, a in enumerate(self._annotations) if a.startswith("Out"))

    def variants(self) -> list[tuple[str, ...]]:
        """Every combination of element types (numpy names) that it can be compiled for."""
        out: list[tuple[str, ...]] = [()]
        for allowed in self._elements.values():
            out = [(*head, name) for head in out for name in allowed]
        return out

    def signature(self, *names: str) -> tuple[Any, ...]:
        """The numba types of the parameters, read from the annotations."""
        if names in self._known:
            return self._known[names]
        letters: dict[str, Any] = {}
        for (letter, allowed), name in zip(self._elements.items(), names, strict=True):
            if name not in allowed:
                raise TypeError(f"{self.name} has no variant for {name}; it takes {', '.join(allowed)}")
            letters[letter] = _ELEMENTS[_NAMES[name]]
        return self._known.setdefault(names, tuple(self._type(a, letters) for a in self._annotations))

    @staticmethod
    def _type(annotation: str, letters: dict[str, Any]) -> Any:
        if annotation in _SCALARS:
            return _SCALARS[annotation]
        readonly = annotation.startswith("In")
        element = annotation.removeprefix("In").removeprefix("Out")
        return types.Array(letters.get(element) or _ELEMENTS[element], 1, "C", readonly=readonly)


class Variant:
    """An entry point that shares another kernel's machine code: it only rearranges the arguments.

    Attributes:
        name: the function's name.
        core: the kernel.
        arrange: turns this entry point's arguments into the kernel's.
    """

    def __init__(self, core: Kernel, arrange: Callable[..., tuple[Any, ...]]) -> None:
        self.name = arrange.__name__
        self.__doc__ = arrange.__doc__
        self.core, self.arrange = core, arrange

    def __call__(self, *args: Any) -> Any:
        """Run the kernel; arguments are those of the decorated function, by position."""
        return self.core(*self.arrange(*args))

    def compile(self, *dtypes: Any) -> Any:
        """As :meth:`Kernel.compile`."""
        dispatcher, arrange = self.core.compile(*dtypes), self.arrange
        return lambda *args: dispatcher(*arrange(*args))

    def variants(self) -> list[tuple[str, ...]]:
        """As :meth:`Kernel.variants`."""
        return self.core.variants()


def variant(core: Kernel) -> Callable[[Callable[..., tuple[Any, ...]]], Variant]:
    """Mark a function that turns its own arguments into those of ``core`` as an entry point."""
    return lambda arrange: Variant(core, arrange)


@overload
def kernel(function: Callable[..., Any], /) -> Any: ...


@overload
def kernel(
    *, fast: frozenset[str] = ..., needs: Sequence[Installable] = ..., **elements: Sequence[str]
) -> Callable[[Callable[..., Any]], Any]: ...


def kernel(
    function: Callable[..., Any] | None = None,
    /,
    *,
    fast: frozenset[str] = CONTRACT,
    needs: Sequence[Installable] = (),
    **elements: Sequence[str],
) -> Any:
    """Mark an entry point.

    Args:
        function: annotated with the words of :mod:`hetsched_kernels.arrays`.
        fast: the floating-point liberties that its arithmetic may take.
        needs: the external functions that it calls, directly or through blocks.
        elements: for each letter used in the annotations (``T`` in ``InT``), the numpy names of the types it may stand for.
    """
    if function is None:
        return lambda f: Kernel(f, fast, needs, elements)
    return Kernel(function, fast, needs, elements)
