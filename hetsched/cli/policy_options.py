"""Options of ``simulate`` for policies that switch between plans."""

from __future__ import annotations

from typing import Annotated

import typer

Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        metavar="NAME",
        help="Who switches between the plans of a file made with --levels: reactive (when throttled or warm), predictive (before that),"
        " battery-saver, or a plug-in's. static (default): nobody. Repeat it to compare.",
    ),
]
