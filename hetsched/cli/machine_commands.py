"""The verbs about SoCs and this machine: ``socs``, ``delegates``, ``calibrate``. :mod:`hetsched.cli.commands` registers them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.shared_options import Json, WhatIf


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command(short_help="List, draw and compare SoCs")(socs)
    app.command(short_help="What can execute plans on this machine")(delegates)
    app.command(short_help="Measure this machine again")(calibrate)


def socs(
    ids: Annotated[list[str], typer.Argument(metavar="[ID]", help="SoC ids or YAML files. Default: list all.")] = [],  # noqa: B006
    diff: Annotated[bool, typer.Option("--diff", help="The figures in which two SoCs differ.")] = False,
    figures: Annotated[bool, typer.Option("--figures", help="Every figure with its source instead of a drawing.")] = False,
    what_if: WhatIf = [],  # noqa: B006
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.html", help="Draw one SoC as a page.")] = None,
    as_json: Json = False,
) -> None:
    """List the SoCs, draw some, or compare two; estimates are marked."""
    from hetsched.cli import listing

    listing.socs(ids, diff=diff, figures=figures, what_if=what_if, output=output, as_json=as_json)


def delegates(as_json: Json = False) -> None:
    """List what can execute plans on this machine, and why the rest cannot."""
    from hetsched.cli import machine, show, show_machine

    rows = machine.delegate_rows()
    if as_json:
        show.json(rows)
    else:
        show_machine.delegates(rows)


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
