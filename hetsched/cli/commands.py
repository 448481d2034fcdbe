"""The verbs. Each reads its options, calls one function of :mod:`hetsched.app` and shows the result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli import machine_commands, measurement_commands
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
from hetsched.cli.policy_options import Battery, Policies
from hetsched.cli.rate_options import Deadline, Priority, Rate
from hetsched.cli.shared_options import Dim, Json, Objective, Phase, Precision, Ranges, Runtime, Soc, Solver, TimeLimit, Trace, WhatIf

app = typer.Typer(
    name="hetsched",
    help="Where should each operator of a model run on that phone chip, how fast, how hot, and does it hold when it really runs?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with 'hetsched plan MODEL --soc snapdragon-8-gen-3'; 'hetsched socs' lists the SoCs, 'hetsched VERB --help' the options.",
)


def _version(value: bool) -> None:
    if value:
        from hetsched import __version__

        print(f"hetsched {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Read the options that every verb shares (``--debug`` is taken out by ``main``)."""


@app.command(short_help="Where each operator of a model runs on a SoC")
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
    memory_limit: Annotated[str | None, typer.Option(metavar="SIZE", help="Weights and activations may not exceed it (300MB).")] = None,
    force: Annotated[list[str], typer.Option(metavar="OP=QUEUE", help="Place an op (conv1=npu). Repeatable.")] = [],  # noqa: B006
    forbid: Annotated[list[str], typer.Option(metavar="OP=QUEUE", help="Keep an op (*: all) off queues (npu,gpu). Repeatable.")] = [],  # noqa: B006
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the plan; of several models, a folder.")
    ] = None,
    prompt: Annotated[int | None, typer.Option(metavar="N", help="Language models: plan the prefill of a prompt of N tokens ...")] = None,
    generate: Annotated[int | None, typer.Option(metavar="N", help="... and the N tokens of its answer.")] = None,
    kv: Annotated[str | None, typer.Option(metavar="K/V", help="Key-value caches: fp16 | int8 | fp8, values also int4[:GROUP].")] = None,
    experts: Annotated[str | None, typer.Option(metavar="FILE", help="How often experts are used: uniform, or a file.")] = None,
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
    )  # fmt: skip
    if as_json:
        show.json([p.summary() for p in results] if len(results) > 1 else results[0].summary())
    else:
        for planned in results:
            planning.show_plan(planned)
            if verbose:
                show.passes(planned.passes)


@app.command(short_help="Play a plan: fences, bandwidth, clocks, heat")
def simulate(
    target: Annotated[Path, typer.Argument(metavar="PLAN_OR_MODEL", help="A plan file, or a model, which is planned first.")],
    soc: Soc = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Repeat the inference for this long (10min). Default: once.")] = None,
    ambient: Annotated[float, typer.Option(metavar="CELSIUS", help="Temperature around the phone.")] = 25.0,
    policy: Policies = [],  # noqa: B006
    battery: Battery = 100.0,
    period: Annotated[str | None, typer.Option(metavar="TIME", help="One inference every so often (33ms). Default: back to back.")] = None,
    precision: Precision = "auto",
    dim: Dim = [],  # noqa: B006
    what_if: WhatIf = [],  # noqa: B006
    level: Level = 0,
    trace: Trace = None,
    as_json: Json = False,
) -> None:
    """Simulate a plan: fences, shared bandwidth, clocks, heat."""
    from hetsched.app.simulating import Scenario
    from hetsched.cli import options, show, simulating

    scenario = Scenario(
        options.seconds(duration, "--duration"), ambient, options.seconds(period, "--period"), battery=battery / 100
    )  # fmt: skip
    if len(policy) > 1:
        simulating.compare_policies(target, policy, scenario, level, trace, quiet=as_json, only_models=(soc, dim, what_if, precision))
        return
    result = simulating.simulate_one(
        target, scenario, policy[0] if policy else "static", soc=soc, precision=precision, dim=dim, trace=trace, quiet=as_json,
        what_if=what_if, level=level,
    )  # fmt: skip
    if as_json:
        show.json(result.summary() | {"trace_path": None if trace is None else str(trace)})
    else:
        simulating.show_simulation(result, trace)


