"""Fits :mod:`hetsched_cost_models.language_form` to public rates of language models, cross-validated by model x SoC.

Few paces are worth a parameter: those that a fit finds near 1 are 1, and the others are fitted again. Prompts are fitted after tokens,
whose parameters they need: those of a fit without a group's tokens where that group is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from hetsched.soc_files import load_soc
from hetsched_cost_models.fit.intervals import COVERAGE
from hetsched_cost_models.fit.language_data import Rate
from hetsched_cost_models.fit.scores import weighted_quantile
from hetsched_cost_models.language_form import Form, Place, Step, seconds_of, usual_place
from hetsched_cost_models.work import BoolArray, FloatArray

FOLDS = 10
#: How soon errors stop counting, step by step: far ones pull first, so that the minimum does not depend on where a fit starts.
_SOFT = (0.5, 1.5, 3.0)
#: Fewer groups have no pace of their own.
_LEAST = 2
#: Tokens of a prompt whose length is not said: that of llama.cpp's and LiteRT's benchmarks.
_USUAL_PROMPT = 512
#: Ridge of rates and of paces: paces of few groups stay near 1.
_RATE_RIDGE, _PACE_RIDGE = 0.05, 0.1
#: Paces whose logarithm is nearer to 0 are 1: about a fifth, what the fit errs by anyway.
NEAR_ONE = 0.2


@lru_cache(maxsize=128)
def _place(chip: str, unit: str, threads: int) -> Place:
    return usual_place(load_soc(chip), unit, threads)


def step_of(rate: Rate, phase: str, decode: Mapping[str, float] | None = None) -> Step:
    """What was timed. A cache that is made for more than a prompt (LiteRT, Genie) is attended to as a whole.

    Args:
        rate: the row.
        phase: ``decode`` or ``prefill``.
        decode: parameters of decoding, of which a prompt's first part is made; None: that part is 0.
    """
    place = _place(rate.chip, rate.unit, rate.threads)
    weights = rate.params * rate.bits / 8.0
    token = Step(place, rate.engine, 1, rate.params, 0.0, weights, rate.kv_bytes * rate.context, rate.layers, rate.bits, rate.k_quants)
    if phase == "decode":
        return token
    tokens = rate.prompt or _USUAL_PROMPT
    seen = rate.context if rate.context > tokens else (tokens + 1) / 2.0
    products = (rate.params - rate.head) * tokens + rate.head
    attended = 2.0 * rate.layers * rate.width * tokens * seen
    return Step(
        place, rate.engine, tokens, products, attended, weights, 0.0, rate.layers, rate.bits, rate.k_quants,
        0.0 if decode is None else seconds_of(replace(token, cache_bytes=0.0), "decode", decode),
    )  # fmt: skip


def form_of(rows: Sequence[Rate], phase: str, decode: Mapping[str, float] | None = None) -> tuple[Form, FloatArray]:
    """The steps of ``rows``, and the logarithms of their measured seconds; ``decode`` as in :func:`step_of`."""
    steps = [step_of(r, phase, decode) for r in rows]
    return Form(steps, phase), np.log([s.tokens / getattr(r, phase) for s, r in zip(steps, rows, strict=True)])


def priors(rows: Sequence[Rate], phase: str) -> dict[str, tuple[float, float]]:
    """Name -> (prior, ridge) of the parameters that ``rows`` bear on, before paces near 1 are left out."""
    seen: dict[str, set[str]] = {}
    for r, names in zip(rows, form_of(rows, phase)[0].paces, strict=True):
        for n in names:
            seen.setdefault(n, set()).add(r.group)
    # An engine that was seen on one chip has no pace on it beside its own.
    own = {n for n in seen if n.count("/") < 3 or seen[n] != seen[n.rpartition("/")[0]]}
    found = {n: (1.0, _PACE_RIDGE) for n in sorted(own) if len(seen[n]) >= _LEAST}
    if phase == "prefill":
        return {"gemm": (0.1, _RATE_RIDGE)} | found
    return {"lanes": (0.05, _RATE_RIDGE), "unpack": (1.0, _PACE_RIDGE), "layer_s": (1e-4, _RATE_RIDGE)} | found


def fit(
    rows: Sequence[Rate], phase: str, names: Mapping[str, tuple[float, float]], decode: Mapping[str, float] | None = None
) -> FloatArray:
    """Logarithms of the parameters ``names``, from their priors; every group counts alike. ``decode`` as in :func:`step_of`."""
    from scipy.optimize import least_squares

    (form, measured), count = form_of(rows, phase, decode), Counter(r.group for r in rows)
    root = np.sqrt([1.0 / count[r.group] for r in rows])
    prior, ridge = np.log([v for v, _ in names.values()]), np.array([w for _, w in names.values()])

    def residuals(x: FloatArray, soft: float) -> FloatArray:
        error = form.log_seconds(parameters(names, x)) - measured
        return np.concatenate([root * np.arctan(soft * error) / soft, ridge * (x - prior)])

    x = prior
    for soft in _SOFT:
        x = least_squares(residuals, x, args=(soft,), max_nfev=25, xtol=1e-4, ftol=1e-4).x
    return np.asarray(x)


def parameters(names: Mapping[str, tuple[float, float]], x: FloatArray) -> dict[str, float]:
    """By name."""
    return dict(zip(names, np.exp(x).tolist(), strict=True))


def needed(
    rows: Sequence[Rate], phase: str, names: Mapping[str, tuple[float, float]], decode: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The parameters of ``names`` by name, without paces near 1: the others are fitted again until none is."""
    while True:
        found = parameters(names, fit(rows, phase, names, decode))
        kept = {n: names[n] for n, v in found.items() if not n.startswith("pace/") or abs(np.log(v)) >= NEAR_ONE}
        if len(kept) == len(names):
            return found
        names = kept


