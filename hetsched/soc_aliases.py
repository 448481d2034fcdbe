"""Short names with units for what-if hardware (``npu.int8_tops=100``, ``memory.bandwidth_gbps=120``) and what they set.

Each works on the plain data of a SoC. A figure that is set is marked ``set by the user``; one that follows from it (a peak
after a new clock) is marked ``estimated``, scaled with what was set. Giga and mega are powers of ten; ``gbps`` is GB/s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched.errors import SoCError

Raw = dict[str, Any]

#: Name of a rate -> precision of ``peak_ops_s``.
RATES = {
    f"{name}_{unit}": precision
    for name, precision, units in (
        ("fp32", "f32", ("tops", "tflops")),
        ("fp16", "f16", ("tops", "tflops")),
        ("bf16", "bf16", ("tops", "tflops")),
        ("fp8", "f8", ("tops", "tflops")),
        ("int16", "i16", ("tops",)),
        ("int8", "i8", ("tops",)),
        ("int4", "i4", ("tops",)),
    )
    for unit in units
}
#: Name -> (field of a processor, factor to SI).
PROCESSOR = {
    "launch_us": ("launch_s", 1e-6),
    "op_overhead_us": ("op_overhead_s", 1e-6),
    "onchip_mb": ("onchip_bytes", 1e6),
    "bandwidth_gbps": ("bandwidth_bytes_s", 1e9),
    "core_bandwidth_gbps": ("core_bandwidth_bytes_s", 1e9),
    "vector_gbps": ("vector_bytes_s", 1e9),
    "sparsity": ("sparsity", 1.0),
}
MEMORY = {
    "reachable_gbps": ("reachable_bytes_s", 1e9),
    "capacity_gb": ("capacity_bytes", 1e9),
    "system_cache_mb": ("system_cache_bytes", 1e6),
    "system_cache_gbps": ("system_cache_bytes_s", 1e9),
    "system_cache_pj_per_byte": ("system_cache_j_per_byte", 1e-12),
    "pim_gbps": ("in_memory_bytes_s", 1e9),
    "energy_pj_per_byte": ("energy_j_per_byte", 1e-12),
    "dma_gbps": ("dma_bytes_s", 1e9),
    "dma_launch_us": ("dma_launch_s", 1e-6),
}
LINK = {"sync_us": ("sync_s", 1e-6), "cache_maintenance_us": ("cache_maintenance_s", 1e-6)}
RESISTANCE = {"k_per_w": ("k_per_w", 1.0)}
#: Stages: what scales several figures comes before what sets one of them.
_CLOCK, _MEMORY, _ONE, _PATH = range(4)


def names(raw: Raw) -> list[str]:
    """Every short name that this SoC has."""
    of_processor = [*RATES, *PROCESSOR, "clock_ghz"]
    found = [f"{p['name']}.{a}" for p in raw["processors"] for a in of_processor]
    found += ["memory.bandwidth_gbps", *(f"memory.{a}" for a in MEMORY)]
    found += [f"{'-'.join(k['between'])}.{a}" for k in raw["links"] for a in LINK]
    return found + [f"{'-'.join(r['between'])}.{a}" for r in raw["thermal"]["resistances"] for a in RESISTANCE]


def stage(field: str) -> int:
    """When a field is set: fields of a lower stage first, so that the order in which they are given does not matter."""
    if field.endswith(".clock_ghz"):
        return _CLOCK
    if field == "memory.bandwidth_gbps":
        return _MEMORY
    return _PATH if field.count(".") > 1 else _ONE


def setter(raw: Raw, field: str) -> Callable[[str], None] | None:
    """What sets a short name from the text of its value; None if the field is no short name of this SoC."""
    where, dot, name = field.partition(".")
    if not dot:
        return None
    if field == "memory.bandwidth_gbps":
        return lambda text: _scale_memory(raw, field, _round(_number(field, text) * 1e9))
    if where == "memory":
        return _units(raw["memory"], MEMORY, field, name)
    processor = _processor(raw, where)
    if processor is not None:
        return _of_processor(processor, field, name)
    pair = between([*raw["links"], *raw["thermal"]["resistances"]], where)
    return None if pair is None else _units(pair, LINK if "sync_s" in pair else RESISTANCE, field, name)


def between(items: list[Any], pair: str) -> Raw | None:
    """The link or the resistance of a list that joins two names, ``cpu-npu``, in either order."""
    wanted = sorted(pair.split("-"))
    return next((i for i in items if isinstance(i, dict) and sorted(i.get("between", ())) == wanted), None)


def _processor(raw: Raw, name: str) -> Raw | None:
    """A processor by its name, or by its kind if there is one of it."""
    by_name = [p for p in raw["processors"] if p["name"] == name]
    found = by_name or [p for p in raw["processors"] if p["kind"] == name]
    return found[0] if len(found) == 1 else None


def _of_processor(processor: Raw, field: str, name: str) -> Callable[[str], None] | None:
    if name in RATES:
        return lambda text: _set_rate(processor, RATES[name], _round(_number(field, text) * 1e12))
    if name == "clock_ghz":
        return lambda text: _scale_clock(processor, field, _round(_number(field, text) * 1e9))
    return _units(processor, PROCESSOR, field, name)


def _units(node: Raw, fields: dict[str, tuple[str, float]], field: str, name: str) -> Callable[[str], None] | None:
    if name not in fields:
        return None
    target, factor = fields[name]
    return lambda text: node.update({target: given(_round(_number(field, text) * factor), node.get(target))})


def given(value: Any, old: Any = None) -> Raw:
    """A figure (or a list with its origin) that the user has set, instead of ``old`` if there was one."""
    figure: Raw = {"value": value, "source": "set by the user"}
    was = _was(old)
    return figure if was is None else {**figure, "was": was}


def _was(old: Any) -> Any:
    """The file's own value of a figure."""
    if not isinstance(old, dict) or not isinstance(old["value"], (int, float)):
        return None
    return old["value"] if old.get("was") is None else old["was"]


