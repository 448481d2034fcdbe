"""CPU, GPU, Neural Engine, language and power fits: ``python -m hetsched_cost_models.fit.processors [--check]``.

Writes ``fitted/processors.yaml`` and prints the figures; ``--check`` writes nothing. The exit code is 1 if a goal is missed. All that
it reads is in ``data/`` and in the SoC files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from hetsched.soc_files import load_soc
from hetsched_cost_models import language_rates
from hetsched_cost_models.fit import economy, language_fit, power, processor_families
from hetsched_cost_models.fit.accuracy import Figure
from hetsched_cost_models.fit.language_data import Rate, rates
from hetsched_cost_models.fit.processor_data import Row, chips, rows
from hetsched_cost_models.fit.processor_fit import KINDS, Fitted, fitted, half_width
from hetsched_cost_models.fit.processor_form import ANE_BANDWIDTH
from hetsched_cost_models.fit.writing import write
from hetsched_cost_models.parameters import family_of
from hetsched_cost_models.work import FloatArray

FILE, VERSION = "processors.yaml", 1
_GOAL, _APPLE_GOAL, _FASTER_GOAL, _DECODE_GOAL, _PREFILL_GOAL, _POWER_GOAL = 0.20, 0.25, 0.90, 0.20, 0.30, 0.20

#: Shares of measured rates that an 80 % interval may hold.
_COVERED = (0.72, 0.88)
#: Pairs whose measured times differ by less can hardly be told.
_APART = {1.1: "at least a tenth apart", 1.25: "at least a quarter apart"}


@dataclass(frozen=True, eq=False)
class Fits:
    """All of them, with their predictions of what was left out."""

    units: dict[str, Fitted]
    language: dict[str, language_fit.LanguageFit]
    power: dict[str, float]
    power_errors: FloatArray


@lru_cache(maxsize=1)
def fits() -> Fits:
    """Fit everything; about a minute."""
    units = {name: fitted(kind, [r for r in rows() if r.unit == name]) for name, kind in KINDS.items()}
    language = {phase: language_fit.fitted(rates(), phase) for phase in ("decode", "prefill")}
    points = power.points()
    return Fits(units, language, power.named(power.fit(points)), power.left_out(points))


def by_model(found: Sequence[Row], errors: Sequence[float]) -> float:
    """The median over networks of their median errors."""
    each: dict[str, list[float]] = {}
    for r, e in zip(found, errors, strict=True):
        each.setdefault(r.model, []).append(e)
    return float(np.median([np.median(e) for e in each.values()]))


def _figure(what: str, goal: float | None, value: float, detail: str) -> Figure:
    limit = "" if goal is None else f"<= {goal:.0%}"
    return Figure(what, limit, f"{value:.1%} ({detail})", None if goal is None else value <= goal)


def _units(f: Fits) -> Iterator[Figure]:
    """CPU and GPU by network, and how that is without weighing networks alike and on chips with a file."""
    for name in ("cpu", "gpu"):
        fit = f.units[name]
        errors = fit.errors.tolist()
        filed = [i for i, r in enumerate(fit.rows) if chips()[r.chip].has_file]
        networks = len({r.model for r in fit.rows})
        yield _figure(
            f"{name.upper()}, networks left out: median error",
            _GOAL,
            by_model(fit.rows, errors),
            f"{len(errors)} rows, {networks} networks",
        )
        yield _figure(f"{name.upper()}, networks left out: median of all rows alike", None, float(np.median(errors)), f"{len(errors)} rows")
        own = by_model([fit.rows[i] for i in filed], [errors[i] for i in filed])
        yield _figure(f"{name.upper()}, the same on chips with a SoC file", None, own, f"{len(filed)} rows")


def _best(fit: Fitted) -> dict[tuple[str, str, str], tuple[float, float]]:
    """(network, chip, engine) -> seconds measured and predicted of the fastest measured setting."""
    found: dict[tuple[str, str, str], tuple[float, float]] = {}
    for r, p in zip(fit.rows, np.exp(fit.left_out).tolist(), strict=True):
        key = (r.model, r.chip, r.engine)
        if key not in found or r.seconds < found[key][0]:
            found[key] = (r.seconds, p)
    return found


def _faster(f: Fits) -> Iterator[Figure]:
    """How often the faster unit is named: of all pairs, and of those whose measured times differ by a tenth or a quarter."""
    cpu, gpu = _best(f.units["cpu"]), _best(f.units["gpu"])
    pairs = [k for k in cpu if k in gpu]
    right = {k: (cpu[k][0] < gpu[k][0]) == (cpu[k][1] < gpu[k][1]) for k in pairs}
    share = float(np.mean(list(right.values())))
    what = "faster of CPU and GPU named rightly"
    yield Figure(what, f">= {_FASTER_GOAL:.0%}", f"{share:.1%} ({len(pairs)} pairs)", share >= _FASTER_GOAL)
    for ratio, said in _APART.items():
        apart = [r for k, r in right.items() if max(cpu[k][0], gpu[k][0]) >= ratio * min(cpu[k][0], gpu[k][0])]
        yield Figure(f"{what}, {said}", "", f"{np.mean(apart):.1%} ({len(apart)} pairs)")


def _apple(f: Fits) -> Iterator[Figure]:
    """Apple's CPUs and all compute units."""
    parts = []
    for name, what in (("cpu", "Apple CPU"), ("npu", "Apple, all units or the Neural Engine")):
        fit = f.units[name]
        own = [(r, e) for r, e in zip(fit.rows, fit.errors.tolist(), strict=True) if r.chip.startswith("apple")]
        parts += own
        found, errors = [r for r, _ in own], [e for _, e in own]
        yield _figure(f"{what}, networks left out: median error", _APPLE_GOAL, by_model(found, errors), f"{len(own)} rows")
    yield _figure("Apple, both", None, by_model([r for r, _ in parts], [e for _, e in parts]), f"{len(parts)} rows")


