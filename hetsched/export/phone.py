"""A script beside a bundle that runs its segments on an Android phone and brings the profile back for ``hetsched import``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from hetsched.export.bundle import BundleFolder, BundleSegment
from hetsched.socs import SoC

SCRIPT, MERGE = "run_on_phone.sh", "merge_profiles.py"
#: How Android shares memory between processors.
_HANDLE = "ahardwarebuffer"
_SUFFIX = "ExecutionProvider"
#: What the compiler needs to know where there is no such chip; the runner has a list of its own of what these may be.
_TARGET = frozenset({"htp_arch", "soc_model"})


def is_android(soc: SoC) -> bool:
    """Whether a SoC runs Android: its processors pass tensors in that system's buffers."""
    return any(link.handle == _HANDLE for link in soc.links)


def write(soc: SoC, segments: Sequence[BundleSegment], folder: BundleFolder) -> None:
    """Write the script, for an Android SoC; nothing for any other.

    Args:
        soc: what the plan was made for.
        segments: as the manifest has them, with files and settings for ONNX Runtime.
        folder: the bundle.
    """
    if not is_android(soc):
        return
    text = (files("hetsched.export") / SCRIPT).read_text()
    calls = "\n".join(f"segment {s.index:03d} {s.file} {arguments(s)}" for s in segments)
    folder.write(SCRIPT, text.replace("# SEGMENTS\n", f"{calls}\n").encode())
    folder.write(MERGE, (files("hetsched.export") / MERGE).read_bytes())


def arguments(segment: BundleSegment) -> str:
    r"""A segment's provider and options, in the words of ``onnxruntime_perf_test``, quoted for a shell.

    Examples:
        >>> from types import SimpleNamespace
        >>> arguments(SimpleNamespace(settings={"provider": "CPUExecutionProvider", "intra_op_num_threads": "6"}))
        '"-e cpu -x 6"'
        >>> arguments(SimpleNamespace(settings={"provider": "QNNExecutionProvider", "backend_type": "htp", "htp_arch": "75"}))
        '"-e qnn -C \'session.disable_cpu_ep_fallback|1\' -i \'backend_type|htp\'"'
    """
    settings = {k: v for k, v in segment.settings.items() if k not in _TARGET}
    provider = settings.pop("provider").removesuffix(_SUFFIX).lower()
    threads = settings.pop("intra_op_num_threads", "")
    words = [f"-e {provider}"]
    if threads:
        words.append(f"-x {threads}")
    if provider != "cpu":
        words.append("-C 'session.disable_cpu_ep_fallback|1'")
    if settings:
        words.append(f"-i '{' '.join(f'{k}|{v}' for k, v in settings.items())}'")
    return f'"{" ".join(words)}"'
