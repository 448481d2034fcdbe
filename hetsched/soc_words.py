"""Figures of a SoC in words, for terminals and pages. ``~`` marks an estimate, ``!`` what the user has set."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.soc_figures import Line, peak
from hetsched.soc_quantities import Figure
from hetsched.soc_thermal import Sensor, Trip
from hetsched.socs import Cluster, Link, Processor, SoC

PRECISIONS = {"f32": "FP32", "f16": "FP16", "bf16": "BF16", "f8": "FP8", "i16": "INT16", "i8": "INT8", "i4": "INT4"}
_SECONDS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_BYTES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_OPS = (("TOPS", 1e12), ("GOPS", 1e9))
#: Ending of a figure's name -> units and their sizes; the first ending that fits counts.
_UNITS: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] = (
    ("_j_per_byte", (("pJ/B", 1e-12),)),
    ("_s_per_byte", (("ns/B", 1e-9),)),
    ("_s_per_weight", (("ns/weight", 1e-9),)),
    ("_ops_s", _OPS),
    ("bytes_s", (("GB/s", 1e9),)),
    ("_bytes", _BYTES),
    ("k_per_w", (("K/W", 1.0),)),
    ("_j_per_k", (("J/K", 1.0),)),
    ("_w_per_k", (("W/K", 1.0),)),
    ("_ws_per_k", (("W s/K", 1.0),)),
    ("_hz", (("GHz", 1e9),)),
    ("_w", (("W", 1.0),)),
    ("_wh", (("Wh", 1.0),)),
    ("_ohm", (("ohm", 1.0),)),
    ("_s", _SECONDS),
    ("_c", (("°C", 1.0),)),
    ("_k", (("K", 1.0),)),
    ("_v", (("V", 1.0),)),
    ("fusions", (("composites", 1.0),)),
    ("isa", (("extensions", 1.0),)),
)


def quantity(path: str, value: float | None) -> str:
    """A figure with the unit that its name says.

    Examples:
        >>> quantity("processors.npu.launch_s", 1.7e-4), quantity("memory.peak_bytes_s", 6.76e10)
        ('170 µs', '67.6 GB/s')
        >>> quantity("processors.npu.clusters.npu.peak_ops_s.i8", 6.28e13)
        '62.8 TOPS'
    """
    if value is None:
        return "-"
    parts = path.split(".")
    if len(parts) > 1 and parts[-2] in ("peak_ops_s", "together_bytes_s"):
        parts.pop()
    for ending, units in _UNITS:
        if parts[-1].endswith(ending):
            unit, size = next(((u, s) for u, s in units if abs(value) >= s), units[-1])
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g}"


def marked(path: str, figure: Figure | Line) -> str:
    """A figure with the mark of its origin."""
    estimated = figure.estimated if isinstance(figure, Line) else figure.estimated is not None
    text = quantity(path, figure.value) + ("~" if estimated else "")
    return text if figure.was is None else f"{text}! (file: {quantity(path, figure.was)})"


def processor_lines(soc: SoC, processor: Processor) -> list[tuple[str, str]]:
    """What a drawing says of one processor: clusters, peaks, memory, latencies, power."""
    lines = [line for c in processor.clusters for line in _cluster_lines(processor, c)]
    peaks = {name: peak(processor, precision) for precision, name in PRECISIONS.items()}
    lines += [(name, marked("peak_ops_s", found)) for name, found in peaks.items() if found is not None]
    return [
        *lines,
        *([("sparsity", marked("sparsity", processor.sparsity))] if processor.sparsity is not None else []),
        ("reads", marked("bandwidth_bytes_s", processor.bandwidth_bytes_s)),
        ("on chip", marked("onchip_bytes", processor.onchip_bytes)),
        ("launch", marked("launch_s", processor.launch_s)),
        ("operator", marked("op_overhead_s", processor.op_overhead_s)),
        *_of_models(processor),
        ("power", _power(processor)),
        ("float is", f"{PRECISIONS[processor.float_dtype]}, layout {processor.layout}"),
        ("runs by", processor.delegate + (f", operators of {processor.support}" if processor.support else "")),
        ("fuses", f"{len(processor.fusions.value)} composites{'~' if processor.fusions.estimated else ''}"),
        ("queues", ", ".join(f"{q} ({t})" if t != q else q for q, t in soc.queues.items() if t.partition(":")[0] == processor.name)),
    ]


def memory_lines(soc: SoC) -> list[tuple[str, str]]:
    """What a drawing says of the memory, and of the rest of the device."""
    m = soc.memory
    together = ", ".join(f"{pair} {marked('bytes_s', f)}" for pair, f in m.together_bytes_s.items())
    added = [("cache", marked("bytes_s", m.system_cache_bytes_s))] if m.system_cache_bytes_s is not None else []
    added += [("in memory", f"arithmetic on {marked('bytes_s', m.in_memory_bytes_s)}")] if m.in_memory_bytes_s is not None else []
    added += [("DMA", f"copies at {marked('bytes_s', m.dma_bytes_s)}")] if m.dma_bytes_s is not None else []
    return [
        ("bandwidth", f"peak {marked('bytes_s', m.peak_bytes_s)}, reachable {marked('bytes_s', m.reachable_bytes_s)}"),
        ("together", together or "-"),
        ("size", f"{marked('_bytes', m.capacity_bytes)}, system cache {marked('_bytes', m.system_cache_bytes)}"),
        *added,
        ("energy", marked("_j_per_byte", m.energy_j_per_byte)),
        ("rest", f"{marked('base_w', soc.base_w)} (display, radios, rails)"),
        *([("battery", marked("capacity_wh", soc.battery.capacity_wh))] if soc.battery is not None else []),
    ]


def link_line(link: Link) -> str:
    """What it takes to pass a tensor over a link."""
    caches = "coherent"
    if not link.coherent:
        per_tensor = marked("_s", link.cache_maintenance_s)
        caches = f"caches {per_tensor} and {marked('_s_per_byte', link.cache_maintenance_s_per_byte)}"
    return f"sync {marked('_s', link.sync_s)}, {caches}, {link.handle or 'copied'}{f', {link.fence}' if link.fence else ''}"


def market(soc: SoC) -> str:
    """``flagship of 2023-10``."""
    m = soc.market
    return "-" if m is None else f"{m.tier} of {m.release}{'' if m.estimated is None else '~'}"


#: How the sentence of :func:`power_basis` begins.
POWER_NOTE = "power and energy are estimates"


def power_basis(soc: SoC) -> str:
    """What power and energy of a SoC rest on, wherever they are shown; empty if every voltage is known."""
    points = [o for p in soc.processors for c in p.clusters for o in c.operating_points]
    if not any(o.voltage_estimated for o in points):
        return ""
    why = "no Snapdragon voltage is published" if soc.family == "snapdragon" else "all but those that its file gives a source"
    return f"{POWER_NOTE}: they go with the square of supply voltages that are estimated ({why})"


def heat_basis(soc: SoC) -> str:
    """Says so if the way of a SoC's heat out of its device was not fitted to runs with that SoC; empty if it was, or without a network."""
    out = [r.k_per_w for r in soc.thermal.resistances if "ambient" in r.between]
    if all(f.source is not None for f in out):
        return ""
    return "heat is extrapolated: no run over minutes of a device with this SoC was there to fit its chassis to"


