"""Options of ``plan`` for several models that run at once."""

from __future__ import annotations

from typing import Annotated

import typer

Rate = Annotated[
    list[float], typer.Option("--rate", metavar="HZ", help="Several models at once: inferences a second, once a model, in their order.")
]
Deadline = Annotated[
    list[str],
    typer.Option("--deadline", metavar="TIME", help="With --rate: when each must be done (33ms), once a model. Default: the period."),
]
Priority = Annotated[
    list[int],
    typer.Option("--priority", metavar="N", help="With --rate: smaller goes first, once a model. Default: the shortest deadline."),
]
