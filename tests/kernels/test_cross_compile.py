"""The microkernels for aarch64, compiled here: their assembly holds the instructions that they are made for."""

import subprocess
import sys
import textwrap
from functools import cache

import pytest

_SCRIPT = textwrap.dedent("""
    import sys
    import llvmlite.binding as llvm
    import llvmlite.ir as ir
    import hetsched_kernels.target as targets

    triple, features = "aarch64-unknown-linux-gnu", set(filter(None, sys.argv[1].split(",")))
    arm = targets.target_of(triple, "generic", features)
    targets.target = lambda: arm
    from hetsched_kernels import tile_bits, tile_bytes, tile_kv, vectors as v

    module = ir.Module("arm")
    byte, word, real = v.I8.as_pointer(), v.I32.as_pointer(), v.F32.as_pointer()

    def function(name, *kinds):
        made = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
        builder = ir.IRBuilder(made.append_basic_block())
        return builder, list(made.args)

    for bits in (2, 4, 5, 6, 8):
        b, args = function(f"row_{bits}", byte, v.I64, byte, real, word, real, real, v.I64, v.I64, real)
        tile_bits.emit_row(b, args, bits, False, 1)
        b.ret_void()
    b, args = function("rows", byte, byte, v.I64, real, word, real, real, v.I64, v.I64, v.I64, v.I64, real, v.I64)
    tile_bytes.emit_rows(b, args, 8)
    b.ret_void()

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(features=",".join("+" + f for f in features), opt=3)
    parsed = llvm.parse_assembly(str(module).replace(module.triple, triple))
    parsed.triple = triple
    parsed.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    passes.getModulePassManager().run(parsed, passes)
    assembly = machine.emit_assembly(parsed)
    names = [f"row_{bits}" for bits in (2, 4, 5, 6, 8)] + ["rows"]
    for name in names:
        body = assembly.split(f"\\n{name}:")[1].split(".Lfunc_end")[0]
        print(name, body.count("sdot") - body.count("usdot"), body.count("usdot"), body.count("\\tmul\\tv") + body.count("\\tmla\\tv"))
""")


@cache
def _counts(features: str) -> dict[str, tuple[int, int, int]]:
    """Per function: how many ``sdot``, ``usdot`` and plain vector multiplications."""
    process = subprocess.run([sys.executable, "-c", _SCRIPT, features], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    rows = [line.split() for line in process.stdout.splitlines()]
    return {name: (int(a), int(b), int(c)) for name, a, b, c in rows}


@pytest.mark.parametrize("name", ["row_2", "row_4", "row_5", "row_6"])
def test_codes_below_128_take_one_sdot(name: str) -> None:
    assert _counts("neon,dotprod")[name] == (8, 0, 0)


def test_dotprod_serves_every_width() -> None:
    counts = _counts("neon,dotprod")
    assert all(sdot >= 8 and usdot == 0 and plain == 0 for sdot, usdot, plain in counts.values()), counts


def test_i8mm_multiplies_bytes_of_either_sign_at_once() -> None:
    counts = _counts("neon,dotprod,i8mm")
    assert counts["row_8"][:2] == (0, 8)
    assert counts["rows"][:2] == (0, 32)


def test_without_either_it_is_plain_arithmetic() -> None:
    counts = _counts("neon")
    assert all(sdot == usdot == 0 and plain > 0 for sdot, usdot, plain in counts.values()), counts
