"""Options of ``simulate`` that say how the phone lies, what feeds it and what else it does."""

from __future__ import annotations

from typing import Annotated

import typer

Case = Annotated[
    str,
    typer.Option(metavar="NAME|FILE", help="How the phone sees its surroundings: table, hand, pocket, in-a-case, cooled, or a YAML file."),
]
Battery = Annotated[
    float | None, typer.Option(metavar="PERCENT", help="State of charge to begin with; the run ends when it is empty. Default: left out.")
]
Charging = Annotated[float, typer.Option(metavar="WATTS", help="What a charger can give; needs --battery.")]
Loads = Annotated[
    str | None,
    typer.Option("--load", metavar="PART=W,...", help="Other parts at work (display=400nit,modem=0.8), on top of the SoC file's base_w."),
]
