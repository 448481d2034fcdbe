"""``hetsched calibrate``, ``socs`` and ``delegates``: what this machine and this installation have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetsched.cli.progress import progress


def calibrate(quiet: bool) -> dict[str, Any]:
    """Measure the host again; returns the measurement as a plain dict."""
    from hetsched_cost_models.host import calibrate as measure

    with progress("calibrating", quiet) as bar:
        measured = measure(progress=bar.stage)
    return {**measured.as_dict(), "notes": list(measured.notes)}


def soc_rows() -> list[dict[str, Any]]:
    """One row a SoC file."""
    from hetsched.soc_files import list_socs, load_soc

    rows = []
    for name in list_socs():
        soc = load_soc(name)
        rows.append(
            {
                "id": soc.id,
                "name": soc.name,
                "cpu": next(p.model for p in soc.processors if p.kind == "cpu"),
                "gpu": next((p.model for p in soc.processors if p.kind == "gpu"), ""),
                "npu": next((p.model for p in soc.processors if p.kind == "npu"), ""),
                "memory_gb_s": round(float(soc.memory.peak_bytes_s) / 1e9, 1),
            }
        )
    return [*rows, {"id": "host", "name": "this machine, measured", "cpu": "", "gpu": "", "npu": "", "memory_gb_s": None}]


def soc_details(ids: Sequence[str]) -> list[dict[str, Any]]:
    """Everything about some SoCs, sources included."""
    from hetsched.app.inputs import soc

    return [soc(i).model_dump(mode="json") for i in ids]


def delegate_rows() -> list[dict[str, Any]]:
    """One row a delegate: whether it can run here, its version, and why it cannot."""
    from hetsched.runtime.delegates import delegate_targets, load_delegate

    rows = []
    for name in delegate_targets():
        probe = load_delegate(name).probe()
        rows.append({"delegate": name, "runs here": "yes" if probe.available else "no", "version": probe.version, "why not": probe.reason})
    return rows
