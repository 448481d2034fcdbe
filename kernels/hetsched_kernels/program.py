"""Compiled programs: a table of kernel addresses and prepared arguments, run without the interpreter by one thread or several.

A program is a list of steps; a step is a list of calls that do not depend on each other. Threads that run it together take calls
of a step as they become free; the next step begins when all are done, whether or not every thread took part. A call is a *thunk* (a
C function that unpacks the arguments of one kernel) and its slots: for an array its address and length, for a number its bits.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.core.registry import cpu_target

from hetsched_kernels import lowlevel
from hetsched_kernels import vectors as v
from hetsched_kernels.arrays import Array, InI64, OutI64
from hetsched_kernels.compilation import Kernel, Variant, block, kernel
from hetsched_kernels.fence import load_acquire, relax, store_release
from hetsched_kernels.lowlevel import alloca_once, intrinsic
from hetsched_kernels.parts import array_from
from hetsched_kernels.tables import MAIL, MAIL_THREADS, MAILS, STRIDE, Program, counters

__all__ = [
    "Call", "Program", "addresses", "array_slots", "clock_ns", "compile_program", "core", "counters", "run_program", "serve",
    "slots_of", "thunk",
]  # fmt: skip

_lock = RLock()
_thunks: dict[tuple[int, tuple[str, ...]], tuple[int, Any]] = {}


class Call(NamedTuple):
    """A kernel and its arguments.

    Attributes:
        kernel: the entry point.
        dtypes: numpy names of its element types.
        args: its arguments.
        refusal: what it means when the kernel returns False, which ends the program; kernels that return nothing never refuse.
    """

    kernel: Any
    dtypes: tuple[str, ...]
    args: tuple[Any, ...]
    refusal: str = ""

    def run(self) -> Any:
        """Call it from Python."""
        return self.kernel(*self.args)


def compile_program(steps: Sequence[Sequence[Call]]) -> Program:
    """A program of ``steps``; their kernels are compiled, or loaded from the cache."""
    calls = [core(call) for step in steps for call in step]
    slots = [slots_of(call) for call in calls]
    table = np.array([[a, s.ctypes.data] for a, s in zip(addresses(calls), slots, strict=True)], np.int64).reshape(-1)
    starts = np.cumsum([0, *(len(step) for step in steps)])
    return Program(table, starts.astype(np.int64), (*slots, *calls))


def core(call: Call) -> Call:
    """The call of the kernel behind a variant."""
    if isinstance(call.kernel, Variant):
        return Call(call.kernel.core, call.dtypes, call.kernel.arrange(*call.args), call.refusal)
    return call


def slots_of(call: Call) -> Array:
    """The arguments as int64: an array's address and length, an integer, a float's bits."""
    entry: Kernel = call.kernel
    values: list[int] = []
    for kind, value in zip(entry.signature(*call.dtypes), call.args, strict=True):
        if isinstance(kind, types.Array):
            values += [value.__array_interface__["data"][0], value.size]
        elif isinstance(kind, types.Float):
            values.append(struct.unpack("<i", struct.pack("<f", value))[0])
        else:
            values.append(int(value))
    return np.array(values, np.int64)


def array_slots(call: Call) -> dict[int, int]:
    """Which slot holds the address of each argument that is an array, by the argument's position."""
    out, at = {}, 0
    for position, kind in enumerate(call.kernel.signature(*call.dtypes)):
        if isinstance(kind, types.Array):
            out[position] = at
            at += 1
        at += 1
    return out


def addresses(calls: Iterable[Call]) -> list[int]:
    """The thunk of each call; those that are new are compiled together."""
    calls = list(calls)
    keys = [(id(call.kernel), call.dtypes) for call in calls]
    with _lock, lowlevel.compiler_lock:
        new = {key: call for key, call in zip(keys, calls, strict=True) if key not in _thunks}
        if new:
            _compile(new)
        return [_thunks[key][0] for key in keys]


