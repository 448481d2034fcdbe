"""The verbs ``plan``, ``explain`` and ``diff``. :mod:`hetsched.cli.commands` registers them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.guess_options import Accepted, Guesses, guessed_length
from hetsched.cli.headings import LANGUAGE, LIMITS
from hetsched.cli.language_options import Draft, DraftLayers
from hetsched.cli.limit_options import (
    Level,
    LevelPlans,
    MaxEnergy,
    MaxLatency,
    MaxLoss,
    MaxPower,
    MaxSegments,
    Pareto,
    Sensitivities,
    Splits,
)
from hetsched.cli.measurement_commands import Anchors, Measured, NoAnchor
from hetsched.cli.rate_options import Deadline, Priority, Rate
from hetsched.cli.shared_options import Dim, Json, Objective, Phase, Precision, Ranges, Runtime, Soc, Solver, TimeLimit, WhatIf
from hetsched.cli.verbs import Headed
from hetsched.errors import OptionError


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command(cls=Headed, short_help="Where each operator of a model runs on a SoC")(plan)
    app.command(short_help="Why an operator is where it is, and what the vendor's default would lose")(explain)
    app.command(short_help="What changed between two plans")(diff)


def plan(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL", help="Files of any format, or Hugging Face folders."),
    ],
    soc: Soc = "host",
    objective: Objective = "latency",
    precision: Precision = "auto",
    ranges: Ranges = None,
    runtime: Runtime = "default",
    solver: Solver = "auto",
    dim: Dim = [],  # noqa: B006
    time_limit: TimeLimit = "5s",
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Weights and activations may not exceed it (300MB). With --prompt: of both phases together, caches once.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    force: Annotated[list[str], typer.Option(metavar="OP=QUEUE", help="Place an op (conv1=npu). Repeatable.", rich_help_panel=LIMITS)] = [],  # noqa: B006
    forbid: Annotated[
        list[str], typer.Option(metavar="OP=QUEUE", help="Keep an op (*: all) off queues (npu,gpu). Repeatable.", rich_help_panel=LIMITS)
    ] = [],  # noqa: B006
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the plan; of several models, a folder.")
    ] = None,
    prompt: Annotated[
        int | None,
        typer.Option(metavar="N", help="Language models: plan the prefill of a prompt of N tokens ...", rich_help_panel=LANGUAGE),
    ] = None,
    generate: Annotated[int | None, typer.Option(metavar="N", help="... and the N tokens of its answer.", rich_help_panel=LANGUAGE)] = None,
    kv: Annotated[
        str | None,
        typer.Option(metavar="K/V", help="Key-value caches: fp16 | int8 | fp8, values also int4[:GROUP].", rich_help_panel=LANGUAGE),
    ] = None,
    experts: Annotated[
        str | None, typer.Option(metavar="FILE", help="How often experts are used: uniform, or a file.", rich_help_panel=LANGUAGE)
    ] = None,
    speculate: Guesses = None,
    acceptance: Accepted = None,
    draft: Draft = None,
    draft_layers: DraftLayers = None,
    max_latency: MaxLatency = None,
    max_energy: MaxEnergy = None,
    max_power: MaxPower = None,
    max_loss: MaxLoss = None,
    max_segments: MaxSegments = None,
    sensitivities: Sensitivities = None,
    pareto: Pareto = 0,
    splits: Splits = False,
    levels: LevelPlans = False,
    rate: Rate = [],  # noqa: B006
    deadline: Deadline = [],  # noqa: B006
    priority: Priority = [],  # noqa: B006
    what_if: WhatIf = [],  # noqa: B006
    anchor: Anchors = [],  # noqa: B006
    no_anchor: NoAnchor = False,
    measured: Measured = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also show what the passes made of the model.")] = False,
    as_json: Json = False,
) -> None:
    """Decide where each operator of a model runs on a SoC."""
    from hetsched.cli import planning, show

    limits = planning.limits(max_latency, max_energy, max_power, max_loss, max_segments)
    if rate or deadline or priority:
        from hetsched.cli import together

        if speculate is not None:
            raise OptionError("--speculate is of one plan: leave --rate, --deadline and --priority out")
        found = together.plan_shared(
            models, output, as_json, rate, deadline, priority, dim, time_limit, what_if, soc="host" if soc is None else soc,
            objective=objective, precision=precision, runtime=runtime, solver=solver, memory_limit=memory_limit, force=force, forbid=forbid,
            prompt=prompt, generate=generate, kv=kv, experts=experts, ranges=ranges, limits=limits, splits=splits, levels=levels,
            pareto=pareto, sensitivities=sensitivities, anchors=anchor, public_anchors=not no_anchor, measured=measured,
        )  # fmt: skip
        if as_json:
            show.json(found.summary())
            return
        together.show_shared(found)
        for planned in found.planned if verbose else ():
            show.passes(planned.passes)
        return
    results = planning.plan_all(
        models, output=output, quiet=as_json, soc="host" if soc is None else soc, objective=objective, precision=precision,
        ranges=ranges, runtime=runtime, solver=solver, dim=dim, time_limit=time_limit, memory_limit=memory_limit, force=force,
        forbid=forbid, prompt=prompt, generate=generate, kv=kv, experts=experts, what_if=what_if,
        anchors=anchor, public_anchors=not no_anchor, measured=measured, sensitivities=sensitivities, pareto=pareto,
        limits=limits, splits=splits, levels=levels,
        guesses={"speculate": guessed_length(speculate), "acceptance": acceptance, "draft": draft, "draft_layers": draft_layers},
    )  # fmt: skip
    if as_json:
        show.json([p.summary() for p in results] if len(results) > 1 else results[0].summary())
    else:
        for planned in results:
            planning.show_plan(planned)
            if verbose:
                show.passes(planned.passes)


def explain(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN_OR_MODEL", help="A plan file, or a model, which is planned first.")],
    op: Annotated[
        str | None, typer.Argument(metavar="[OP]", help="An op of the plan or one of the model's own nodes. Default: the whole plan.")
    ] = None,
    soc: Soc = None,
    precision: Precision = "auto",
    dim: Dim = [],  # noqa: B006
    what_if: WhatIf = [],  # noqa: B006
    phase: Phase = None,
    level: Level = 0,
    as_json: Json = False,
) -> None:
    """Say why an operator is where it is, or what the vendor's default would lose."""
    from hetsched.app import explaining
    from hetsched.cli import options, show, show_explanation

    model_only = {"soc": soc, **options.plan_options(plan_file, precision, dim, what_if=what_if)}
    if op is None:
        whole = explaining.explain_plan(plan_file, phase, level, **model_only)
        show.json(show_explanation.plan_dict(whole)) if as_json else show_explanation.plan(whole)
        return
    found = explaining.explain(plan_file, op, phase, level, **model_only)
    show.json(show_explanation.op_dict(found)) if as_json else show_explanation.op(found)


def diff(
    a: Annotated[Path, typer.Argument(metavar="BEFORE", help="A plan file.")],
    b: Annotated[Path, typer.Argument(metavar="AFTER", help="Another of the same model.")],
    phase: Phase = None,
    as_json: Json = False,
) -> None:
    """Say what changed between two plans of a model."""
    from dataclasses import asdict

    from hetsched.app.explaining import diff as diff_plans
    from hetsched.cli import show

    found = diff_plans(a, b, phase)
    if as_json:
        show.json(asdict(found))
    else:
        show.difference(found)
