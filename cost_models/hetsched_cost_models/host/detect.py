"""What this machine is: cores, caches, instruction sets, memory. Reads a few small files; nothing is measured."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

#: Instruction-set flags that decide how fast the kernels are; only these enter the fingerprint.
_FLAGS = (
    "sse4_1", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni",
    "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "fphp", "asimdhp", "sve", "sve2", "sme",
)  # fmt: skip
_NOT_KERNELS = ("benchmark", "comparison", "measure")
_SYS_CPU = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Machine:
    """The host's hardware as the operating system reports it. Sizes are bytes, per instance of a cache; 0: unknown."""

    model: str
    architecture: str
    system: str
    cores: tuple[int, ...]
    flags: tuple[str, ...]
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int
    max_hz: float
    kernels: str

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change when a measurement would: processor, usable cores, flags, caches, kernels."""
        facts = {k: v for k, v in asdict(self).items() if k not in ("memory_bytes", "max_hz")}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def detect() -> Machine:
    """Look at this machine. What cannot be found out (macOS, containers) stays 0 or empty."""
    cores = usable_cores()
    info = _cpuinfo()
    return Machine(
        model=info.get("model name") or info.get("Hardware") or _arm_part(info) or platform.processor() or platform.machine(),
        architecture=platform.machine(),
        system=platform.system(),
        cores=cores,
        flags=tuple(f for f in _FLAGS if f in (info.get("flags") or info.get("Features") or "").split()),
        l1d_bytes=cache_bytes(cores[0], 1),
        l2_bytes=cache_bytes(cores[0], 2),
        l3_bytes=cache_bytes(cores[0], 3),
        memory_bytes=_memory_bytes(),
        max_hz=_max_hz(cores[0], info),
        kernels=kernels_digest(),
    )


def kernels_digest() -> str:
    """Hash of the sources of the kernels and of the probes: rates measured with others say nothing about these.

    What only tests or compares kernels does not enter it.
    """
    spec = find_spec("hetsched_kernels")
    kernels = [
        p
        for folder in (spec.submodule_search_locations or () if spec else ())
        for p in Path(folder).glob("*.py")
        if not p.stem.startswith(_NOT_KERNELS)
    ]
    digest = hashlib.sha256()
    for path in (*sorted(kernels), *sorted(Path(__file__).parent.glob("probes*.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def usable_cores() -> tuple[int, ...]:
    """Cores that this process may run on, ascending (all of them where affinity is unknown)."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cache_bytes(core: int, level: int, root: Path = _SYS_CPU) -> int:
    """Size of the core's data or unified cache of a level; 0 if unknown."""
    for index in sorted((root / f"cpu{core}" / "cache").glob("index*")):
        try:
            if int((index / "level").read_text()) == level and (index / "type").read_text().strip() != "Instruction":
                return _size((index / "size").read_text())
        except (OSError, ValueError):
            continue
    return 0


def _size(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([KMG]?)\s*", text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[match[2]]


def _cpuinfo(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """Fields of the first processor; empty where the file does not exist."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _arm_part(info: dict[str, str]) -> str:
    part = info.get("CPU part")
    return f"Arm {info.get('CPU implementer', '?')} part {part}" if part else ""


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def _max_hz(core: int, info: dict[str, str]) -> float:
    try:
        return float((_SYS_CPU / f"cpu{core}" / "cpufreq" / "cpuinfo_max_freq").read_text()) * 1e3
    except (OSError, ValueError):
        pass
    try:
        return float(info["cpu MHz"]) * 1e6
    except (KeyError, ValueError):
        return 0.0
