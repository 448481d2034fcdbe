"""Options of ``plan`` that limit what a plan may have, or ask for a trade between two figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MaxLatency = Annotated[str | None, typer.Option(metavar="TIME", help="Most latency (33ms), for example with --objective energy.")]
MaxEnergy = Annotated[str | None, typer.Option(metavar="ENERGY", help="Most energy of an inference (5mJ).")]
MaxPower = Annotated[str | None, typer.Option(metavar="POWER", help="Most power while it runs: energy over latency (4W).")]
MaxLoss = Annotated[
    float | None,
    typer.Option(metavar="LOSS", help="Most accuracy lost by --precision mixed, the losses of its ops added up; needs --sensitivities."),
]
MaxSegments = Annotated[int | None, typer.Option(metavar="N", help="Most segments: runs of ops on one queue.")]
Sensitivities = Annotated[
    Path | None, typer.Option("--sensitivities", metavar="FILE", help='JSON: what each op loses in integers ({"ops": {"conv1": 0.01}}).')
]
Pareto = Annotated[int, typer.Option("--pareto", metavar="N", help="Also look for N plans between the fastest and the thriftiest.")]
Splits = Annotated[bool, typer.Option("--split", help="Let two processors share a large operator, where the whole plan gains by it.")]
LevelPlans = Annotated[
    bool, typer.Option("--levels", help="Also plan for a phone that throttles: NPU slowed (1), NPU off (2), least energy without it (3).")
]
Level = Annotated[int, typer.Option("--level", metavar="N", help="Of a plan file made with --levels: the plan for this level.")]