@dataclass(frozen=True, eq=False)
class LanguageFit:
    """A phase's shipped parameters and what fits without a row's group predict."""

    phase: str
    rows: tuple[Rate, ...]
    shipped: dict[str, float]
    apart: FloatArray
    """Logarithm of predicted over measured tokens a second, by a fit without the row's group."""

    @property
    def errors(self) -> FloatArray:
        """|predicted - measured| / measured tokens a second."""
        return np.abs(np.expm1(self.apart))

    @property
    def by_group(self) -> list[float]:
        """Median error of every model x chip."""
        return self.medians(np.ones(len(self.rows), bool))

    @property
    def known(self) -> BoolArray:
        """Whether a row's engine was measured on the chip with other models."""
        found = seen(self.rows)
        return np.array([found[f"{r.engine}/{r.unit}/{r.chip}"] != {r.group} for r in self.rows])

    def medians(self, mine: BoolArray) -> list[float]:
        """Median error of every model x chip over the rows that are ``mine``."""
        groups = np.array([r.group for r in self.rows])
        return [float(np.median(self.errors[mine & (groups == g)])) for g in sorted(set(groups[mine].tolist()))]


def repeat_spread(rows: Sequence[Rate], phase: str) -> tuple[float, int]:
    """Median distance of a row from the median of rows of one model, bits, chip, processor, engine and harness; and their number."""
    found: dict[tuple[object, ...], list[float]] = {}
    for r in rows:
        if getattr(r, phase) > 0:
            found.setdefault((r.group, r.bits, r.engine, r.unit, r.app), []).append(getattr(r, phase))
    apart = [abs(v / np.median(mine) - 1.0) for mine in found.values() if len(mine) > 1 for v in mine]
    return float(np.median(apart)), len(apart)


def fitted(rows: Sequence[Rate], phase: str) -> LanguageFit:
    """Fit on all rows of a phase, and on those of nine tenths of the groups in turn, which choose their own paces."""
    picked = [r for r in rows if getattr(r, phase) > 0]
    names = priors(picked, phase)
    groups, apart = sorted({r.group for r in picked}), np.zeros(len(picked))
    for i in range(FOLDS):
        part = set(groups[i::FOLDS])
        out = [j for j, r in enumerate(picked) if r.group in part]
        decode = _decoding(rows, phase, part)
        p = needed([r for r in picked if r.group not in part], phase, names, decode)
        form, measured = form_of([picked[j] for j in out], phase, decode)
        apart[out] = measured - form.log_seconds(p)
    return LanguageFit(phase, tuple(picked), needed(picked, phase, names, _decoding(rows, phase, set())), apart)


