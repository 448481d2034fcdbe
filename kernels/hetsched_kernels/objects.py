"""Machine code of kernels as object files that need nothing of numba, for processes that must start fast.

An object holds one *thunk* (:mod:`hetsched_kernels.program`) and all that it calls, except external functions and the C
library. It is made of the code that numba has compiled and optimised already, and kept beside it in the cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import llvmlite.ir as ir
import numba
from numba.core.registry import cpu_target

from hetsched_kernels import code_cache, elf, fence, lowlevel, program
from hetsched_kernels.compilation import Kernel
from hetsched_kernels.external import External
from hetsched_kernels.native import address_of
from hetsched_kernels.tables import Image

#: The kernels that the runtime itself calls.
OWN = tuple((k, ()) for k in (fence.signal, fence.wait_ge, fence.pause, program.run_program, program.serve))
#: Reference counts of numba's arrays. Kernels own none, so that these are never reached; what does allocate is refused.
_UNREACHED = "define void @NRT_MemInfo_call_dtor(ptr %m) {\n ret void\n}\n"


def symbol_of(entry: Kernel, dtypes: tuple[str, ...]) -> str:
    """The symbol of a kernel's thunk."""
    return "_".join(("thunk", _module(entry.python), entry.name, *dtypes))


def link(entries: Iterable[tuple[Kernel, tuple[str, ...]]]) -> Image:
    """One image with the thunks of the given kernels and element types.

    Raises:
        UnlinkableError: a kernel allocates memory or needs a function that the C library does not have, or this is no x86-64 Linux.
    """
    wanted = {symbol_of(*key): key for key in entries}
    externals = {need.symbol: need for entry, _ in wanted.values() for need in entry.needs if isinstance(need, External)}
    with lowlevel.compiler_lock:
        objects = [_kernel_object(symbol, *key) for symbol, key in sorted(wanted.items())]
        objects += [_external_object(external) for _, external in sorted(externals.items())]
    image = elf.link(objects)
    lacking = [name for name in image.imports if address_of(name) is None]
    if lacking:
        raise elf.UnlinkableError(f"the function {lacking[0]!r} is not in the C library")
    return image


def _module(function: Callable[..., Any]) -> str:
    return function.__module__.rpartition(".")[2]


def _kernel_object(symbol: str, entry: Kernel, dtypes: tuple[str, ...]) -> bytes:
    def make() -> bytes:
        compiled = entry.compile(*dtypes).overloads[entry.signature(*dtypes)]
        module = _new_module(symbol)
        name = compiled.fndesc.llvm_func_name
        program.thunk(cpu_target.target_context, module, symbol, entry, dtypes, lambda _, kind: ir.Function(module, kind, name))
        return _emit(module, symbol, compiled.library)

    return _kept(symbol, _module(entry.python), make)


def _external_object(external: External) -> bytes:
    def make() -> bytes:
        module = _new_module(external.symbol)
        return _emit(module, external.symbol, external.define(cpu_target.target_context, module))

    return _kept(external.symbol, _module(external.python), make)


def _kept(symbol: str, module: str, make: Callable[[], bytes]) -> bytes:
    """An object from the cache of the module's sources, or made and put there."""
    compiler = (code_cache.source_digest("objects"), numba.__version__, llvmlite.__version__)
    target = "-".join((*compiler, *map(str, cpu_target.target_context.codegen().magic_tuple())))
    path = Path(code_cache.cache_folder(module)) / f"{symbol}.{hashlib.sha256(target.encode()).hexdigest()[:16]}.o"
    with suppress(OSError):
        checked, _, data = path.read_bytes().partition(b"\n")
        if checked == hashlib.sha256(data).hexdigest().encode():
            return data
    data = make()
    code_cache.write_whole(path, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
    return data


def _new_module(name: str) -> Any:
    return cpu_target.target_context.codegen().create_library(name).create_ir_module(name)


def _emit(module: Any, symbol: str, library: Any) -> bytes:
    """The object of ``symbol`` in ``module`` and of what it calls in numba's ``library``."""
    linked = llvm.parse_assembly(str(module))
    compiled = library._get_module_for_linking().clone()
    for function in compiled.functions:
        if not function.is_declaration:
            function.linkage = "external"  # functions that could be merged are linked only where somebody calls them
    linked.link_in(compiled)
    linked.link_in(llvm.parse_assembly(_UNREACHED))
    for defined in (*linked.functions, *linked.global_variables):
        if not defined.is_declaration and defined.name != symbol:
            defined.linkage = "internal"
    machine = _target_machine()
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(linked, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return bytes(machine.emit_object(linked))


def _target_machine() -> Any:
    llvm.initialize_native_asmparser()  # for the instructions that some kernels write themselves
    triple, cpu, features = cpu_target.target_context.codegen().magic_tuple()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default")