def _compile(new: dict[tuple[int, tuple[str, ...]], Call]) -> None:
    context: Any = cpu_target.target_context
    library = context.codegen().create_library("hetsched_thunks")
    module = library.create_ir_module("hetsched_thunks")
    names = {}
    for number, (key, call) in enumerate(new.items()):
        names[key] = f"hetsched_thunk_{len(_thunks)}_{number}"
        _thunk_to_address(context, module, names[key], call)
    library.add_ir_module(module)
    library.finalize()
    for key, name in names.items():
        # Numba's library owns the code, and the kernel must outlive its id.
        _thunks[key] = library.get_pointer_to_function(name), (library, new[key].kernel)


def _thunk_to_address(context: Any, module: Any, name: str, call: Call) -> None:
    compiled = call.kernel.compile(*call.dtypes).overloads[call.kernel.signature(*call.dtypes)]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    thunk(context, module, name, call.kernel, call.dtypes, lambda builder, kind: builder.inttoptr(v.index(address), kind.as_pointer()))


def thunk(context: Any, module: Any, name: str, entry: Kernel, dtypes: tuple[str, ...], callee: Callable[[Any, Any], Any]) -> None:
    """Define in ``module`` the function ``name``: it unpacks int64 words and calls what ``callee`` gives for a builder and a type.

    It returns 0 if the kernel returned False, else 1.
    """
    signature = entry.signature(*dtypes)
    result = entry.compile(*dtypes).overloads[signature].signature.return_type
    function = ir.Function(module, ir.FunctionType(v.I64, [v.I64.as_pointer()]), name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    values, at = [], 0
    for kind in signature:
        words = [builder.load(builder.gep(function.args[0], [v.index(at + i)])) for i in range(2 if isinstance(kind, types.Array) else 1)]
        values.append(_value(context, builder, kind, words))
        at += len(words)
    called = callee(builder, context.call_conv.get_function_type(result, signature))
    _, returned = context.call_conv.call_function(builder, called, result, signature, values)
    builder.ret(builder.zext(returned, v.I64) if isinstance(result, types.Boolean) else v.index(1))


def _value(context: Any, builder: Any, kind: Any, words: list[Any]) -> Any:
    if isinstance(kind, types.Array):
        pointer = builder.inttoptr(words[0], context.get_data_type(kind.dtype).as_pointer())
        return array_from(context, builder, kind, pointer, words[1])
    if isinstance(kind, types.Float):
        return builder.bitcast(builder.trunc(words[0], v.I32), v.F32)
    if isinstance(kind, types.Boolean):
        return builder.trunc(words[0], context.get_value_type(kind))
    return words[0]


@intrinsic
def _call(tc: Any, thunk: Any, slots: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(v.I64, [v.I64.as_pointer()])
        function = builder.inttoptr(args[0], kind.as_pointer())
        return builder.call(function, [builder.inttoptr(args[1], v.I64.as_pointer())])

    return types.int64(types.int64, types.int64), codegen


@block
def _run(table: Any, call: Any, shared: Any, stop: Any) -> None:
    """Make a call, unless the program has ended; a kernel that refuses ends it."""
    if load_acquire(stop, 0) == 0 and _call(table[2 * call], table[2 * call + 1]) == 0:
        store_release(shared, shared.shape[0] - STRIDE, call + 1)
        store_release(stop, 0, 1)


def _element(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.gep(data, [args[1]])


@intrinsic
def _count(tc: Any, array: Any, index: Any) -> Any:
    """Add 1 to ``array[index]`` atomically."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.atomic_rmw("add", _element(context, builder, signature, args), v.index(1), "acq_rel")
        return context.get_dummy_value()

    return types.none(array, types.int64), codegen


@intrinsic
def _swap(tc: Any, array: Any, index: Any, expected: Any, wanted: Any) -> Any:
    """Set ``array[index]`` if it is ``expected``; whether it was."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _element(context, builder, signature, args)
        return builder.extract_value(builder.cmpxchg(pointer, args[2], args[3], "acq_rel", "acquire"), 1)

    return types.boolean(array, types.int64, types.int64, types.int64), codegen


class _System:
    """Functions of the C library, under symbols of our own."""

    def install(self) -> None:
        """Make them known to LLVM."""
        for name in ("clock_gettime", "sched_yield"):
            llvm.add_symbol(f"hetsched_{name}", ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value)


_SYSTEM = _System()
#: The clock that time.perf_counter_ns reads: CLOCK_UPTIME_RAW on macOS, CLOCK_MONOTONIC elsewhere.
_CLOCK_ID = 8 if sys.platform == "darwin" else 1


@intrinsic
def clock_ns(tc: Any) -> Any:
    """``time.perf_counter_ns``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(v.I32, [v.I32, v.I64.as_pointer()])
        function = builder.module.globals.get("hetsched_clock_gettime") or ir.Function(builder.module, kind, "hetsched_clock_gettime")
        time = alloca_once(builder, v.I64, size=2)
        builder.call(function, [v.I32(_CLOCK_ID), time])
        seconds, rest = (builder.load(builder.gep(time, [v.index(i)])) for i in (0, 1))
        return builder.add(builder.mul(seconds, v.index(1_000_000_000)), rest)

    return types.int64(), codegen


@intrinsic
def _give_way(tc: Any) -> Any:
    """Let another thread have this core."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = "hetsched_sched_yield"
        builder.call(builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(v.I32, []), name), [])
        return context.get_dummy_value()

    return types.none(), codegen


#: How often a thread looks at a step that others still work at before it lets them have its core.
_LOOKS = 2000


@block
def _work(table: Any, first: Any, calls: Any, shared: Any, at: Any, stop: Any, before: Any, stamps: Any, step: Any) -> None:
    """Take and run calls of a step until none is left, then wait for those that others took."""
    all_of_them = before + calls
    taken = load_acquire(shared, at)
    while taken < all_of_them:
        if _swap(shared, at, taken, taken + 1):
            _run(table, first + taken - before, shared, stop)
            if stamps.shape[0] > 0:
                stamps[step] = clock_ns()
            _count(shared, at + STRIDE)
        taken = load_acquire(shared, at)
    looks = 0
    while load_acquire(shared, at + STRIDE) < all_of_them:
        looks += 1
        if looks > _LOOKS:
            _give_way()
        else:
            relax()


@kernel(needs=(_SYSTEM,))
def run_program(
    table: InI64, steps: InI64, shared: OutI64, stop: OutI64, stamps: OutI64, begin: int, end: int, threads: int, turn: int
) -> None:
    """Run steps ``begin`` to ``end``. Other threads that call it with the same arguments help; it does not need them.

    Args:
        table: :attr:`Program.table`.
        steps: :attr:`Program.steps`.
        shared: :func:`counters`, of this program alone.
        stop: int64 [1]; not 0: leave out the calls that have not begun. A kernel that refuses sets it.
        stamps: int64 [steps], the time at which each step's calls were done (``time.perf_counter_ns``); empty: not wanted.
        begin: first step.
        end: one past the last.
        threads: how many threads may run it.
        turn: how often every step was run before.
    """
    for step in range(begin, end):
        first, calls = steps[step], steps[step + 1] - steps[step]
        if threads > 1:
            _work(table, first, calls, shared, 2 * step * STRIDE, stop, turn * calls, stamps, step)
        else:
            for call in range(first, first + calls):
                _run(table, call, shared, stop)
            if stamps.shape[0] > 0:
                stamps[step] = clock_ns()


@kernel
def serve(mail: InI64, own: OutI64, thunk: int, slots: int, place: int, spins: int) -> None:
    """Help with runs that are put into ``mail`` until none has come for ``spins`` looks; one that is late takes the newest alone.

    Args:
        mail: :func:`hetsched_kernels.tables.mailbox`.
        own: int64 [:data:`hetsched_kernels.tables.MAIL`] of this thread: the number of the last run that it looked at, then its slots.
        thunk: that of :data:`run_program`.
        slots: the address of the second element of ``own``.
        place: which of the threads it is.
        spins: how often it looks before it gives up.
    """
    looks = 0
    while looks < spins:
        number = load_acquire(mail, 0)
        if number <= own[0]:
            looks += 1
            relax()
            continue
        looks, at = 0, (1 + number % MAILS) * MAIL
        for i in range(1, MAIL):
            own[i] = load_acquire(mail, at + i)
        if load_acquire(mail, 0) < number + MAILS // 2:  # else it may have been overwritten meanwhile
            store_release(own, 0, number)  # what earlier runs are made of is not looked at any more
            if place < own[MAIL_THREADS]:
                _call(thunk, slots)
