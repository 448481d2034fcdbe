"""The verbs. Each reads its options, calls one function of :mod:`hetsched.app` and shows the result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli import measurement_commands
from hetsched.cli.limit_options import MaxEnergy, MaxLatency, MaxLoss, MaxPower, MaxSegments, Pareto, Sensitivities
from hetsched.cli.measurement_commands import Anchors, Measured, NoAnchor
from hetsched.cli.rate_options import Deadline, Priority, Rate

app = typer.Typer(
    name="hetsched",
    help="Where should each operator of a model run on that phone chip, how fast, how hot, and does it hold when it really runs?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object (stable keys) instead of tables.")]
Soc = Annotated[str | None, typer.Option("--soc", metavar="ID", help="A SoC id (see 'hetsched socs'), a YAML file, or 'host'.")]
Dim = Annotated[list[str], typer.Option("--dim", metavar="NAME=N", help="Bind a symbolic dimension. Repeatable.")]
WhatIf = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="What-if hardware: npu.int8_tops=100, memory.bandwidth_gbps=120, any field. Repeatable."
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        help="auto: float models in float, quantized ones in their own integers. float: everything. mixed: float or"
        " w8a8, op by op (see --max-loss). w8a8: 8-bit integers; a float"
        " model needs 'calibrate-ranges' before it runs. w8a8-dynamic: CPU kernels quantize activations when they arrive."
        " w8a16: 8-bit weights, 16-bit activations, on Snapdragon NPUs. w4a16: the same with 4-bit matrix products. w4a8: not yet."
    ),
]
Ranges = Annotated[
    Path | None, typer.Option("--ranges", metavar="FILE", help="Activation ranges for w8a8. Default: MODEL.ranges.json, if there is one.")
]
Runtime = Annotated[
    str,
    typer.Option(
        help="Vendor runtime whose support and overheads are assumed: default | qnn | litert | ort | coreml | ncnn | mnn | llama.cpp ..."
    ),
]
Solver = Annotated[str, typer.Option(help="auto | ilp | frontier-dp | heft | peft | cpop | rules[:FILE] | vendor | single:QUEUE")]
Objective = Annotated[str, typer.Option(help="latency | energy | edp | period")]
TimeLimit = Annotated[str, typer.Option("--time-limit", help="Budget of the solver.")]
Phase = Annotated[str | None, typer.Option(help="Of a plan with a prompt: prefill | decode (default).")]
Trace = Annotated[Path | None, typer.Option("--trace", metavar="FILE", help="Write the trace: .pftrace (Perfetto) or .parquet.")]


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


@app.command()
def plan(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Model files.")],
    soc: Soc = "host",
    objective: Objective = "latency",
    precision: Precision = "auto",
    ranges: Ranges = None,
    runtime: Runtime = "default",
    solver: Solver = "auto",
    dim: Dim = [],  # noqa: B006
    time_limit: TimeLimit = "5s",
    memory_limit: Annotated[str | None, typer.Option(help="Weights and activations may not exceed it (300MB).")] = None,
    force: Annotated[list[str], typer.Option(metavar="OP=QUEUE", help="Place an op. Repeatable.")] = [],  # noqa: B006
    forbid: Annotated[list[str], typer.Option(metavar="OP=QUEUE", help="Keep an op off a queue. Repeatable.")] = [],  # noqa: B006
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Plan file; a folder if there are several models.")] = None,
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
            prompt=prompt, limits=limits, sensitivities=sensitivities, public_anchors=not no_anchor,
        )  # fmt: skip
        show.json(found.summary()) if as_json else together.show_shared(found)
        return
    results = planning.plan_all(
        models, output=output, quiet=as_json, soc="host" if soc is None else soc, objective=objective, precision=precision,
        ranges=ranges, runtime=runtime, solver=solver, dim=dim, time_limit=time_limit, memory_limit=memory_limit, force=force,
        forbid=forbid, prompt=prompt, generate=generate, kv=kv, experts=experts, what_if=what_if,
        anchors=anchor, public_anchors=not no_anchor, measured=measured, sensitivities=sensitivities, pareto=pareto,
        limits=limits,
    )  # fmt: skip
    if as_json:
        show.json([p.summary() for p in results] if len(results) > 1 else results[0].summary())
    else:
        for planned in results:
            planning.show_plan(planned)
            if verbose:
                show.passes(planned.passes)


@app.command()
def simulate(
    target: Annotated[Path, typer.Argument(metavar="PLAN_OR_MODEL")],
    soc: Soc = None,
    duration: Annotated[str | None, typer.Option(help="Repeat the inference for this long (10min). Default: once.")] = None,
    ambient: Annotated[float, typer.Option(help="Ambient temperature in degrees Celsius.")] = 25.0,
    policy: Annotated[str, typer.Option(help="Thermal policy: static.")] = "static",
    period: Annotated[str | None, typer.Option(help="An inference arrives every so often (33ms). Default: back to back.")] = None,
    precision: Precision = "auto",
    dim: Dim = [],  # noqa: B006
    what_if: WhatIf = [],  # noqa: B006
    trace: Trace = None,
    as_json: Json = False,
) -> None:
    """Simulate a plan: fences, shared bandwidth, clocks, heat."""
    from hetsched.cli import options, show, simulating

    result = simulating.simulate_one(
        target, soc=soc, duration_s=options.seconds(duration, "--duration"), ambient_c=ambient, policy=policy,
        period_s=options.seconds(period, "--period"), precision=precision, dim=dim, trace=trace, quiet=as_json,
        what_if=what_if,
    )  # fmt: skip
    if as_json:
        show.json(result.summary() | {"trace_path": None if trace is None else str(trace)})
    else:
        simulating.show_simulation(result, trace)


@app.command()
def run(
    target: Annotated[Path, typer.Argument(metavar="PLAN_OR_MODEL")],
    soc: Soc = None,
    inputs: Annotated[Path | None, typer.Option("--input", metavar="X.npz", help="Inputs by name. Default: seeded noise.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare every operator with ONNX Runtime or another reference.")] = False,
    repeat: Annotated[int, typer.Option(help="Number of inferences.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    delegate: Annotated[str | None, typer.Option(help="null: run any plan without computing.")] = None,
    precision: Precision = "auto",
    ranges: Ranges = None,
    dim: Dim = [],  # noqa: B006
    trace: Trace = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="Y.npz", help="Write the outputs.")] = None,
    as_json: Json = False,
) -> None:
    """Execute a plan on this machine."""
    from hetsched.cli import running, show

    result = running.run_one(
        target, soc=soc, inputs=inputs, check=check, repeat=repeat, seed=seed, delegate=delegate, precision=precision, ranges=ranges,
        dim=dim, trace=trace, output=output, quiet=as_json,
    )  # fmt: skip
    if as_json:
        show.json(result.summary() | {"trace_path": None if trace is None else str(trace)})
    else:
        show.ran(result, trace)
    if result.check is not None and not result.check.passed:
        raise typer.Exit(1)


@app.command()
def report(
    items: Annotated[list[Path], typer.Argument(metavar="PLAN_OR_TRACE...", help="Plan files and traces.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
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


@app.command()
def explain(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN")],
    op: Annotated[str, typer.Argument(metavar="OP", help="An op, or any of the model's own nodes.")],
    phase: Phase = None,
    as_json: Json = False,
) -> None:
    """Say why an operator is where it is and what each alternative would have cost."""
    from hetsched.app.explaining import explain as explain_op
    from hetsched.cli import show

    found = explain_op(plan_file, op, phase)
    if as_json:
        show.json(show.explanation_dict(found))
    else:
        show.explanation(found)


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="PLAN")],
    b: Annotated[Path, typer.Argument(metavar="PLAN")],
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


@app.command()
def calibrate(
    as_json: Json = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier measurements; otherwise the faster of both counts.")] = False,
) -> None:
    """Measure this machine again: bandwidth, peak rates, kernel rates, latencies."""
    from hetsched.cli import machine, show, show_machine

    measured = machine.calibrate(quiet=as_json, fresh=fresh)
    if as_json:
        show.json(measured)
    else:
        show_machine.measurement(measured)


@app.command("calibrate-ranges")
def calibrate_ranges(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A float model file.")],
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUTS.npz...", help="Arrays by input name, with a leading axis of samples.")],
    method: Annotated[str, typer.Option(help="minmax | percentile | mse (least error in 8 bits)")] = "minmax",
    percentile: Annotated[float, typer.Option(help="Share of the values that --method percentile keeps, in percent.")] = 99.99,
    granularity: Annotated[str, typer.Option(help="tensor | channel (for reports: integer kernels need tensor)")] = "tensor",
    symmetric: Annotated[bool, typer.Option("--symmetric", help="As far below 0 as above: signed integers.")] = False,
    dim: Dim = [],  # noqa: B006
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Default: MODEL.ranges.json, where plan and run look.")] = None,
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


@app.command()
def socs(
    ids: Annotated[list[str], typer.Argument(metavar="[ID...]")] = [],  # noqa: B006
    diff: Annotated[bool, typer.Option("--diff", help="The figures in which two SoCs differ.")] = False,
    figures: Annotated[bool, typer.Option("--figures", help="Every figure with its source instead of a drawing.")] = False,
    what_if: WhatIf = [],  # noqa: B006
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.html", help="Draw one SoC as a page.")] = None,
    as_json: Json = False,
) -> None:
    """List the SoCs, draw some, or compare two; estimates are marked."""
    from hetsched.cli import listing

    listing.socs(ids, diff=diff, figures=figures, what_if=what_if, output=output, as_json=as_json)


@app.command()
def delegates(as_json: Json = False) -> None:
    """List what can execute plans on this machine, and why the rest cannot."""
    from hetsched.cli import machine, show

    rows = machine.delegate_rows()
    if as_json:
        show.json(rows)
    else:
        show.rows("delegates", rows)


measurement_commands.register(app)
