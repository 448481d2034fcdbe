"""Which Hexagon NPU to compile for, and whether the plug-in provider of ONNX Runtime is here."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hetsched.errors import DelegateError
from hetsched.socs import SoC

PROVIDER = "QNNExecutionProvider"
#: Architectures that the HTP compiler knows. It takes any other number, and silently compiles for the oldest.
ARCHITECTURES = ("68", "69", "73", "75", "79", "81")


@dataclass(frozen=True, slots=True)
class Target:
    """An HTP: the SoC's id, the architecture and the SoC's number in Qualcomm's SDK."""

    soc: str
    htp_arch: str
    soc_model: str

    @classmethod
    def of(cls, soc: SoC | None) -> Target:
        """The HTP of a SoC.

        Raises:
            DelegateError: the SoC is not known, has no such processor, or its file does not say what the compiler calls it.
        """
        if soc is None:
            raise DelegateError("the delegate 'qnn' compiles for one SoC: give the plan's SoC, not its id only")
        found = next((p.compiler_target for p in soc.processors if p.compiler_target and p.delegate == "qnn"), None)
        if found is None or not {"htp_arch", "soc_model"} <= found.keys():
            raise DelegateError(
                f"the delegate 'qnn' cannot compile for {soc.id}: its file has no compiler_target (htp_arch, soc_model) for a Hexagon NPU"
            )
        if found["htp_arch"] not in ARCHITECTURES:
            raise DelegateError(f"{soc.id} has htp_arch {found['htp_arch']!r}: the HTP compiler knows {', '.join(ARCHITECTURES)}")
        return cls(soc.id, found["htp_arch"], found["soc_model"])

    @property
    def options(self) -> dict[str, str]:
        """Options of the provider that name the chip."""
        return {"htp_arch": self.htp_arch, "soc_model": self.soc_model}

    def __str__(self) -> str:
        return f"{self.soc} (HTP v{self.htp_arch}, SoC model {self.soc_model})"


def is_emulated() -> bool:
    """Whether the HTP library of this platform is the emulator: on x86-64 there is no Hexagon."""
    return platform.machine().lower() in {"x86_64", "amd64"} and sys.platform.startswith("linux")


def version() -> str:
    """Version of the plug-in.

    Raises:
        ImportError: it is not installed, or ONNX Runtime is not.
    """
    import onnxruntime  # noqa: F401
    import onnxruntime_qnn

    return str(onnxruntime_qnn.__version__)


@lru_cache(maxsize=1)
def devices() -> tuple[Any, ...]:
    """The provider's devices, registered with ONNX Runtime once per process.

    Raises:
        DelegateError: the library cannot be loaded, or finds no device.
    """
    import onnxruntime as ort
    import onnxruntime_qnn

    try:
        if not any(d.ep_name == PROVIDER for d in ort.get_ep_devices()):
            ort.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
        found = tuple(d for d in ort.get_ep_devices() if d.ep_name == PROVIDER)
    except Exception as e:
        raise DelegateError(f"the library of onnxruntime-qnn cannot be loaded: {str(e).splitlines()[0]}") from e
    if not found:
        raise DelegateError("the library of onnxruntime-qnn finds no device on this machine")
    return found
