"""What the machine code may use: numba's effective target, never the host's own list of features.

``NUMBA_CPU_NAME=haswell`` on a newer host makes numba compile for haswell; an AVX-512 intrinsic would then end the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm
from numba.core.registry import cpu_target

_AVX512 = {
    "skylake-avx512", "cascadelake", "cooperlake", "icelake-client", "icelake-server", "tigerlake", "rocketlake",
    "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids", "znver4", "znver5",
}  # fmt: skip
_BF16 = {
    "cooperlake", "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids", "znver4", "znver5",
}  # fmt: skip
_AVX_VNNI = {"alderlake", "raptorlake", "meteorlake", "arrowlake", "sierraforest"}
_AVX2 = {
    "haswell",
    "broadwell",
    "skylake",
    "znver1",
    "znver2",
    "znver3",
    "alderlake",
    "raptorlake",
    "meteorlake",
    "arrowlake",
    "sierraforest",
    "x86-64-v3",
}


@dataclass(frozen=True)
class Target:
    """The instruction sets that kernels are compiled for.

    Attributes:
        triple: LLVM's target triple.
        cpu: LLVM's name of the processor.
        x86: whether it is x86-64.
        avx2: 256-bit integer and FMA instructions may be used.
        avx512: 512-bit registers may be used (foundation, byte/word and vector-length extensions).
        vnni: the 512-bit ``vpdpbusd`` may be used.
        avx_vnni: the 256-bit ``vpdpbusd`` may be used.
        bf16: the 512-bit ``vdpbf16ps`` may be used.
        dotprod: aarch64's ``sdot`` may be used.
        i8mm: aarch64's ``usdot`` and ``smmla`` may be used.
        amx: tile registers and their int8 products may be used, once the process has asked for them (``amx_int8``).
        vbmi: the byte permutation ``vpermb`` may be used.
        half: float16 conversions are instructions, not library calls (which the JIT cannot find).
        byte_operands: LLVM wants ``vpdpbusd`` operands as bytes rather than 32-bit words.
    """

    triple: str
    cpu: str
    x86: bool
    avx2: bool
    avx512: bool
    vnni: bool
    avx_vnni: bool
    bf16: bool
    dotprod: bool
    i8mm: bool
    amx: bool
    vbmi: bool
    half: bool
    byte_operands: bool

    @property
    def f32_lanes(self) -> int:
        """Lanes of float32 in the widest register."""
        if self.avx512:
            return 16
        return 8 if self.avx2 else 4

    @property
    def registers(self) -> int:
        """Vector registers that a microkernel can count on."""
        return 32 if self.avx512 or not self.x86 else 16


@cache
def target() -> Target:
    """The target that numba compiles for in this process."""
    triple, cpu, features = cpu_target.target_context.codegen().magic_tuple()
    named = {f[1:] for f in str(features).split(",") if f.startswith("+")}
    return target_of(str(triple), str(cpu), named or _named_features(str(cpu)))


def target_of(triple: str, cpu: str, named: set[str]) -> Target:
    """The target with LLVM's features ``named``."""
    x86, arm = triple.startswith(("x86_64", "i686", "amd64")), triple.startswith(("aarch64", "arm64"))
    avx512 = x86 and {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= named
    vnni = avx512 and "avx512vnni" in named
    return Target(
        triple, cpu, x86,
        avx2=avx512 or (x86 and {"avx2", "fma"} <= named),
        avx512=avx512,
        vnni=vnni,
        avx_vnni=x86 and "avxvnni" in named and {"avx2", "fma"} <= named,
        bf16=avx512 and "avx512bf16" in named,
        dotprod=arm and "dotprod" in named,
        i8mm=arm and "i8mm" in named,
        amx=vnni and "linux" in triple and {"amx-tile", "amx-int8"} <= named,
        vbmi=avx512 and "avx512vbmi" in named,
        half=avx512 or not x86 or "f16c" in named,
        byte_operands=x86 and _accepts_bytes(),
    )  # fmt: skip


def _named_features(cpu: str) -> set[str]:
    """Features implied by a processor's name, for the few names that matter; nothing for an unknown one."""
    if cpu in _AVX512:
        wide = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx2", "fma", "f16c"}
        if cpu == "skylake-avx512":
            return wide
        return wide | {"avx512vnni"} | ({"avx512bf16"} if cpu in _BF16 else set())
    if cpu in _AVX2:
        return {"avx2", "fma", "f16c"} | ({"avxvnni"} if cpu in _AVX_VNNI else set())
    return set()


def _accepts_bytes() -> bool:
    """LLVM 22 declares ``vpdpbusd`` on bytes, older versions on words: ask which one verifies."""
    kind = "<64 x i8>"
    text = f"""declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, {kind}, {kind})
define <16 x i32> @f(<16 x i32> %a, {kind} %b, {kind} %c) {{
 %r = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %a, {kind} %b, {kind} %c)
 ret <16 x i32> %r }}"""
    try:
        llvm.parse_assembly(text).verify()
    except RuntimeError:
        return False
    return True
