"""The verbs over many scenarios: ``study`` and ``regress``. :mod:`hetsched.cli.commands` registers them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.shared_options import Json


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command(short_help="Many scenarios of one question: run, kept, drawn, asked")(study)
    app.command(short_help="What moved since a baseline was taken: for your CI")(regress)


def study(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY | query FOLDER SQL",
            help="A study file, or the name of one that ships with hetsched (--list). Or a question to the tables 'results' and 'curves' of"
            ' a study\'s folder: query FOLDER "select soc, rate from results".',
        ),
    ] = [],  # noqa: B006
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Where results are kept. Default: STUDY.study.")
    ] = None,
    given: Annotated[
        list[str], typer.Option("--with", metavar="KEY=VALUE", help="The same in every scenario (model=mine.onnx, soc=ID). Repeatable.")
    ] = [],  # noqa: B006
    workers: Annotated[int | None, typer.Option(metavar="N", min=1, help="Processes. Default: one a processor.")] = None,
    cluster: Annotated[str | None, typer.Option(metavar="tcp://HOST:PORT", help="Run on the workers of a Dask scheduler instead.")] = None,
    names: Annotated[bool, typer.Option("--list", help="List the studies that ship with hetsched.")] = False,
    as_json: Json = False,
) -> None:
    """Run the scenarios of a study that have no result yet, or ask a study that ran."""
    from hetsched.cli import studying
    from hetsched.errors import OptionError

    asks = names or what[:1] == ["query"]
    if asks and (output or given or workers or cluster):
        raise OptionError("-o, --with, --workers and --cluster belong to running a study: leave them out")
    if workers and cluster:
        raise OptionError("--workers counts processes of this machine and --cluster takes none of them: leave one out")
    if names:
        studying.list_studies(as_json)
    elif len(what) == 3 and what[0] == "query":
        studying.ask(Path(what[1]), what[2], as_json)
    elif len(what) == 1 and what[0] != "query":
        code = studying.run_study(what[0], output, given, workers, cluster, as_json)
        if code:
            raise typer.Exit(code)
    else:
        raise OptionError("'hetsched study' takes one study, or 'query FOLDER SQL': 'hetsched study --list' names those that ship with it")


def regress(
    baseline: Annotated[Path, typer.Argument(metavar="BASELINE", help="The file that keeps the figures (baseline.json).")],
    record: Annotated[
        str | None, typer.Option("--record", metavar="STUDY", help="Take the figures of a study's scenarios as the baseline.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Take today's figures of the same scenarios as the baseline.")] = False,
    as_json: Json = False,
) -> None:
    """Plan, simulate and (on host) run a stored set again; exit code 1 if a figure left its interval."""
    from hetsched.cli import regressing

    code = regressing.run(baseline, record, update, as_json)
    if code:
        raise typer.Exit(code)
