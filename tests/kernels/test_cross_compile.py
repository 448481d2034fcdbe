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
        b, args = function(f"row_{bits}", byte, v.I64.as_pointer(), byte, real, word, real, v.I64)
        tile_bits.emit_row(b, args, bits)
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
        plain = body.count("\\tmul\\tv") + body.count("\\tmla\\tv")
        print(name, body.count("\\tsdot\\t"), body.count("\\tusdot\\t"), body.count("\\tsmmla\\t"), plain)
""")


@cache
def _counts(features: str) -> dict[str, tuple[int, int, int, int]]:
    """Per function: how many ``sdot``, ``usdot``, ``smmla`` and plain vector multiplications."""
    process = subprocess.run([sys.executable, "-c", _SCRIPT, features], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    rows = [line.split() for line in process.stdout.splitlines()]
    return {name: (int(a), int(b), int(c), int(d)) for name, a, b, c, d in rows}


@pytest.mark.parametrize("name", ["row_2", "row_4", "row_5", "row_6"])
def test_codes_below_128_take_one_sdot(name: str) -> None:
    assert _counts("neon,dotprod")[name] == (8, 0, 0, 0)


def test_dotprod_serves_every_width() -> None:
    counts = _counts("neon,dotprod")
    assert all(sdot >= 8 and usdot == smmla == plain == 0 for sdot, usdot, smmla, plain in counts.values()), counts


def test_i8mm_multiplies_bytes_of_either_sign_at_once() -> None:
    counts = _counts("neon,dotprod,i8mm")
    assert counts["row_8"][:3] == (0, 8, 0)
    assert counts["rows"] == (0, 0, 16, 0)  # 8 rows and 4 columns, two by two, eight of 16 values at a time


def test_without_either_it_is_plain_arithmetic() -> None:
    counts = _counts("neon")
    assert all(sdot == usdot == smmla == 0 and plain > 0 for sdot, usdot, smmla, plain in counts.values()), counts


_MATRICES = textwrap.dedent("""
    import ctypes
    import llvmlite.binding as llvm
    import llvmlite.ir as ir
    import numpy as np
    import hetsched_kernels.target as targets

    arm = targets.target_of("aarch64-unknown-linux-gnu", "generic", {"neon", "dotprod", "i8mm"})
    targets.target = lambda: arm
    from hetsched_kernels import tile_bytes, vectors as v

    plain = v.call

    def call(b, name, result, args):
        # What the instruction is defined to do: two rows of eight bytes by two others.
        if "smmla" not in name:
            return plain(b, name, result, args)
        total, left, right = args
        for row in range(2):
            for column in range(2):
                place = ir.Constant(v.I32, 2 * row + column)
                value = b.extract_element(total, place)
                for k in range(8):
                    pair = [b.sext(b.extract_element(x, ir.Constant(v.I32, 8 * at + k)), v.I32) for x, at in ((left, row), (right, column))]
                    value = b.add(value, b.mul(*pair))
                total = b.insert_element(total, value, place)
        return total

    v.call = call
    module = ir.Module("matrices")
    byte, word, real = v.I8.as_pointer(), v.I32.as_pointer(), v.F32.as_pointer()
    kinds = (byte, byte, v.I64, real, word, real, real, v.I64, v.I64, v.I64, v.I64, real, v.I64)
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "rows")
    b = ir.IRBuilder(made.append_basic_block())
    tile_bytes.emit_rows(b, list(made.args), 4)
    b.ret_void()

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    rng, groups, steps, lanes = np.random.default_rng(0), 3, 2, 4
    depth = groups * steps * tile_bytes.STEP
    codes, x = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((lanes, depth), (4, depth)))
    x_scales, scales, mins = (rng.random(shape).astype(np.float32) for shape in ((4, groups), (groups, lanes), (groups, lanes)))
    x_sums = x.reshape(4, groups, -1).sum(2, dtype=np.int32)
    packed, out = np.ascontiguousarray(codes.reshape(lanes, -1, 4).transpose(1, 0, 2)), np.full((4, lanes), np.nan, np.float32)
    whole = np.einsum("mgk,ngk->mgn", x.reshape(4, groups, -1).astype(float), codes.reshape(lanes, groups, -1).astype(float))
    wanted = (whole * x_scales[:, :, None] * scales + (x_scales * x_sums)[:, :, None] * mins).sum(1)
    values = (packed, x, depth, x_scales, x_sums, scales, mins, 0, 1, groups, steps, out, 3)
    types = [ctypes.c_int64 if isinstance(value, int) else ctypes.c_void_p for value in values]
    run = ctypes.CFUNCTYPE(None, *types)(engine.get_function_address("rows"))
    run(*(value if isinstance(value, int) else value.ctypes.data for value in values))
    np.testing.assert_allclose(out[:3], wanted[:3], rtol=1e-5)
    assert np.isnan(out[3]).all()
""")


def test_rows_multiplied_as_matrices_are_the_product() -> None:
    process = subprocess.run([sys.executable, "-c", _MATRICES], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