def _language(f: Fits) -> Iterator[Figure]:
    for phase, goal in (("decode", _DECODE_GOAL), ("prefill", _PREFILL_GOAL)):
        fit = f.language[phase]
        detail = f"{len(fit.rows)} rows, {len(fit.by_group)} model x chip"
        yield _figure(f"language models, {phase}, model x chip left out: median", goal, float(np.median(fit.by_group)), detail)
        yield _figure(f"language models, {phase}: median of all rows alike", None, float(np.median(fit.errors)), f"{len(fit.rows)} rows")
        spread, repeats = language_fit.repeat_spread(fit.rows, phase)
        yield _figure(f"spread of repeats, {phase}", None, spread, f"{repeats} rows")
        for what, mine in (("measured", fit.known), ("not measured", ~fit.known)):
            found = fit.medians(mine)
            name = f"{phase}, engines {what} on the chip with other models: median"
            yield _figure(name, None, float(np.median(found)), f"{len(found)} model x chip")
        inside = language_fit.coverage(fit)
        within = f"{_COVERED[0]:.0%}-{_COVERED[1]:.0%}"
        what = f"{phase}, 80 % interval as wide as other chips' says: covers"
        yield Figure(what, within, f"{inside:.1%}", _COVERED[0] <= inside <= _COVERED[1])
        for app, what in ((False, "benchmarks"), (True, "phone apps")):
            own = [e for r, e in zip(fit.rows, fit.errors.tolist(), strict=True) if r.app == app]
            if own:
                yield _figure(f"{phase}, {what} alone: median of rows", None, float(np.median(own)), f"{len(own)} rows")


def _power(f: Fits) -> Iterator[Figure]:
    points = power.points()
    chips_seen = len(set(points.chip.tolist()))
    detail = f"{len(points.ghz)} points of {chips_seen} chips"
    yield _figure("CPU power against frequency, chips left out: median", _POWER_GOAL, float(np.median(f.power_errors)), detail)
    filed = np.isin(points.chip, list(power.FILED))
    detail = f"{filed.sum()} points of {', '.join(power.FILED.values())}"
    yield _figure("the same on chips with a SoC file", None, float(np.median(f.power_errors[filed])), detail)
    each = list(power.by_cluster(points, f.power_errors))
    yield _figure("the same, clusters alike", None, float(np.median(each)), f"{len(each)} clusters")
    # Two rows give a prompt's rate beside them, but as a prompt's joules the one would be 630 W: all are decoding's.
    spent = [r for r in rates() if r.j_per_token > 0]
    errors = [abs(_joules(r, f) / r.j_per_token - 1.0) for r in spent]
    yield Figure("joules a token: median error", "", f"{np.median(errors):.1%} ({len(spent)} rows)")


