"""What corrects a prediction: anchors (measured whole models) and measured times of single operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from hetsched import plain_yaml, wrong_fields
from hetsched.anchors import Anchor, Unit, counting
from hetsched.app.inputs import cost_table, targeted
from hetsched.app.inputs import soc as find_soc
from hetsched.costs import CostTable
from hetsched.errors import InputError, OptionError
from hetsched.graph import Graph
from hetsched.measured import Measured
from hetsched.plans import Plan
from hetsched.soc_quantities import Number, Strict
from hetsched.socs import SoC

_MAX_FILE_BYTES = 1 << 20
#: An anchored interval holds for plans that spend at least this share of their operators' time on what was anchored.
ANCHORED_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Wanted:
    """An anchor as the user gives it: not yet compared with a prediction. None: as the plan has it."""

    chip: str
    latency_s: float
    runtime: str | None = None
    precision: str | None = None
    unit: Unit = "npu"


def read_anchor(text: str | Path) -> list[Wanted]:
    """``chip=ID,latency_ms=N[,runtime=…][,precision=…][,unit=cpu|gpu|npu|all]``, or a YAML file with one or several of these.

    Raises:
        OptionError: a key or a value that makes no sense, or a file that cannot be read.
    """
    given = str(text)
    if "=" in given and not Path(given).is_file():
        items = [part.partition("=") for part in given.split(",")]
        if any(not sep or not key.strip() for key, sep, _ in items) or len({k.strip() for k, _, _ in items}) < len(items):
            raise OptionError(f"--anchor {given!r} is not a list of KEY=VALUE, each key once: write chip=ID,latency_ms=1.58,runtime=qnn")
        return [_wanted({k.strip(): v.strip() for k, _, v in items}, f"--anchor {given!r}")]
    return _from_file(Path(given))


def _from_file(path: Path) -> list[Wanted]:
    if not path.is_file():
        raise OptionError(f"--anchor {str(path)!r} is neither KEY=VALUE,… nor a file: write chip=ID,latency_ms=1.58,runtime=qnn")
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise OptionError(f"the anchor file {path} is larger than 1 MiB: it is not one")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise OptionError(f"cannot read the anchor file {path}: {type(e).__name__}; it is YAML with chip, latency_ms, …") from e
    try:
        raw = plain_yaml.load(text)
    except ValueError as e:
        raise OptionError(f"the anchor file {path} {e}") from e
    rows = raw if isinstance(raw, list) else [raw]
    if not rows or not all(isinstance(r, dict) for r in rows):
        raise OptionError(f"the anchor file {path} holds no mapping with chip and latency_ms, nor a list of them")
    return [_wanted(r, f"the anchor file {path}") for r in rows]


class _Given(Strict):
    """An anchor as it stands in a file or in an option."""

    chip: Annotated[str, Field(min_length=1, max_length=4096)]
    latency_ms: Annotated[Number, Field(ge=1e-4, le=1e8)]
    runtime: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    precision: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    unit: Unit = "npu"


def _wanted(given: Mapping[str, Any], where: str) -> Wanted:
    try:
        found = _Given.model_validate(given)
    except ValidationError as e:
        raise OptionError(f"{where}: {wrong_fields.fault(e, _Given)}") from e
    return Wanted(found.chip, found.latency_ms / 1e3, found.runtime, found.precision, found.unit)


def anchors_for(
    graph: Graph, chip: SoC, table: CostTable, precision: str, runtime: str, wanted: Iterable[str | Path | Wanted | Anchor], *, public: bool
) -> tuple[Anchor, ...]:
    """The anchors of a plan: those that the user gives, or, without any, the closest public one of a network that is known.

    Args:
        graph: after the standard passes, before anything that belongs to one SoC.
        chip: the SoC of the plan.
        table: of the plan, uncorrected.
        precision: of the plan.
        runtime: of the plan.
        wanted: the user's anchors.
        public: whether the shipped table is looked at.

    Raises:
        OptionError: an anchor names an unknown chip, runtime, precision or unit.
        InputError: the model cannot be predicted on the anchor's chip.
    """
    given = list(wanted)
    if given:
        made = [a for w in given if isinstance(w, Anchor) for a in [w]]
        asked = [x for w in given if not isinstance(w, Anchor) for x in ([w] if isinstance(w, Wanted) else read_anchor(w))]
        return (*made, *(_compared(graph, w, chip, precision, runtime) for w in asked))
    npu = any(table.queues[q].kind == "npu" for q in set(table.alt_queue.tolist()))
    return _public(graph, chip, precision, runtime) if public and npu else ()


def _compared(graph: Graph, wanted: Wanted, chip: SoC, precision: str, runtime: str) -> Anchor:
    """The user's anchor with its prediction and the interval that it gives."""
    other = chip if wanted.chip == chip.id and not chip.overrides else find_soc(wanted.chip)
    used = wanted.precision or _plain(graph, precision)
    with_ = wanted.runtime or (runtime if other.id == chip.id else "default")
    predicted = predict(graph, other, used, with_, wanted.unit)
    low_high, basis = _interval(other, chip, with_, runtime, wanted.unit) if used == _plain(graph, precision) else (None, "")
    return Anchor(
        chip=other.id, latency_s=wanted.latency_s, predicted_s=predicted, runtime=with_, precision=used, unit=wanted.unit,
        interval=low_high, basis=basis,
    )  # fmt: skip


