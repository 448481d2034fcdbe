"""Options of ``simulate`` that say what arrives and when."""

from __future__ import annotations

from typing import Annotated

import typer

Duration = Annotated[str | None, typer.Option(metavar="TIME", help="Repeat the inference for this long (10min). Default: once.")]
Period = Annotated[str | None, typer.Option(metavar="TIME", help="One inference every so often (33ms). Default: back to back.")]
Rates = Annotated[
    list[float],
    typer.Option("--rate", metavar="HZ", help="The same as inferences a second; of several plans once a plan (a chat has none)."),
]
Deadlines = Annotated[
    list[str], typer.Option("--deadline", metavar="TIME", help="When each must be done, from its arrival (33ms); once a plan.")
]
Priorities = Annotated[
    list[int], typer.Option("--priority", metavar="N", help="Of several plans: smaller goes first. Default: the shortest deadline.")
]
Think = Annotated[str | None, typer.Option(metavar="TIME", help="Time between the end of one inference or answer and the next.")]
Poisson = Annotated[bool, typer.Option("--poisson", help="Arrivals at random, a period apart on average.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of random arrivals.")]
Queue = Annotated[bool, typer.Option("--queue", help="What arrives during an inference waits for it. Default: it is dropped.")]
Chats = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=N,...",
        help="A conversation with a language model, beside other plans too: tokens of each prompt and answer (prompt=64,generate=128),"
        " window=N, turns=N.",
    ),
]
Background = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=SHARE,...",
        help="Another app: cpu=0.3,gpu=20%,dram=5GB/s for its share of processors and bandwidth; on=10s,off=20s,seed=1: on and off.",
    ),
]
Exact = Annotated[bool, typer.Option("--exact", help="Every inference op by op, instead of one of each operating state.")]
Workload = Annotated[str | None, typer.Option(metavar="FILE", help="Arrivals from a table: time, and prompt, generate, past of a chat.")]