def _decoding(rows: Sequence[Rate], phase: str, without: Set[str]) -> dict[str, float] | None:
    """Parameters of decoding fitted to other groups, where the phase needs them."""
    if phase == "decode":
        return None
    picked = [r for r in rows if r.decode > 0 and r.group not in without]
    return needed(picked, "decode", priors(picked, "decode"))


def seen(rows: Sequence[Rate]) -> dict[str, set[str]]:
    """``engine/unit/chip`` -> groups that it was measured on."""
    found: dict[str, set[str]] = {}
    for r in rows:
        found.setdefault(f"{r.engine}/{r.unit}/{r.chip}", set()).add(r.group)
    return found


def half_widths(found: LanguageFit) -> dict[str, float]:
    """Half-widths of 80 % intervals in the logarithm, conformal on model x chip left out, each of which counts alike.

    ``seen``: of an engine that was measured on the chip with other models, ``unseen``: of one that was not. The narrower case is at
    least as sure as the wider one.
    """
    out = {}
    for case, mine in (("seen", found.known), ("unseen", ~found.known)):
        groups = Counter(r.group for r, m in zip(found.rows, mine.tolist(), strict=True) if m)
        weights = np.array([1.0 / groups[r.group] if m else 0.0 for r, m in zip(found.rows, mine.tolist(), strict=True)])
        out[case] = weighted_quantile(np.abs(found.apart), weights, min(1.0, COVERAGE * (len(groups) + 1) / len(groups)))
    return {"seen": min(out.values()), "unseen": max(out.values())}


def coverage(found: LanguageFit) -> float:
    """Share of measured rates in the 80 % interval, whose width is that of the other chips; every model x chip counts alike."""
    chips, inside = np.array([r.chip for r in found.rows]), np.zeros(len(found.rows))
    for chip in sorted(set(chips.tolist())):
        other = chips != chip
        rows = tuple(r for r, o in zip(found.rows, other.tolist(), strict=True) if o)
        widths = half_widths(replace(found, rows=rows, apart=found.apart[other]))
        width = np.where(found.known, widths["seen"], widths["unseen"])
        inside[~other] = (np.abs(found.apart) <= width)[~other]
    groups = np.array([r.group for r in found.rows])
    return float(np.mean([inside[groups == g].mean() for g in sorted(set(groups.tolist()))]))


def file_text(fits: Mapping[str, LanguageFit]) -> str:
    """The parameter file of :mod:`hetsched_cost_models.language_rates`: values, half-widths, and what was seen."""
    lines = ["# Written by `make fit` (hetsched_cost_models.fit.processors); language_form.py says what the form is.", "version: 1"]
    for phase, found in fits.items():
        lines += ["", f"# {len(found.rows)} rows of {len(found.by_group)} model x chip, left out: median {np.median(found.by_group):.3f}"]
        lines += [f"{phase}:", *(f"  {n}: {_figure(v, 'public rates, make fit')}" for n, v in found.shipped.items())]
    lines += ["", "# Of 80 % intervals, in the logarithm: engines measured on the chip with other models, and all others.", "half_width:"]
    for phase, found in fits.items():
        widths = half_widths(found).items()
        lines += [f"  {phase}:", *(f"    {c}: {_figure(w, 'make fit: conformal on model x chip left out')}" for c, w in widths)]
    lines += ["", "# Engine, processor and chip of the rows.", "seen:"]
    return "\n".join([*lines, *(f"  {phase}: [{', '.join(sorted(seen(found.rows)))}]" for phase, found in fits.items())]) + "\n"


def _figure(value: float, source: str) -> str:
    return f'{{value: {value:.4g}, source: "{source}"}}'
