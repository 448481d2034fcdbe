"""Options of ``plan`` that limit what a plan may have, or ask for a trade between two figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.headings import ANSWER, LIMITS, MODEL

MaxLatency = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Most latency (33ms), for example with --objective energy. With --prompt every --max limit holds for"
        " the prefill and for a decode step, each by itself.",
        rich_help_panel=LIMITS,
    ),
]
MaxEnergy = Annotated[str | None, typer.Option(metavar="ENERGY", help="Most energy of an inference (5mJ).", rich_help_panel=LIMITS)]
MaxPower = Annotated[
    str | None, typer.Option(metavar="POWER", help="Most power while it runs: energy over latency (4W).", rich_help_panel=LIMITS)
]
MaxLoss = Annotated[
    float | None,
    typer.Option(
        metavar="LOSS",
        help="Most accuracy lost by --precision mixed, the losses of its ops added up; needs --sensitivities.",
        rich_help_panel=LIMITS,
    ),
]
MaxSegments = Annotated[int | None, typer.Option(metavar="N", help="Most segments: runs of ops on one queue.", rich_help_panel=LIMITS)]
Sensitivities = Annotated[
    Path | None,
    typer.Option(
        "--sensitivities", metavar="FILE", help='JSON: what each op loses in integers ({"ops": {"conv1": 0.01}}).', rich_help_panel=MODEL
    ),
]
Pareto = Annotated[
    int, typer.Option("--pareto", metavar="N", help="Also look for N plans between the fastest and the thriftiest.", rich_help_panel=ANSWER)
]
Splits = Annotated[
    bool,
    typer.Option("--split", help="Let two processors share a large operator, where the whole plan gains by it.", rich_help_panel=ANSWER),
]
LevelPlans = Annotated[
    bool,
    typer.Option(
        "--levels",
        help="Also plan for a phone that throttles: NPU slowed (1), NPU off (2), least energy without it (3), two CPU cores (4).",
        rich_help_panel=ANSWER,
    ),
]
Level = Annotated[int, typer.Option("--level", metavar="N", help="Of a plan file made with --levels: the plan for this level.")]
