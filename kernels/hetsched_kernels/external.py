"""Code shared by many kernels, compiled once and called through a symbol.

Numba copies a callee's machine code into every caller. For the large building blocks (register tiles, the activations) that
would multiply compile time, so they are C functions on raw pointers, known to LLVM by name. A kernel that calls one lists it
in ``needs``; the symbol then exists before the kernel is compiled or loaded from the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba import types
from numba.core.ccallback import CFunc

from hetsched_kernels.code_cache import source_digest
from hetsched_kernels.compilation import CONTRACT, cached_in_sources
from hetsched_kernels.lowlevel import intrinsic

_lock = RLock()


class External:
    """A C function made of numba code, found by other kernels under its symbol.

    Attributes:
        symbol: the name that LLVM resolves.
        parameters: numba types: pointers, int64, float32.
    """

    def __init__(self, function: Callable[..., Any], parameters: Sequence[Any], fast: frozenset[str] = CONTRACT) -> None:
        self.python = function
        self.parameters = tuple(parameters)
        module = function.__module__.rpartition(".")[2]
        self.symbol = f"hetsched_{module}_{function.__name__}_{source_digest(module)}"
        self._fast = fast
        self._compiled: Any = None
        self.call = self._caller()

    def install(self) -> None:
        """Compile it, or load it from the cache, and make its symbol known. Cheap when done already."""
        with _lock:
            if self._compiled is not None:
                return
            options = {"nopython": True, "boundscheck": False, "error_model": "numpy", "fastmath": set(self._fast)}
            compiled = CFunc(self.python, (self.parameters, types.void), {}, options)
            cached_in_sources(compiled, self.python)
            compiled.compile()
            llvm.add_symbol(self.symbol, compiled.address)
            self._compiled = compiled

    def define(self, context: Any, module: Any) -> Any:
        """Define the symbol in ``module`` by a call of numba's own function; returns numba's library, which has that."""
        self.install()
        native = self._compiled.native_name.removeprefix("cfunc.")
        kinds = [context.get_value_type(p) for p in self.parameters]
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), self.symbol)
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        called = ir.Function(module, context.call_conv.get_function_type(types.void, self.parameters), native)
        context.call_conv.call_function(builder, called, types.void, self.parameters, function.args)
        builder.ret_void()
        return self._compiled._library

    def _caller(self) -> Any:
        """An intrinsic that calls the symbol; arrays are passed as their data pointers."""
        external = self
        count = len(self.parameters)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if external._compiled is None:
                raise RuntimeError(f"{external.symbol} is called by a kernel that does not list it in needs")
            pointers = zip(signature.args, external.parameters, args[0] if count < 0 else args, strict=True)
            values = [_value(context, builder, have, want, value) for have, want, value in pointers]
            kind = ir.FunctionType(ir.VoidType(), [v.type for v in values])
            function = builder.module.globals.get(external.symbol) or ir.Function(builder.module, kind, external.symbol)
            builder.call(function, values)
            return context.get_dummy_value()

        names = ", ".join(f"p{i}" for i in range(count))
        space: dict[str, Any] = {}
        source = f"def call(typing_context, {names}):\n    return typed(({names},))\n"
        exec(source, {"typed": lambda given: (_signature(given, external.parameters), codegen)}, space)  # noqa: S102 - fixed text
        return intrinsic(space["call"])


def _signature(given: Sequence[Any], wanted: Sequence[Any]) -> Any:
    """Arrays stay as they are; scalars are converted to what the function takes."""
    return types.none(*[g if isinstance(g, types.Array) else w for g, w in zip(given, wanted, strict=True)])


def _value(context: Any, builder: Any, have: Any, want: Any, value: Any) -> Any:
    if isinstance(have, types.Array):
        data = context.make_array(have)(context, builder, value).data
        return builder.bitcast(data, context.get_value_type(want))
    return value


def external(*parameters: Any, fast: frozenset[str] = CONTRACT) -> Callable[[Callable[..., Any]], External]:
    """Mark a C function of numba code; see :class:`External`."""
    return lambda function: External(function, parameters, fast)
