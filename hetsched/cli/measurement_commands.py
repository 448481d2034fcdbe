"""The verbs about measurements: ``import``, ``accuracy``, ``compare``. :mod:`hetsched.cli.commands` registers them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.headings import TARGET
from hetsched.cli.shared_options import Dim, Json, Precision, Runtime, Solver, TimeLimit, WhatIf

Anchors = Annotated[
    list[str],
    typer.Option(
        "--anchor",
        metavar="chip=ID,latency_ms=N|FILE",
        help="A measured latency of this model, here or on another chip; also runtime=, precision=, unit=. Repeatable.",
        rich_help_panel=TARGET,
    ),
]
NoAnchor = Annotated[
    bool, typer.Option("--no-anchor", help="Do not look known networks up in the table of public latencies.", rich_help_panel=TARGET)
]
Measured = Annotated[
    Path | None,
    typer.Option("--measured", metavar="PROFILE", help="A profile whose operators' times replace the model's.", rich_help_panel=TARGET),
]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command("import", short_help="Read a profile that was taken on a device")(import_profile)
    app.command(short_help="Predictions against public measurements")(accuracy)
    app.command(short_help="Which SoCs run these models, which is the cheapest")(compare)


def import_profile(
    profile: Annotated[Path, typer.Argument(metavar="PROFILE", help="ONNX Runtime, TFLite, QNN or AI Hub profile, table or trace.")],
    model: Annotated[Path | None, typer.Option("--model", metavar="M", help="Name the operators as in a plan of this model.")] = None,
    soc: Annotated[str | None, typer.Option("--soc", metavar="ID", help="The SoC that it was taken on.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="Q", help="Where all of it ran, whatever it says: cpu, gpu, npu.")] = None,
    dim: Dim = [],  # noqa: B006
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Page beside the prediction (.html), trace (.pftrace, .parquet) or times for 'plan' (.json).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read a profile taken on a device, as a trace or as measured times of operators."""
    from hetsched.cli import importing

    importing.import_one(profile, model=model, soc=soc, queue=queue, dim=dim, output=output, as_json=as_json)


def accuracy(
    chips: Annotated[list[str], typer.Argument(metavar="[ID]", help="SoC ids. Default: all that have measurements.")] = [],  # noqa: B006
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.html", help="Also write a page with plots.")] = None,
    as_json: Json = False,
) -> None:
    """How far predictions are from the public measurements that ship with hetsched."""
    from hetsched.cli import measurements

    measurements.accuracy(chips, output=output, as_json=as_json)


def compare(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL", help="Model files.")],
    soc: Annotated[list[str], typer.Option("--soc", metavar="ID", help="A SoC id or file, repeatable, or 'all'.")] = [],  # noqa: B006
    target: Annotated[str | None, typer.Option(metavar="TIME", help="Latency that must hold (33ms): names the cheapest SoC.")] = None,
    duration: Annotated[str | None, typer.Option("--for", metavar="TIME", help="For how long --target must hold (30min).")] = None,
    ambient: Annotated[float, typer.Option(metavar="CELSIUS", help="Temperature around the phone.")] = 25.0,
    precision: Precision = "auto",
    runtime: Runtime = "default",
    solver: Solver = "auto",
    dim: Annotated[
        list[str], typer.Option("--dim", metavar="[MODEL:]NAME=N", help="Bind a symbolic dimension, of all models or of one. Repeatable.")
    ] = [],  # noqa: B006
    what_if: WhatIf = [],  # noqa: B006
    no_anchor: NoAnchor = False,
    time_limit: TimeLimit = "5s",
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.html", help="Write the matrix as a page.")] = None,
    as_json: Json = False,
) -> None:
    """Which SoCs run these models, what falls back, how fast, and which is the cheapest that holds a target."""
    from hetsched.cli import comparing

    comparing.compare_all(
        models, socs=soc, target=target, duration=duration, ambient=ambient, output=output, as_json=as_json, dim=dim,
        what_if=what_if, time_limit=time_limit, precision=precision, runtime=runtime, solver=solver, public_anchors=not no_anchor,
    )  # fmt: skip
