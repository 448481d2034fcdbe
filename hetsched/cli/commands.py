"""The verbs. Each reads its options, calls one function of :mod:`hetsched.app` and shows the result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli import (
    exporting,
    language_commands,
    language_options,
    machine_commands,
    measurement_commands,
    misplaced,
    planning_commands,
    study_commands,
    update_commands,
)
from hetsched.cli.limit_options import Level
from hetsched.cli.phone_options import Battery, Case, Charging, Loads
from hetsched.cli.policy_options import Policies
from hetsched.cli.scenario_options import (
    Background,
    Chats,
    Deadlines,
    Duration,
    Exact,
    Period,
    Poisson,
    Priorities,
    Queue,
    Rates,
    Seed,
    Think,
    Workload,
)
from hetsched.cli.shared_options import Dim, Json, Precision, Ranges, Soc, Trace, WhatIf
from hetsched.cli.verbs import Headed, Verbs

app = typer.Typer(
    name="hetsched",
    cls=Verbs,
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


planning_commands.register(app)


@app.command(short_help="Play a plan: fences, bandwidth, clocks, heat")
def simulate(
    targets: Annotated[
        list[Path], typer.Argument(metavar="PLAN_OR_MODEL", help="A plan file, or a model, which is planned first; plan files at once.")
    ],
    soc: Soc = None,
    duration: Duration = None,
    ambient: Annotated[float, typer.Option(metavar="CELSIUS", help="Temperature around the phone.")] = 25.0,
    policy: Policies = [],  # noqa: B006
    case: Case = "table",
    battery: Battery = None,
    charging: Charging = 0.0,
    load: Loads = None,
    period: Period = None,
    rate: Rates = [],  # noqa: B006
    deadline: Deadlines = [],  # noqa: B006
    priority: Priorities = [],  # noqa: B006
    think: Think = None,
    poisson: Poisson = False,
    seed: Seed = 0,
    queue: Queue = False,
    chat: Chats = None,
    workload: Workload = None,
    background: Background = None,
    exact: Exact = False,
    precision: Precision = "auto",
    dim: Dim = [],  # noqa: B006
    what_if: WhatIf = [],  # noqa: B006
    level: Level = 0,
    trace: Trace = None,
    as_json: Json = False,
) -> None:
    """Simulate a plan: fences, shared bandwidth, clocks, heat."""
    from hetsched.app.simulating import Scenario
    from hetsched.cli import options, show, show_shared, simulating

    several = len(targets) > 1
    scenario = Scenario.of({
        "duration": options.seconds(duration, "--duration"), "ambient": ambient, "period": options.seconds(period, "--period"),
        "case": case, "battery": options.share(battery, "--battery"), "charging": charging, "loads": load,
        "rate": None if several else options.only(rate, "--rate"), "think": options.seconds(think, "--think"),
        "deadline": None if several else options.seconds(options.only(deadline, "--deadline"), "--deadline"),
        "poisson": poisson, "seed": seed, "queue": queue, "chat": chat, "workload": workload,
        "background": background, "exact": exact,
    })  # fmt: skip
    if several or priority:
        found = simulating.simulate_shared(
            targets, scenario, (rate, deadline, priority), policy, level, trace, quiet=as_json, only_models=(soc, dim, what_if, precision)
        )  # fmt: skip
        if as_json:
            show.json(found.summary() | {"trace_path": None if trace is None else str(trace)})
        else:
            show_shared.shared(found, trace)
        return
    target = targets[0]
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


@app.command(cls=Headed, short_help="Execute a plan, or let a language model answer, on this machine")
def run(
    ctx: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="PLAN_OR_MODEL", help="A plan file, or a model, which is planned first.")],
    soc: Soc = None,
    inputs: Annotated[Path | None, typer.Option("--input", metavar="X.npz", help="Inputs by name. Default: seeded noise.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare every operator with ONNX Runtime or another reference.")] = False,
    repeat: Annotated[int, typer.Option(metavar="N", help="Number of inferences.")] = 5,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the noise, or of the choice of tokens.")] = 0,
    delegate: Annotated[
        list[str], typer.Option(metavar="NAME|QUEUE=NAME", help="One of 'hetsched delegates' for all (null: no computing) or for a queue.")
    ] = [],  # noqa: B006
    fallback: Annotated[str, typer.Option(metavar="POLICY", help="When a segment fails: none, cpu or next-best plan.")] = "none",
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Give up after this long. Default: 600.")] = None,
    precision: Precision = "auto",
    ranges: Ranges = None,
    dim: Dim = [],  # noqa: B006
    level: Level = 0,
    trace: Trace = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="Y.npz", help="Write the outputs.")] = None,
    prompt: language_commands.Prompt = None,
    generate: language_commands.Generate = 256,
    system: language_commands.System = None,
    raw: language_commands.Raw = False,
    temperature: language_commands.Temperature = 0.0,
    top_k: language_commands.TopK = 0,
    top_p: language_commands.TopP = 1.0,
    repetition: language_commands.Repetition = 1.0,
    context: language_commands.Context = None,
    kv: language_commands.Kv = "fp16",
    cache_memory: language_options.CacheMemory = None,
    shrink_cache: language_options.ShrinkCache = False,
    speculate: language_options.Speculate = None,
    draft: language_options.Draft = None,
    draft_layers: language_options.DraftLayers = None,
    save_acceptance: language_options.SaveAcceptance = None,
    power: language_options.Power = "normal",
    power_policy: language_options.PowerPolicy = None,
    adapter: language_options.Adapter = None,
    protect: language_options.Protect = [],  # noqa: B006
    update: language_options.Update = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Execute a plan on this machine, or let a language model answer a prompt."""
    misplaced.refuse_misplaced(ctx, generating=prompt is not None)
    if prompt is not None:
        language_commands.answer_one(
            target, prompt, most=generate, system=system, raw=raw, sampling=(temperature, top_k, top_p, repetition, seed), context=context,
            kv=kv, precision=precision, trace=trace, as_json=as_json,
            working=language_options.Working(
                cache_memory, shrink_cache, speculate, draft, power, adapter, protect, draft_layers, save_acceptance, power_policy, update
            ),
        )  # fmt: skip
        return
    from hetsched.cli import running, show

    result = running.run_one(
        target, soc=soc, inputs=inputs, check=check, repeat=repeat, seed=seed, delegate=delegate, fallback=fallback,
        timeout_s=timeout, precision=precision, ranges=ranges, dim=dim, level=level, trace=trace, output=output, quiet=as_json,
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
    from hetsched.app.reporting import draw
    from hetsched.cli import show

    drawn = draw(items, output)
    if as_json:
        show.json({"report_path": str(drawn.path), "bytes": drawn.path.stat().st_size, "notes": drawn.notes})
        return
    for note in drawn.notes:
        show.line(f"note: {note}")
    show.line(f"report: {drawn.path}")


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
language_commands.register(app)
measurement_commands.register(app)
study_commands.register(app)
exporting.register(app)
update_commands.register(app)
