"""Build the cost table of a graph on a SoC: every way of running every op, and what moving tensors costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from hetsched.costs import CostTable, Domain, FloatArray, Queue
from hetsched.errors import OptionError, UnknownRuntimeError, UnsupportedModelError
from hetsched.graph import Graph
from hetsched.socs import SoC
from hetsched.spinning import SPIN_LIMIT_S
from hetsched.step_times import StepTimes
from hetsched_cost_models import certainty, delegated, energy, hexagon, language_rates, session_steps
from hetsched_cost_models.alternatives import Alternatives
from hetsched_cost_models.features import features_of
from hetsched_cost_models.parameters import runtimes_of, support_table_name
from hetsched_cost_models.precisions import FOUR_BIT, WIDE, Place, Supported, check_model, check_precision
from hetsched_cost_models.pricing import held_as, price, storage_of
from hetsched_cost_models.roofline import Rates, queue_cores, queue_rates
from hetsched_cost_models.support import SupportTable, support_table
from hetsched_cost_models.transfers import transfers
from hetsched_cost_models.work import Work

#: Runtimes that drive CPUs and GPUs only.
_NO_NPU = frozenset({"ncnn"})
#: What plans at a precision say that no kernel of this project has.
_VENDOR = "16-bit integer activations are for a vendor's runtime: this project's own kernels do not run them"
_FOUR_BITS_NOTE = (
    "weights of matrix products are planned in 4.5 bits with their scales, those of the scores as the engine's own 4-bit models have them"
)
_NOTES = {
    "w8a16": (_VENDOR,),
    "w4a16": (
        _VENDOR,
        "no public latency with 4-bit weights was fitted: they are priced as 8-bit ones of half the bytes, and no "
        "public latency anchors them: compare with --precision w8a16 --no-anchor",
    ),
    "fp8": (
        "no public latency in 8-bit floats was fitted: they are priced as 16-bit ones of half the bytes at the rate that was set, and "
        "this project's own kernels do not run them",
    ),
}


def build_table(
    graph: Graph, soc: SoC, *, precision: str = "auto", runtime: str = "default", supported: Supported | None = None,
    others: Mapping[str, Supported] | None = None, steps: StepTimes | None = None,
) -> CostTable:  # fmt: skip
    """Enumerate and price every alternative op x queue x precision.

    Args:
        graph: the operator graph, after the passes.
        soc: the SoC.
        precision: ``auto`` (lossless: float for float models, the model's own integers for QDQ models), ``float``,
            ``mixed`` (float or ``w8a8``, op by op), ``w8a8``, ``w8a8-dynamic`` (on CPUs, activations quantized when they arrive),
            ``w8a16`` or ``w4a16`` (float models, on NPUs), ``w4a8`` (language models, with 8-bit activations on CPUs only; of these
            ``w4a16`` is on GPUs, too), ``fp8`` (float models, where an accelerator was given such a rate).
        runtime: the vendor runtime whose operator list and overheads are assumed.
        supported: for ``host`` only: why this machine's kernels cannot run an op at a precision, or None if they can
            (``hetsched.runtime.support.supported``). What it refuses is not offered on a CPU queue. None: everything runs.
        others: for ``host`` only: other delegates of this machine's CPU by name, and what each refuses; one of them runs what
            no kernel can, at the cost that :mod:`hetsched_cost_models.delegated` says.
        steps: for ``host`` only: times of the steps of a language model, whose phase the graph is
            (:mod:`hetsched_cost_models.session_steps`); they say how activations meet the weights, not ``precision``.

    Raises:
        OptionError: an unknown precision.
        UnknownRuntimeError: a runtime that the SoC does not have, or one that runs decoders only there.
        UnsupportedModelError: no processor of the SoC has the precision, the model brings integers of its own, or ``supported``
            leaves an op nowhere to run; the message names the node and what is missing.

    Examples:
        >>> from hetsched.soc_files import load_soc
        >>> table = build_table(graph, load_soc("snapdragon-8-gen-3"))  # doctest: +SKIP
    """
    precision = precision if steps is None else "float"
    check_precision(precision)
    _check_runtime(graph, soc, runtime)
    places = _places(soc, runtime)
    features = features_of(graph)
    quantized, work = features.choosing.quantized, features.work
    engine = not soc.is_host and language_rates.decoder_of(graph) is not None
    check_model(graph, precision, quantized, engine)
    wide_held = precision in (*WIDE, *FOUR_BIT)
    held = "w8a16" if wide_held else "w8a8" if precision == "w8a8" or (precision != "float" and quantized) else "float"
    wide = ["rate/w8a16" in r.family.tiled for r in places.rates]
    half = [runtime in r.family.half for r in places.rates]
    deciding = [
        Place.of(r.processor, t, wide=w, half=h, engine=engine) for r, t, w, h in zip(places.rates, places.support, wide, half, strict=True)
    ]
    if soc.is_host and supported is not None:
        found = features.choosing.choose_here(graph, places.queues, deciding, precision, supported, others or {})
    else:
        found = features.choosing.choose(graph, places.queues, deciding, precision)
    _check_offered(graph, soc, precision, found)
    domains = _domains(places, found)
    moves = transfers(features.activations, soc, places.queues, places.rates, domains, places.host, float_to_i8=not quantized)
    launch_s, sync_s = _launches(soc, places, runtime, held), _syncs(soc, places.queues)
    sure, risks = certainty.of(graph, soc, places.rates, found, features.groups, work)
    host_w = places.rates[places.host].one_core_w
    foreign = found.foreign(places.queues)
    said = delegated.notes(graph, found.owner, found.delegate, foreign)
    table = CostTable(
        model=graph.name, soc=soc.id, queues=places.queues, domains=domains, host=places.host,
        input_domain=next(i for i, d in enumerate(domains) if d.queue == places.host),
        alt_start=found.start, alt_precision=found.precision, alt_delegate=found.delegate,
        tensor_bytes=moves.tensor_bytes, conversion_s=moves.conversion_s, maintenance_s=moves.maintenance_s,
        transfer_energy_j=moves.energy_j, transfer_bytes=moves.bytes, dma=moves.dma, copy_bytes=moves.copy_bytes,
        launch_s=launch_s, launch_energy_j=launch_s * host_w, sync_s=sync_s,
        sync_energy_j=np.minimum(sync_s, SPIN_LIMIT_S) * host_w,
        bandwidth_bytes_s=np.array([r.bandwidth_bytes_s for r in places.rates]), cache_bytes_s=_through_cache(places.rates),
        refusals=found.refusals, host_w=host_w, interval=sure,
        notes=(*_notes(graph, soc, work), *risks, *features.notes, *said, *_precision_notes(precision, engine)),
        **price(graph, features, places.queues, places.rates, found, foreign, domains, soc, runtime), **features.structure,
    )  # fmt: skip
    if steps is not None:
        return session_steps.with_steps(table, graph, soc, places.rates, steps)
    storages = {(x.queue, x.precision): storage_of(places.queues[x.queue].kind, x.precision, quantized) for x in found.options}
    priced = language_rates.with_engines(table, graph, soc, work, places.rates, storages, runtime)
    if priced is table or not any(r.extra.adds for r in places.rates):
        return priced
    plain = [replace(r, extra=r.extra.without) for r in places.rates]
    without = replace(table, **price(graph, features, places.queues, plain, found, foreign, domains, soc, runtime))
    return energy.in_proportion(priced, table, without, places.rates, soc)


def _check_offered(graph: Graph, soc: SoC, precision: str, found: Alternatives) -> None:
    """Whether some processor runs what an exotic precision asks for.

    Raises:
        UnsupportedModelError: none does.
    """
    offered = {x.precision for x in found.options}
    if precision in WIDE and not offered & set(WIDE):
        raise UnsupportedModelError(
            f"nothing of {graph.name!r} runs as {precision} on {soc.id}: use --precision w8a8, or a Snapdragon with an NPU"
        )
    if precision == "fp8" and "f8" not in offered:
        raise UnsupportedModelError(
            f"nothing of {graph.name!r} runs as fp8 on {soc.id}: no accelerator of it has an FP8 rate; set one, as in --set npu.fp8_tops=50"
        )


def _precision_notes(precision: str, engine: bool) -> tuple[str, ...]:
    """What plans at a precision say; ``engine``: the rates are those of engines of language models."""
    if engine and precision in FOUR_BIT:
        return (_FOUR_BITS_NOTE,)
    return _NOTES.get(precision, ())


def _check_runtime(graph: Graph, soc: SoC, runtime: str) -> None:
    """Whether ``runtime`` runs such a model on the SoC; an engine of language models runs decoders only.

    Raises:
        UnknownRuntimeError: it does not; the message names those that do.
    """
    known, engines = runtimes_of(soc, decoder=False), () if soc.is_host else runtimes_of(soc)
    if runtime in known or (runtime in engines and language_rates.decoder_of(graph) is not None):
        return
    why = " except for language models with a cache" if runtime in engines else ""
    raise UnknownRuntimeError(f"{soc.id} does not know the runtime {runtime!r}{why}: use one of {', '.join(known)}")


def table_at(table: CostTable, soc: SoC, frequencies: Mapping[str, float]) -> CostTable:
    """The table with some processors slowed down: they compute and move data at the fraction of their top frequency, power as it is there.

    What a processor reaches of the bandwidth goes with its clock because decode loops, which wait for memory, slow down under heat as
    far as the clocks do (docs/thermal.md), and because governors let the memory's clock follow (estimated: in proportion).
    A slowed host also submits and waits at less power, in the time that it took before.

    Args:
        table: a table at the top operating points.
        soc: the SoC that it was built for.
        frequencies: processor name -> fraction of its top frequency, above 0 and at most 1.

    Raises:
        OptionError: an unknown processor, or a fraction out of range.
    """
    scale = np.ones(len(table.queues))
    for name, fraction in frequencies.items():
        if name not in soc.by_name:
            raise OptionError(f"{soc.id} has no processor {name!r}: it has {', '.join(soc.by_name)}")
        if not 0.0 < fraction <= 1.0:
            raise OptionError(f"the frequency of {name!r} must be a fraction above 0 and at most 1, not {fraction!r}")
        scale[[i for i, q in enumerate(table.queues) if q.processor == name]] = fraction
    slowed = replace(table, compute_s=table.compute_s / scale[table.alt_queue], bandwidth_bytes_s=table.bandwidth_bytes_s * scale)
    host = energy.share_at(soc, table.host, float(scale[table.host]))
    return replace(
        slowed, energy_j=table.energy_j + energy.slowed_by(table, slowed, soc, scale), host_share=table.host_share * host,
        launch_energy_j=table.launch_energy_j * host, sync_energy_j=table.sync_energy_j * host,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Places:
    queues: tuple[Queue, ...]
    rates: list[Rates]
    support: list[SupportTable | None]
    host: int


def _places(soc: SoC, runtime: str) -> _Places:
    queues, rates, tables = [], [], []
    for name, target in soc.queues.items():
        processor_name, cores = queue_cores(target)
        processor = soc.by_name[processor_name]
        queues.append(Queue(name, processor_name, processor.kind, cores, processor.delegate))
        rates.append(queue_rates(soc, target))
        table = support_table_name(processor.support, runtime)
        none = SupportTable(f"{runtime}, which has no path to this NPU", {}, (), None)
        tables.append(none if processor.kind == "npu" and runtime in _NO_NPU else support_table(table) if table else None)
    host = next((i for i, q in enumerate(queues) if q.kind == "cpu"), -1)
    if host < 0:
        raise OptionError(f"{soc.id} has no CPU queue: add one under 'queues', it submits the work")
    return _Places(tuple(queues), rates, tables, host)


def _domains(places: _Places, found: Alternatives) -> tuple[Domain, ...]:
    """One domain a CPU queue, one an accelerator queue and storage type in use; the host's first."""
    used = {(x.queue, held_as(places.queues[x.queue].kind, x.precision)) for x in found.options}
    out: list[Domain] = []
    for q, queue in enumerate(places.queues):
        processor = places.rates[q].processor
        if queue.kind == "cpu":
            out.append(Domain(q, "f32", "native"))
            continue
        out.extend(Domain(q, p, processor.layout) for p in ("f32", "f16", "f8", "w8a8", "w8a16") if (q, p) in used)
    return tuple(sorted(out, key=lambda d: (d.queue != places.host, d.queue)))


def _through_cache(rates: Sequence[Rates]) -> float:
    """Bytes a second through a system cache that a user has made larger; infinite without one."""
    return max((r.extra.cache_bytes_s for r in rates if r.extra.cache_bytes > 0.0), default=inf)


def _launches(soc: SoC, places: _Places, runtime: str, held: str) -> FloatArray:
    """[q] launch seconds: what a runtime's fixed cost leaves after the signal back to the host, else the SoC file's or the user's."""
    out = []
    for q, queue in enumerate(places.queues):
        processor = places.rates[q].processor
        family = places.rates[q].family
        fixed = family.fixed_s.get("qnn" if runtime == "default" else runtime, family.fixed_s.get("default"))
        link = soc.link(queue.kind, "cpu")
        if fixed and link is not None and processor.kind != "cpu" and processor.launch_s.was is None:
            signal = link.sync_s.value if link.sync_s.was is None else link.sync_s.was
            own = held if {"f16", "bf16", "f32"} & places.rates[q].peak_ops_s.keys() else "w8a8"  # integers only, whatever was asked for
            out.append(max(1e-5, fixed.get(own, fixed["w8a8"]) * _fixed_scale(soc, places.rates[q]) - signal))
        else:
            out.append(processor.launch_s.value)
    return np.array(out)


def _fixed_scale(soc: SoC, rates: Rates) -> float:
    """How much longer a graph's fixed cost takes than on the chip that it was fitted on."""
    if rates.family.fixed_bandwidth:
        return rates.family.fixed_bandwidth / rates.bandwidth_bytes_s
    if not rates.family.tiled:
        return 1.0
    fastest = max(c.top.hz for p in soc.processors if p.kind == "cpu" for c in p.clusters)
    return hexagon.fixed_scale(rates.vector_bytes_s, fastest, rates.family.tiled)


def _syncs(soc: SoC, queues: tuple[Queue, ...]) -> FloatArray:
    """[q, q] seconds from a producer's signal to its consumer's start."""
    n = len(queues)
    sync = np.zeros((n, n))
    for a, x in enumerate(queues):
        for b, y in enumerate(queues):
            if a == b:
                continue
            link = soc.link(x.kind, y.kind)
            sync[a, b] = link.sync_s.value if link is not None else 0.0
    return sync


def _notes(graph: Graph, soc: SoC, work: Work) -> tuple[str, ...]:
    notes = list(soc.notes)
    if work.unknown:
        shown = ", ".join(f"{graph.ops[i].name} ({graph.ops[i].type})" for i in work.unknown[:3])
        more = f" and {len(work.unknown) - 3} more" if len(work.unknown) > 3 else ""
        notes.append(f"planned by their bytes only, because the work model does not know them: {shown}{more}")
    return tuple(notes)