def _scaled(figure: Raw, factor: float, why: str) -> Raw:
    return {"value": _round(figure["value"] * factor), "estimated": f"scaled with {why}, set by the user", "was": _was(figure)}


def _round(value: float) -> float:
    """Without the last digits, which a conversion of units spoils."""
    return float(f"{value:.12g}")


def _number(field: str, text: str) -> float:
    """A positive number.

    Raises:
        SoCError: it is not one.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 1e15:
        raise SoCError(f"cannot set {field!r} to {text!r}: it takes a number such as 100")
    return value


def _set_rate(processor: Raw, precision: str, ops_s: float) -> None:
    """A peak of the whole processor, shared by its clusters as before, or as their widest float if it is new."""
    clusters = processor["clusters"]
    have = [c for c in clusters if precision in c["peak_ops_s"]] or clusters
    weights = [c["peak_ops_s"].get(precision) or _any_peak(c) for c in have]
    total = sum(w["value"] for w in weights)
    for cluster, weight in zip(have, weights, strict=True):
        cluster["peak_ops_s"][precision] = given(_round(ops_s * weight["value"] / total), cluster["peak_ops_s"].get(precision))


def _any_peak(cluster: Raw) -> Raw:
    peaks = cluster["peak_ops_s"]
    found: Raw = next((peaks[p] for p in ("f32", "f16") if p in peaks), peaks[min(peaks)])
    return found


def _scale_clock(processor: Raw, field: str, hz: float) -> None:
    """Another top clock: operating points, peaks, vector rate and dynamic power in proportion, voltages as they are."""
    factor = hz / max(c["operating_points"][-1]["hz"] for c in processor["clusters"])
    why = f"{field} = {hz / 1e9:g}"
    for cluster in processor["clusters"]:
        cluster["peak_ops_s"] = {k: _scaled(v, factor, why) for k, v in cluster["peak_ops_s"].items()}
        for point in cluster["operating_points"]:
            point["hz"] = _round(point["hz"] * factor)
        cluster["dynamic_w"] = _scaled(cluster["dynamic_w"], factor, why)
        cluster["operating_points_source"] += f" (clocks scaled with {why}, voltages kept: estimated)"
    if processor.get("vector_bytes_s"):
        processor["vector_bytes_s"] = _scaled(processor["vector_bytes_s"], factor, why)


def _scale_memory(raw: Raw, field: str, peak: float) -> None:
    """Another DRAM: what all, pairs and single processors reach grows in proportion (one CPU core does not)."""
    memory = raw["memory"]
    factor = peak / memory["peak_bytes_s"]["value"]
    why = f"{field} = {peak / 1e9:g}"
    memory["peak_bytes_s"] = given(peak, memory["peak_bytes_s"])
    memory["reachable_bytes_s"] = _scaled(memory["reachable_bytes_s"], factor, why)
    memory["together_bytes_s"] = {k: _scaled(v, factor, why) for k, v in memory["together_bytes_s"].items()}
    for processor in raw["processors"]:
        processor["bandwidth_bytes_s"] = _scaled(processor["bandwidth_bytes_s"], factor, why)
