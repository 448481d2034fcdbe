"""Models and SoCs, by whatever the user calls them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.costs import CostTable
from hetsched.errors import UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.plans import Plan
from hetsched.socs import HOST, SoC

if TYPE_CHECKING:
    from hetsched.passes import PassReport
    from hetsched.step_times import StepTimes


#: Figures of a SoC that are shown and that no prediction depends on.
_SHOWN_ONLY = ("memory.capacity_gb", "memory.capacity_bytes", "memory.peak_bytes_s")
#: Figures of what a larger system cache adds.
_OF_CACHE = (
    "memory.system_cache_gbps", "memory.system_cache_bytes_s", "memory.system_cache_pj_per_byte", "memory.system_cache_j_per_byte",
)  # fmt: skip
_IN_MEMORY = ("memory.pim_gbps", "memory.in_memory_bytes_s")
_OF_DMA = ("memory.dma_gbps", "memory.dma_bytes_s", "memory.dma_launch_us", "memory.dma_launch_s", "memory.dma_w")


def load(model: str | Path, dims: Mapping[str, int] | None = None, report: list[PassReport] | None = None) -> Graph:
    """Load a model file as a clean operator DAG: dims bound, constants folded, operators fused.

    Args:
        model: path of a model file; its format is found from its content.
        dims: values of symbolic dimensions by name (or ``<input>.<axis>``); batch dimensions default to 1.
        report: what each pass changed is appended.

    Raises:
        ModelError: the file is absent, damaged, unsupported or needs dims.
        OptionError: ``dims`` names a dimension that the model does not have.
    """
    from hetsched import frontends, passes

    return passes.standard(frontends.load(Path(model), dims), report)


def early_layers(model: str | Path, layers: int, dims: Mapping[str, int], report: list[PassReport] | None = None) -> Graph:
    """The first layers of a decoder, its last norm and its head, loaded as :func:`load` does.

    Raises:
        OptionError: the model has not so many layers.
    """
    from hetsched import frontends, passes
    from hetsched.passes.early_layers import EarlyLayers

    return passes.standard(EarlyLayers(layers)(frontends.load(Path(model), dims)), report)


def targeted(graph: Graph, chip: SoC, report: list[PassReport] | None = None) -> Graph:
    """The graph with the fusions that the compilers of ``chip`` make; on ``host`` those that the CPU kernels have.

    Args:
        graph: from :func:`load`.
        chip: the target.
        report: what was undone is appended.
    """
    from hetsched import passes
    from hetsched.passes.widen_floats import WidenFloats

    if chip.is_host:
        wide = WidenFloats()(graph)
        graph = graph if wide is graph else passes.standard(wide, report)
    return passes.for_soc(graph, chip, _has_kernel if chip.is_host else None, report)


def _has_kernel(op: Op, graph: Graph) -> bool:
    from hetsched.runtime.support import RULES

    return op.type in RULES and RULES[op.type](op, graph) is None


def cost_table(graph: Graph, chip: SoC, precision: str, runtime: str, steps: StepTimes | None = None) -> CostTable:
    """What every way of running ``graph`` on ``chip`` costs, on ``host`` with the kernels and runtimes of this machine.

    With the times of ``steps`` it is the phase of a language model that a session of this machine computes.
    """
    from hetsched_cost_models import build_table

    if not chip.is_host:
        return build_table(graph, chip, precision=precision, runtime=runtime)
    from hetsched.runtime.ort_support import others_here
    from hetsched.runtime.support import supported

    try:
        here = supported if steps is None else _in_sessions
        return build_table(graph, chip, precision=precision, runtime=runtime, supported=here, others=others_here(), steps=steps)
    except UnsupportedModelError as e:
        raise UnsupportedModelError(f"{e}; this machine cannot run the model: plan it for a phone, as with --soc snapdragon-8-gen-3") from e


def _in_sessions(op: Op, graph: Graph, precision: str) -> str | None:
    """What this machine cannot run: beyond single operators, sessions have attention over caches of every precision."""
    from hetsched.runtime.support import supported

    return None if op.type == "GroupQueryAttention" else supported(op, graph, precision)


def soc(name: str | Path | SoC, overrides: Mapping[str, str] | None = None) -> SoC:
    """A SoC by id (``snapdragon-8-gen-3``), by the path of a YAML file, or ``host``: this machine, measured.

    Args:
        name: which; a SoC is taken as it is.
        overrides: what-if hardware: short name or dotted path of a field -> value (``{"npu.int8_tops": "100"}``).

    Raises:
        SoCError: no SoC has the name, its file is malformed, or it has no such field.
    """
    from hetsched.soc_files import load_soc, overridden

    if isinstance(name, SoC):
        return overridden(name, overrides or {})
    if str(name) == HOST:
        from hetsched_cost_models.host import host_soc

        return overridden(host_soc(), overrides or {})
    return load_soc(name, overrides=overrides)


def precision_notes(plan: Plan, chip: SoC, precision: str) -> tuple[str, ...]:
    """The note of a plan that was asked for in integers and has all its operators in float; empty for others."""
    floats = {p.float_dtype for p in chip.processors}
    used = {p.precision for p in plan.placements}
    if precision in ("auto", "float", "mixed") or used - floats:
        return ()
    queues = ", ".join(dict.fromkeys(p.queue for p in plan.placements))
    return (
        f"nothing of this plan runs as {precision}: all {len(plan.placements)} operators run in {' and '.join(sorted(used))} on {queues};"
        " choose another solver or SoC for it, or say --precision float",
    )


def what_if_notes(chip: SoC, precisions: Collection[str]) -> tuple[str, ...]:
    """Notes of a plan for what-if hardware that has operators at these precisions: what was set, and what of it changes nothing."""
    from hetsched.soc_aliases import RATES
    from hetsched_cost_models.roofline import PEAK_OF

    if not chip.overrides:
        return ()
    fields = sorted(chip.overrides)
    said = "what-if hardware: " + ", ".join(f"{k} = {chip.overrides[k]}" for k in fields)
    used = {peak for p, peak in PEAK_OF.items() if peak != "f8" or p in precisions} | ({"i4"} if "w4a16" in precisions else set())
    idle = [k for k in fields if RATES.get(k.rpartition(".")[2], "f32") not in used]
    shown = [k for k in fields if k.removesuffix(".value") in _SHOWN_ONLY]
    cache, inside = chip.memory.system_cache_bytes, chip.memory.in_memory_bytes_s
    larger = cache.was is not None and cache.value > cache.was
    without = [] if larger else [k for k in fields if k.removesuffix(".value") in _OF_CACHE]
    fast = inside is not None and any(p.bandwidth_bytes_s.value < inside.value for p in chip.processors)
    slow = [] if fast else [k for k in fields if k.removesuffix(".value") in _IN_MEMORY]
    copies = chip.memory.dma_bytes_s is not None and any(k.handle is None for k in chip.links)
    spared = [] if copies else [k for k in fields if k.removesuffix(".value") in _OF_DMA]
    return (
        said,
        *(f"{k} has no effect: nothing of this plan's choices computes at that rate" for k in idle),
        *(f"{k} has no effect: no prediction depends on it" for k in shown),
        *(f"{k} has no effect: memory.system_cache_mb adds nothing to the file's cache" for k in without),
        *(f"{k} has no effect: every processor reads the DRAM faster" for k in slow),
        *(f"{k} has no effect: an engine (memory.dma_gbps) copies where a link has no handle (links.cpu-npu.handle=null)" for k in spared),
    )