def trip_lines(soc: SoC) -> list[str]:
    """The sensors, and the trips of the thermal governors; those of a controller with a name as one line."""
    zones = {t.zone: [o for o in soc.thermal.trips if o.zone == t.zone] for t in soc.thermal.trips if t.zone is not None}
    sensors = [_sensor_line(s) for s in soc.thermal.sensors]
    return [
        *sensors,
        *(_trip_line(t) for t in soc.thermal.trips if t.zone is None),
        *(_zone_line(name, trips) for name, trips in zones.items()),
    ]


def _sensor_line(s: Sensor) -> str:
    mean = " + ".join(f"{w:g} {node}" for node, w in s.weights.items())
    late = f", {quantity('_s', s.lag_s)} late" if s.lag_s else ""
    read = f", read every {quantity('_s', s.sampling_s)}" if s.sampling_s else ""
    rough = "" if s.estimated is None else "~"
    return f"sensor: {s.name} = {mean}{f' {s.offset_k:+g} K' if s.offset_k else ''}{late}{read}{rough}{', the skin' if s.skin else ''}"


def _trip_line(t: Trip) -> str:
    by = "" if t.governor == "step_wise" else f", by {t.governor}"
    return (
        f"trip: {_read(t)} above {marked('_c', t.temperature_c)} cools {', '.join(t.processors)}"
        f" (at most {t.upper:.0%}, every {marked('_s', t.polling_s)}{by})"
    )