def _joules(r: Rate, f: Fits) -> float:
    """Predicted joules a token: what the unit draws while it waits for memory and the rest of the phone, and what the memory takes.

    The measured joules are the battery's, so the phone's base load is among them.
    """
    soc = load_soc(r.chip)
    unit = next(p for p in soc.processors if p.kind == r.unit)
    busy = soc.base_w.value + sum(family_of(unit).busy_share * c.dynamic_w.value + c.leakage_w.value for c in unit.clusters)
    form, _ = language_fit.form_of([replace(r, decode=1.0)], "decode")
    seconds = float(np.exp(form.log_seconds(f.language["decode"].shipped))[0])
    return busy * seconds + float(form.bytes[0]) * soc.memory.energy_j_per_byte.value


def figures(f: Fits | None = None) -> Iterator[Figure]:
    """The whole table."""
    f = f or fits()
    yield from _units(f)
    yield from _faster(f)
    yield from _apple(f)
    yield from _language(f)
    yield from _power(f)
    yield from economy.figures()


def texts(f: Fits) -> dict[str, str]:
    """Every file that the fits write: their own, and what the roofline takes over."""
    cpu, gpu, npu = (_stored(f.units[u]) for u in ("cpu", "gpu", "npu"))
    taken = {f"{n}.yaml": processor_families.gpu(gpu, n, half_width(f.units["gpu"])) for n in ("adreno", "mali")}
    taken |= {f"{n}.yaml": processor_families.cpu(cpu, n, half_width(f.units["cpu"])) for n in ("cortex", "apple-cpu")}
    ane = processor_families.ane(npu, ANE_BANDWIDTH, half_width(f.units["npu"]))
    return {FILE: file_text(f), "ane.yaml": ane, language_rates.FILE: language_fit.file_text(f.language)} | taken


def _stored(fit: Fitted) -> dict[str, float]:
    """The parameters as ``processors.yaml`` has them."""
    return {n: float(f"{v:.4g}") for n, v in fit.kind.parameters(fit.shipped).items()}


def file_text(f: Fits) -> str:
    """The parameter file: values with what they are, and errors of what was left out."""
    lines = ["# Written by `make fit` (hetsched_cost_models.fit.processors), which says what each form is.", f"version: {VERSION}"]
    for name, fit in f.units.items():
        errors = fit.errors.tolist()
        detail = f"{len(errors)} rows of {len({r.model for r in fit.rows})} networks, left out: median {by_model(fit.rows, errors):.3f}"
        about = {n: what for n, (_, what) in fit.kind.priors.items()}
        lines += _section(name, fit.kind.parameters(fit.shipped), about, detail)
    detail = f"{len(f.power_errors)} points, chips left out: median {np.median(f.power_errors):.3f}"
    lines += _section("power", f.power, {n: what for n, (_, what) in power.PRIORS.items()}, detail)
    return "\n".join(lines) + "\n"


def _section(name: str, values: Mapping[str, float], about: Mapping[str, str], detail: str) -> list[str]:
    entry = [
        f'  {n}: {{value: {v:.4g}, source: "public measurements, make fit{": " + about[n] if n in about else ""}"}}'
        for n, v in values.items()
    ]
    return ["", f"# {detail}", f"{name}:", *entry]


def main(arguments: Sequence[str]) -> int:
    """Fit and print; 1 if a goal is missed."""
    f = fits()
    if "--check" not in arguments:
        for name, text in texts(f).items():
            print(f"wrote {write(name, text).name}")
    table = list(figures(f))
    for line in table:
        print(f"{line.what:<62} {line.goal:>8}  {line.measured:<50} {'' if line.met is None else 'yes' if line.met else 'NO'}")
    judged = [line for line in table if line.met is not None]
    met = sum(bool(line.met) for line in judged)
    print(f"{met} of {len(judged)} goals met")
    return 0 if met == len(judged) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
