"""Options of ``plan`` for several models that run at once."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched.cli.headings import SEVERAL

Rate = Annotated[
    list[float],
    typer.Option(
        "--rate", metavar="HZ", help="Several models at once: inferences a second, once a model, in their order.", rich_help_panel=SEVERAL
    ),
]
Deadline = Annotated[
    list[str],
    typer.Option(
        "--deadline",
        metavar="TIME",
        help="With --rate: when each must be done (33ms), once a model. Default: the period.",
        rich_help_panel=SEVERAL,
    ),
]
Priority = Annotated[
    list[int],
    typer.Option(
        "--priority",
        metavar="N",
        help="With --rate: smaller goes first, once a model. Default: the shortest deadline.",
        rich_help_panel=SEVERAL,
    ),
]
