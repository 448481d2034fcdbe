"""This machine as a :class:`~hetsched.socs.SoC`: measured rates; power and temperatures estimated, and marked so."""

from __future__ import annotations

from typing import Any

from hetsched.soc_files import validate_soc
from hetsched.socs import HOST, SoC
from hetsched_cost_models.host.detect import Machine
from hetsched_cost_models.host.measurement import HostMeasurement

_MEASURED = "measured on this machine ('hetsched calibrate' measures again)"
_ASSUMED_SYNC = "a few dispatches and two transfers of a cache line; a wake-up by the scheduler where there is one core"
#: Small operators do not divide further.
_TEAM = 4
_CORE_W = 6.0
_OTHER_W = 10.0


def soc_of(machine: Machine, measured: HostMeasurement) -> SoC:
    """Assemble the SoC: one or two queues of one core, and one of several cores, which no plan uses beside the others' cores."""
    cores, team = machine.cores, team_of(machine.cores)
    used = [cores[0]] if len(cores) == 1 else [cores[0], cores[len(cores) // 2]]
    names = [f"cpu:{c}" for c in used] + ([f"cpu:{team[0]}-{team[-1]}"] if len(team) > 1 else [])
    raw: dict[str, Any] = {
        "id": HOST,
        "name": machine.model or "this machine",
        "vendor": "host",
        "family": "host",
        "queues": {name: name for name in names},
        "base_w": _estimated(_OTHER_W, "board, memory and power supply of a small computer"),
        "interval": [0.7, 1.5],
        "interval_estimated": "assumed, not calibrated: wide enough for the models of docs/cost_model.md on one machine",
        "notes": [
            f"{len(cores)} cores may be used; a queue is one core, or several that divide every operator",
            "power and temperatures of this machine are estimates: only times are measured",
            *measured.notes,
        ],
        "memory": _memory(machine, measured),
        "processors": [_processor(machine, measured)],
        "thermal": _thermal(),
        "links": [
            {
                "between": ["cpu", "cpu"],
                "sync_s": _estimated(measured.sync_s, _ASSUMED_SYNC) if measured.sync_estimated else _measured(measured.sync_s),
                "coherent": True,
                "cache_maintenance_s": _estimated(0.0, "cores are coherent"),
                "cache_maintenance_s_per_byte": _estimated(0.0, "cores are coherent"),
                "handle": "shared",
            }
        ],
    }
    return validate_soc(raw, "the measured host")


def team_of(cores: tuple[int, ...]) -> tuple[int, ...]:
    """The cores of the queue of several: the longest run of neighbouring numbers, at most :data:`_TEAM` of them."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1 and len(runs[-1]) < _TEAM:
            runs[-1].append(core)
        else:
            runs.append([core])
    longest = max(runs, key=len)
    return tuple(longest)


def _measured(value: float) -> dict[str, Any]:
    return {"value": value, "source": _MEASURED}


def _estimated(value: float, basis: str) -> dict[str, Any]:
    return {"value": value, "estimated": basis}


def _memory(machine: Machine, measured: HostMeasurement) -> dict[str, Any]:
    return {
        "kind": "DRAM",
        "capacity_bytes": {"value": float(machine.memory_bytes), "source": "the operating system"},
        "peak_bytes_s": _estimated(1.2 * measured.read_all_bytes_s, "20 % above what all cores reached"),
        "reachable_bytes_s": _measured(measured.read_all_bytes_s),
        "system_cache_bytes": {"value": float(machine.l3_bytes), "source": "the operating system"},
        "energy_j_per_byte": _estimated(5e-11, "DDR4/DDR5 about 6 pJ/bit"),
    }


def _processor(machine: Machine, measured: HostMeasurement) -> dict[str, Any]:
    n = len(machine.cores)
    shares = {f"{name}": _measured(rate / _peak(measured, name)) for name, rate in measured.rates.items()}
    shares |= {f"vector/{kind}": _measured(1.0 / factor) for kind, factor in measured.vector.items()}
    top = machine.max_hz or 3e9
    return {
        "name": "cpu",
        "kind": "cpu",
        "model": machine.model or machine.architecture,
        "family": "host",
        "bandwidth_bytes_s": _measured(measured.read_all_bytes_s),
        "core_bandwidth_bytes_s": _measured(measured.read_one_bytes_s),
        "serial_share": _measured(measured.serial_share),
        "onchip_bytes": {"value": float(onchip_bytes(machine)), "source": "the operating system: last private or shared cache level"},
        "launch_s": _estimated(measured.launch_s, "four kernel dispatches"),
        "op_overhead_s": _measured(measured.op_overhead_s),
        "utilisation": shares,
        "vector_bytes_s": _measured(n * measured.vector_bytes_s),
        "clusters": [
            {
                "name": "cores",
                "cores": list(machine.cores),
                "operating_points_source": "the operating system's top frequency; lower points and all voltages are estimated",
                "operating_points": [{"hz": top * f, "v": v} for f, v in ((0.4, 0.7), (0.6, 0.8), (0.8, 0.92), (1.0, 1.05))],
                "peak_ops_s": {"f32": _measured(n * measured.peak_f32_ops_s), "i8": _measured(n * measured.peak_i8_ops_s)},
                "dynamic_w": _estimated(_CORE_W * n, "6 W a core, typical of desktop and server cores"),
                "leakage_w": _estimated(1.0 * n, "1 W a core"),
            }
        ],
    }


def onchip_bytes(machine: Machine) -> int:
    """Memory below which the measured bandwidth does not matter: the last cache level that the read test overflows.

    The read test uses 128 MiB, so a larger L3 is what it measured, and the L2 is what is faster.
    """
    if 0 < machine.l3_bytes <= 64 << 20:
        return machine.l3_bytes
    return machine.l2_bytes or 1 << 20


def _peak(measured: HostMeasurement, name: str) -> float:
    return measured.peak_i8_ops_s if "/i8" in name else measured.peak_f32_ops_s


def _thermal() -> dict[str, Any]:
    basis = "a small computer with a fan"
    return {
        "nodes": [
            {"name": "cpu", "processors": ["cpu"], "capacity_j_per_k": _estimated(20.0, basis)},
            {"name": "case", "capacity_j_per_k": _estimated(800.0, basis)},
        ],
        "resistances": [
            {"between": ["cpu", "case"], "k_per_w": _estimated(0.5, basis)},
            {"between": ["case", "ambient"], "k_per_w": _estimated(0.4, basis)},
        ],
        "trips": [
            {
                "node": "cpu",
                "temperature_c": _estimated(95.0, "usual junction limit"),
                "hysteresis_k": _estimated(2.0, basis),
                "polling_s": _estimated(0.1, basis),
                "processors": ["cpu"],
            }
        ],
    }
