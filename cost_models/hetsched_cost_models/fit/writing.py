"""Writes a fitted parameter file: values with their provenance, half-widths of intervals, residuals by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hetsched_cost_models.fit.dataset import Row, operators
from hetsched_cost_models.fit.priors import FITTED, FIXED
from hetsched_cost_models.fit.scores import Score, score
from hetsched_cost_models.parameters import FITTED as FOLDER
from hetsched_cost_models.work import FloatArray

VERSION = 1


def file_text(p: Mapping[str, float], rows: Sequence[Row], predicted: FloatArray, about: str, widths: Mapping[str, float]) -> str:
    """The file as text; ``predicted`` are logarithms of the predictions of ``rows``, which the parameters were fitted to."""
    origin = f"fitted to {len(rows)} rows of {len({r.model for r in rows})} graphs ({about})"
    plain = [n for n in (*FITTED, *FIXED) if not n.startswith(("fixed/", "pace/"))]
    lines = [
        "# Written by `make fit`: edit hetsched_cost_models/fit/priors.py instead. docs/cost_model.md explains the form.",
        f"version: {VERSION}",
        f"fitted_on: {origin}",
        f"fitted_parameters: {len(FITTED)}",
        "",
        "parameters:",
        "  tiled:",
    ]
    lines += [f"    {n}: {_figure(p[n], n)}" for n in plain]
    lines.append("  fixed_s:")
    for runtime in ("qnn", "litert", "ort"):
        names = [n for n in FITTED if n.startswith(f"fixed/{runtime}/")]
        lines += [f"    {runtime}:", *(f"      {n.rpartition('/')[2]}: {_figure(p[n], n)}" for n in names)]
    lines += ["  pace:", f"    litert: {_figure(p['pace/litert'], 'pace/litert')}"]
    lines.append('    ort: {value: 1, estimated: "its layout changes say all"}')
    lines.append(
        "  # Half-widths of 80 % intervals, in the logarithm: conformal on families (or, other_chip, on chips) left out of the fit."
    )
    lines.append("  half_width:")
    lines += [f'    {name}: {{value: {w:.4f}, source: "make fit"}}' for name, w in widths.items()]
    types = sorted({t for r in rows for t in operators()[r.model]})
    lines += ["  # Operators that the fit saw; others may run on a slow path.", f"  operators: [{', '.join(types)}]"]
    lines += ["", "# Of the rows fitted: errors |predicted - measured| / measured, models weighted alike.", "residuals:"]
    lines += [f"  {name}: {_score(s)}" for name, s in _by_class(rows, predicted)]
    return "\n".join(lines) + "\n"


def write(name: str, text: str) -> Path:
    """Write a file of the folder of fitted parameters."""
    path = FOLDER / name
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return path


def _figure(value: float, name: str) -> str:
    if name in FITTED:
        prior, spread, what = FITTED[name]
        return f'{{value: {value:.4g}, source: "AI Hub latencies, make fit (prior {prior:g}, spread {spread:g}): {what}"}}'
    return f'{{value: {value:.6g}, estimated: "{FIXED[name][1]}"}}'


def _score(s: Score) -> str:
    return f"{{rows: {s.rows}, median: {s.median:.3f}, mean: {s.mean:.3f}, p90: {s.p90:.3f}, bias: {s.bias:.3f}}}"


def _by_class(rows: Sequence[Row], predicted: FloatArray) -> list[tuple[str, Score]]:
    """Scores of every precision, runtime and family."""
    out = []
    for key in ("precision", "runtime", "family"):
        for value in sorted({getattr(r, key) for r in rows}):
            picked = [i for i, r in enumerate(rows) if getattr(r, key) == value]
            out.append((f"{key} {value}", score([rows[i] for i in picked], predicted[picked])))
    return out
