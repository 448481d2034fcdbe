"""The JSON of an AI Hub profile job (``job.download_profile()``): microseconds of every layer and the unit that ran it."""

from __future__ import annotations

from typing import Any

from hetsched.errors import TraceError
from hetsched.profiles.timings import Profile, Timing

FORMAT = "AI Hub profile"


def recognises(document: Any) -> bool:
    """Whether a JSON document has the two parts of such a profile."""
    return isinstance(document, dict) and "execution_summary" in document and "execution_detail" in document


def read(document: Any, where: str) -> Profile:
    """Layers in the order of the profile.

    Raises:
        TraceError: the layers are not a list, or one has no time.
    """
    layers = document["execution_detail"]
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        raise TraceError(f"{where} has no list of layers in 'execution_detail': download the whole profile of the job")
    summary = document["execution_summary"]
    total = summary.get("estimated_inference_time") if isinstance(summary, dict) else None
    notes = [f"the whole model took {total / 1e3:.3f} ms"] if isinstance(total, int | float) and not isinstance(total, bool) else []
    timings = []
    for layer in layers:
        microseconds = layer.get("execution_time")
        if microseconds is None:
            continue
        if isinstance(microseconds, bool) or not isinstance(microseconds, int | float):
            raise TraceError(f"{where}: layer {layer.get('name')!r} has the time {microseconds!r}, not microseconds")
        unit = str(layer.get("compute_unit", "")).lower()
        queue = unit if unit in ("cpu", "gpu", "npu") else ""
        timings.append(Timing(str(layer.get("name", "")), str(layer.get("type", "")), microseconds / 1e6, queue))
    return Profile(FORMAT, tuple(timings), tuple(notes), home="npu")
