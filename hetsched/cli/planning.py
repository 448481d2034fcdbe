"""``hetsched plan``: several models, one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.app.comparing import dims_of
from hetsched.app.planned import Planned
from hetsched.app.planning import plan as plan_one
from hetsched.cli import options
from hetsched.cli.progress import progress
from hetsched.errors import OptionError
from hetsched.files import check_destination

if TYPE_CHECKING:
    from hetsched.partition.limits import Limits


def plan_all(
    models: Sequence[Path],
    *,
    output: Path | None,
    quiet: bool,
    soc: str,
    objective: str,
    precision: str,
    ranges: Path | None,
    runtime: str,
    solver: str,
    dim: Sequence[str],
    time_limit: str,
    memory_limit: str | None,
    force: Sequence[str],
    forbid: Sequence[str],
    prompt: int | None,
    generate: int | None,
    kv: str | None,
    experts: str | None,
    what_if: Sequence[str] = (),
    anchors: Sequence[str] = (),
    public_anchors: bool = True,
    measured: Path | None = None,
    limits: Limits | None = None,
    sensitivities: Path | None = None,
    pareto: int = 0,
    splits: bool = False,
    levels: bool = False,
    guesses: Mapping[str, Any] | None = None,
) -> list[Planned]:
    """Plan every model; write plan files if asked."""
    dims = dims_of(models, options.dims(dim))
    forced, forbidden = options.pairs(force, "--force"), options.pairs(forbid, "--forbid")
    limit, overrides = options.seconds(time_limit, "--time-limit"), options.settings(what_if)
    targets, read = destinations(models, output), [str(v) for v in (guesses or {}).values() if v is not None]
    for target in targets:
        if target is not None:
            check_destination(target, (*models, soc, ranges, experts, measured, sensitivities, *anchors, solver.partition(":")[2], *read))
    results = []
    for model, bound, target in zip(models, dims, targets, strict=True):
        with progress(model.name, quiet) as bar:
            planned = plan_one(
                model, soc, objective=objective, precision=precision, ranges=ranges, runtime=runtime, solver=solver, dims=bound,  # type: ignore[arg-type]
                time_limit_s=limit or 0.0, memory_limit_bytes=options.nbytes(memory_limit, "--memory-limit"),
                forced=forced, forbidden=forbidden, progress=bar.stage, prompt=prompt, generate=generate, kv=kv, experts=experts,
                overrides=overrides, anchors=anchors, public_anchors=public_anchors, measured=measured,
                limits=limits, sensitivities=sensitivities, pareto=pareto, splits=splits, levels=levels,
                **(guesses or {}),
            )  # fmt: skip
        if target is not None:
            planned.save(target)
            planned = replace(planned, path=target)
        results.append(planned)
    return results


def limits(latency: str | None, energy: str | None, power: str | None, loss: float | None, segments: int | None) -> Limits:
    """The limits of ``--max-latency``, ``--max-energy``, ``--max-power``, ``--max-loss`` and ``--max-segments``.

    Raises:
        OptionError: one is no quantity, or out of range.
    """
    from hetsched.partition.limits import Limits

    return Limits(
        options.seconds(latency, "--max-latency"), options.joules(energy, "--max-energy"), options.watts(power, "--max-power"), loss,
        segments,
    )  # fmt: skip


def show_plan(planned: Planned) -> None:
    """Print a plan, or the two phases of a language model."""
    from hetsched.app.language import PlannedLanguage
    from hetsched.cli import show, show_language

    if isinstance(planned, PlannedLanguage):
        show_language.plan(planned)
    else:
        show.plan(planned)


def destinations(models: Sequence[Path], output: Path | None) -> list[Path | None]:
    """Where each plan goes: ``output`` itself for one model, files inside it for several."""
    if output is None:
        return [None] * len(models)
    if len(models) == 1 and not output.is_dir():
        return [output]
    if output.exists() and not output.is_dir():
        raise OptionError(f"-o {output} must be a folder when several models are planned")
    names = [f"{m.name if m.is_dir() else m.stem}.plan.json" for m in models]
    if len(set(names)) != len(names):
        raise OptionError("two models have the same file name: plan them one at a time with -o")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OptionError(f"cannot make the folder {output}: {e.strerror}; choose another place with -o") from e
    return [output / n for n in names]