@app.command(short_help="Execute a plan on this machine")
def run(
    target: Annotated[Path, typer.Argument(metavar="PLAN_OR_MODEL", help="A plan file, or a model, which is planned first.")],
    soc: Soc = None,
    inputs: Annotated[Path | None, typer.Option("--input", metavar="X.npz", help="Inputs by name. Default: seeded noise.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare every operator with ONNX Runtime or another reference.")] = False,
    repeat: Annotated[int, typer.Option(metavar="N", help="Number of inferences.")] = 5,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the noise.")] = 0,
    delegate: Annotated[str | None, typer.Option(metavar="NAME", help="One of 'hetsched delegates' for all; null: no computing.")] = None,
    precision: Precision = "auto",
    ranges: Ranges = None,
    dim: Dim = [],  # noqa: B006
    level: Level = 0,
    trace: Trace = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="Y.npz", help="Write the outputs.")] = None,
    as_json: Json = False,
) -> None:
    """Execute a plan on this machine."""
    from hetsched.cli import running, show

    result = running.run_one(
        target, soc=soc, inputs=inputs, check=check, repeat=repeat, seed=seed, delegate=delegate, precision=precision, ranges=ranges,
        dim=dim, level=level, trace=trace, output=output, quiet=as_json,
    )  # fmt: skip
    if as_json:
        show.json(result.summary() | {"trace_path": None if trace is None else str(trace)})
    else:
        show.ran(result, trace)
    if result.check is not None and not result.check.passed:
        raise typer.Exit(1)


@app.command(short_help="Draw plans and traces as one HTML page")
def report(
    items: Annotated[list[Path], typer.Argument(metavar="PLAN_OR_TRACE", help="Plan files, and traces of 'simulate', 'run' or 'import'.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.html", help="The page to write.")] = Path("report.html"),
    as_json: Json = False,
) -> None:
    """Draw plans and traces as one self-contained HTML page."""
    from hetsched.app.reporting import report as make_report
    from hetsched.cli import show

    path = make_report(items, output)
    if as_json:
        show.json({"report_path": str(path), "bytes": path.stat().st_size})
    else:
        show.line(f"report: {path}")


@app.command(short_help="Why an operator is where it is, and what the vendor's default would lose")
def explain(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN_OR_MODEL", help="A plan file, or a model, which is planned first.")],
    op: Annotated[
        str | None, typer.Argument(metavar="[OP]", help="An op of the plan or one of the model's own nodes. Default: the whole plan.")
    ] = None,
    phase: Phase = None,
    level: Level = 0,
    as_json: Json = False,
) -> None:
    """Say why an operator is where it is, or what the vendor's default would lose."""
    from hetsched.app import explaining
    from hetsched.cli import show, show_explanation

    if op is None:
        whole = explaining.explain_plan(plan_file, phase, level)
        show.json(show_explanation.plan_dict(whole)) if as_json else show_explanation.plan(whole)
        return
    found = explaining.explain(plan_file, op, phase, level)
    show.json(show_explanation.op_dict(found)) if as_json else show_explanation.op(found)


@app.command(short_help="What changed between two plans")
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


@app.command("calibrate-ranges", short_help="Find activation ranges, for --precision w8a8")
def calibrate_ranges(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A float model file.")],
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUTS.npz", help="Arrays by input name, with a leading axis of samples.")],
    method: Annotated[str, typer.Option(metavar="NAME", help="minmax | percentile | mse (least error in 8 bits)")] = "minmax",
    percentile: Annotated[float, typer.Option(metavar="PERCENT", help="Values that --method percentile keeps.")] = 99.99,
    granularity: Annotated[str, typer.Option(metavar="NAME", help="tensor | channel (for reports only; kernels need tensor)")] = "tensor",
    symmetric: Annotated[bool, typer.Option("--symmetric", help="As far below 0 as above: signed integers.")] = False,
    dim: Dim = [],  # noqa: B006
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: MODEL.ranges.json, where plans look.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the range of every activation, for --precision w8a8 on a float model."""
    from hetsched.cli import calibrating, show

    found = calibrating.calibrate_one(
        model, inputs, method=method, percentile=percentile, granularity=granularity, symmetric=symmetric, dim=dim, output=output,
        quiet=as_json,
    )  # fmt: skip
    if as_json:
        show.json(found.summary())
    else:
        calibrating.show_ranges(found)


machine_commands.register(app)
measurement_commands.register(app)