def _read(t: Trip) -> str:
    return f"the hottest of {', '.join(t.read)}" if t.also else t.node


def _zone_line(name: str, trips: Sequence[Trip]) -> str:
    """One controller: from where on, and what it holds or how far it goes."""
    cooled = ", ".join(dict.fromkeys(p for t in trips for p in t.processors))
    first = min(trips, key=lambda t: t.temperature_c.value)
    held = [f"to {marked('_c', t.temperature_c)}" for t in trips if t.budget is not None]
    steps = [marked("_c", t.temperature_c) for t in trips if t.governor == "cap" and t is not first]
    then = f" {' and '.join(held)}" if held else f", deeper above {', '.join(steps)}" if steps else ""
    when = f"every {marked('_s', first.polling_s)}, by {first.governor}"
    return f"{name}: {_read(first)} from {marked('_c', first.temperature_c)}{then} cools {cooled} ({when})"


def _cluster_lines(processor: Processor, cluster: Cluster) -> list[tuple[str, str]]:
    name = "top clock" if len(processor.clusters) == 1 and not cluster.cores else cluster.name
    isa = [] if cluster.isa is None else [("", " ".join(cluster.isa.value) + ("~" if cluster.isa.estimated else ""))]
    return [(name, _clock(cluster)), *isa]


def _clock(cluster: Cluster) -> str:
    """``3 x 2.85 GHz at 0.92 V (cores 4-6)``."""
    rough_v = any(p.voltage_estimated for p in cluster.operating_points)
    cores = f"{len(cluster.cores)} x " if cluster.cores else ""
    which = f" (core{'s' if len(cluster.cores) > 1 else ''} {_span(cluster.cores)})" if cluster.cores else ""
    rough = "~" if cluster.operating_points_source.startswith("estimated") else ""
    return f"{cores}{cluster.top.hz / 1e9:.3g} GHz{rough} at {cluster.top.v:.3g} V{'~' if rough_v else ''}{which}"


def _span(cores: tuple[int, ...]) -> str:
    whole = tuple(range(cores[0], cores[-1] + 1)) == cores
    return f"{cores[0]}-{cores[-1]}" if whole and len(cores) > 1 else ",".join(str(c) for c in cores)


def _of_models(processor: Processor) -> list[tuple[str, str]]:
    """What whole models meet: the limit of addresses and the first compilation, where they are known."""
    lines = []
    if processor.address_bytes is not None:
        lines.append(("addresses", marked("address_bytes", processor.address_bytes)))
    if processor.compile_s is not None:
        each = processor.compile_s_per_weight
        more = "" if each is None else f" and {each.value * 1e9:.3g} s{'~' if each.estimated else ''} per 1e9 weights"
        lines.append(("compiles", marked("compile_s", processor.compile_s) + more))
    return lines


def _power(processor: Processor) -> str:
    """What all clusters draw at their top points."""
    watts = sum(c.dynamic_w.value + c.leakage_w.value for c in processor.clusters)
    rough = any(f.estimated is not None for c in processor.clusters for f in (c.dynamic_w, c.leakage_w))
    return f"{watts:.3g} W{'~' if rough else ''}"