def predict(graph: Graph, chip: SoC, precision: str, runtime: str, unit: Unit = "npu") -> float:
    """Predicted seconds of a model on one unit of a SoC, uncorrected: everything there that can be, the rest on the CPU.

    ``all`` is what vendor runtimes do with all units: the baseline *vendor* of every plan.

    Raises:
        OptionError: the SoC has no such unit or can run nothing on it, or does not know the runtime or the precision.
    """
    from hetsched.partition import Problem, solve
    from hetsched.segments import schedule
    from hetsched_cost_models.anchoring import on_kind

    table = cost_table(targeted(graph, chip), chip, precision, runtime)
    if unit != "all":
        if not any(table.queues[q].kind == unit for q in set(table.alt_queue.tolist())):
            refused = (r for row in table.refusals for r in reversed(row) if table.queues[r.queue].kind == unit)
            why = next((r.reason for r in refused), f"it has no {unit}")
            raise OptionError(
                f"{chip.id} can run nothing of {graph.name!r} on its {unit} ({precision}), so nothing can be anchored there: {why}"
            )
        return on_kind(table, unit)
    answer = solve(Problem(table=table), "vendor")
    return schedule(table, answer.order, answer.alternative).latency_s


def _plain(graph: Graph, precision: str) -> str:
    """What ``auto`` means for a graph: ``float``, or ``w8a8`` for a quantized one."""
    from hetsched_cost_models.precisions import is_quantized_model

    return precision if precision != "auto" else "w8a8" if is_quantized_model(graph) else "float"


def _public(graph: Graph, chip: SoC, precision: str, runtime: str) -> tuple[Anchor, ...]:
    from hetsched.graph_hash import graph_hash
    from hetsched_cost_models.anchoring import calibrated, closest, public_anchors

    if not calibrated(chip, chip):
        return ()
    found = closest(public_anchors(graph_hash(graph)), chip, runtime, _plain(graph, precision))
    if found is None:
        return ()
    other = chip if found.chip == chip.id and not chip.overrides else find_soc(found.chip)
    try:
        predicted = predict(graph, other, found.precision, found.runtime)
    except InputError:  # what ran there is not what the model of costs thinks can run there
        return ()
    low_high, basis = _interval(other, chip, found.runtime, runtime, "npu")
    return (
        Anchor(
            chip=found.chip, latency_s=found.latency_s, predicted_s=predicted, runtime=found.runtime, precision=found.precision,
            source=f"{found.source}; recognised as {found.model}", interval=low_high, basis=basis,
        ),
    )  # fmt: skip


