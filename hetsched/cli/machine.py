"""``hetsched calibrate``, ``socs`` and ``delegates``: what this machine and this installation have."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hetsched.cli.progress import progress
from hetsched.socs import HOST, SoC


def calibrate(quiet: bool, fresh: bool = False) -> dict[str, Any]:
    """Measure the host again (``fresh``: forget earlier measurements); returns the measurement as a plain dict.

    Steps of language models are measured again when one is planned next.
    """
    from hetsched.app.step_costs import forget_step_times
    from hetsched_cost_models.host import calibrate as measure

    with progress("calibrating", quiet) as bar:
        measured = measure(progress=bar.stage, fresh=fresh)
    forget_step_times()
    shown = {k: v for k, v in measured.as_dict().items() if k != "probe_s"}
    return {**shown, "notes": list(measured.notes)}


def soc_rows() -> list[dict[str, Any]]:
    """One row a SoC file, and one for this machine."""
    from hetsched.soc_files import list_socs, load_soc

    rows = [_soc_row(load_soc(name)) for name in list_socs()]
    host = dict.fromkeys(rows[0]) if rows else {}
    return [*rows, host | {"id": HOST, "name": "this machine, measured", "vendor": "", "cpu": "", "gpu": "", "npu": ""}]


def _soc_row(soc: SoC) -> dict[str, Any]:
    """The stable keys of ``socs --json``."""
    from hetsched.soc_figures import estimated_share, peak
    from hetsched.soc_words import heat_basis

    by_kind = {p.kind: p for p in reversed(soc.processors)}
    npu = by_kind.get("npu")
    rates = {p: None if npu is None else peak(npu, p) for p in ("f16", "i8")}
    tops = {p: None if rate is None else round(rate.value / 1e12, 2) for p, rate in rates.items()}
    return {
        "id": soc.id,
        "name": soc.name,
        "vendor": soc.vendor,
        "tier": None if soc.market is None else soc.market.tier,
        "release": None if soc.market is None else soc.market.release,
        **{kind: by_kind[kind].model if kind in by_kind else "" for kind in ("cpu", "gpu", "npu")},
        "npu_float_tops": tops["f16"],
        "npu_int8_tops": tops["i8"],
        "memory_gb_s": round(float(soc.memory.peak_bytes_s) / 1e9, 1),
        "memory_reachable_gb_s": round(float(soc.memory.reachable_bytes_s) / 1e9, 1),
        "estimated_share": round(estimated_share(soc), 3),
        "heat_basis": heat_basis(soc),
    }


def delegate_rows() -> list[dict[str, Any]]:
    """One row a delegate: whether it is present and available, its version and devices, what it runs and builds here, and why not."""
    from hetsched.runtime.delegates import delegate_targets, load_delegate

    rows = []
    for name in delegate_targets():
        probe = load_delegate(name).probe()
        rows.append({"delegate": name, "present": bool(probe.version), **asdict(probe)})
    return rows