def _interval(other: SoC, chip: SoC, anchor_runtime: str, runtime: str, unit: Unit) -> tuple[tuple[float, float] | None, str]:
    """The calibrated interval of an anchored prediction and its basis; none where the calibration has nothing like it."""
    from hetsched_cost_models.anchoring import are_similar, calibrated, intervals, relation

    shared = relation(anchor_runtime, runtime, same_chip=other is chip, similar=are_similar(other, chip))
    found = intervals().get(shared)
    if found is None or (shared != "same-chip" and (unit != "npu" or not calibrated(other, chip))):
        return None, ""
    many = f" ({found.pairs} pairs of {found.models} models)" if found.pairs else ""
    return (found.low, found.high), f"{shared}: {found.basis}{many}"


def corrected(table: CostTable, anchors: Sequence[Anchor], measured: Measured | None = None) -> CostTable:
    """The table as a plan with these anchors and measurements is priced, with a note on each; measured operators win."""
    from hetsched_cost_models.anchoring import anchored
    from hetsched_cost_models.measured import with_measured

    if not anchors and measured is None:
        return table
    counted = [a for own in counting(anchors, table.soc).values() for a in own]
    anchors = [a for a in anchors if a in counted]
    out = anchored(table, anchors)
    notes = [_note(a) for a in anchors]
    if anchors and all(a.interval is not None for a in anchors):
        spans = [a.interval for a in anchors if a.interval is not None]
        out = replace(out, interval=(min(s[0] for s in spans), max(s[1] for s in spans)))
    if measured is not None:
        out = with_measured(out, measured)
        notes.append(measured.describe())
    return replace(out, notes=(*notes, *out.notes))


def _note(anchor: Anchor) -> str:
    what = "times of all units" if anchor.unit == "all" else f"{anchor.unit.upper()} times"
    source = f"; {anchor.source}" if anchor.source else ""
    basis = f"; interval: {anchor.basis}" if anchor.basis else "; interval not narrowed: nothing like it was calibrated"
    return f"anchored to {anchor.describe()}: {what} x {anchor.factor:.3g}{source}{basis}"


def honest(plan: Plan, plain: CostTable, table: CostTable, anchors: Sequence[Anchor]) -> Plan:
    """The plan, with the interval of the model alone where too little of its time is on what was anchored."""
    if not anchors or table.interval == plain.interval:
        return plan
    kinds = {k for a in anchors for k in a.kinds}
    on = {q.name for q in table.queues if q.kind in kinds}
    total = sum(p.seconds for p in plan.placements)
    share = sum(p.seconds for p in plan.placements if p.queue in on) / total if total > 0 else 1.0
    if share >= ANCHORED_SHARE:
        return plan
    latency = plan.prediction.latency_s
    interval = (latency * plain.interval[0], latency * plain.interval[1])
    note = f"only {share:.0%} of the operators' time is on what was anchored, so the interval is the model's own"
    prediction = plan.prediction.model_copy(update={"latency_interval_s": interval})
    return plan.model_copy(update={"prediction": prediction, "notes": (note, *plan.notes)})


def read_measured(path: str | Path, graph: Graph, table: CostTable) -> Measured:
    """The measured times of a profile's operators that the graph has and that the table can use.

    Raises:
        TraceError: the profile cannot be read.
        OptionError: none of its operators is one of the graph.
    """
    from hetsched.profiles import read
    from hetsched.profiles.matching import measured
    from hetsched_cost_models.measured import applies

    file = Path(path)
    found = measured(read(file), graph, file.name)
    kept = tuple(o for o in found.ops if applies(table, o))
    if not kept:
        why = "no operator of the profile is one of the model's, by name or by type and shape"
        if found.ops:
            queues = ", ".join(dict.fromkeys(f"{o.queue} {o.precision}".strip() for o in found.ops))
            why = f"it has times for {queues}, where {table.soc} cannot run these operators at this precision"
        raise OptionError(f"--measured {file.name} says nothing about {graph.name!r}: {why}")
    return found.model_copy(update={"ops": kept})
