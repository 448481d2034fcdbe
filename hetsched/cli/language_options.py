"""Options of ``run --prompt`` and ``chat`` on how the model works: its cache's memory, speculation, power."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from hetsched.cli.headings import LANGUAGE

CacheMemory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory that the caches may take (64MB). Default: what the context needs.", rich_help_panel=LANGUAGE),
]
ShrinkCache = Annotated[
    bool,
    typer.Option(
        "--shrink-cache", help="Where it does not suffice, see less far back (half the context), then keep int8.", rich_help_panel=LANGUAGE
    ),
]
Speculate = Annotated[
    int,
    typer.Option(
        metavar="N", help="Guess so many tokens at once and check them in one step; the text stays the same.", rich_help_panel=LANGUAGE
    ),
]
Draft = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL", help="A smaller model that guesses. Default: what followed the last tokens before.", rich_help_panel=LANGUAGE
    ),
]
Power = Annotated[
    str, typer.Option(metavar="LEVEL", help="normal, warm (half of context, guesses, threads) or critical.", rich_help_panel=LANGUAGE)
]
Adapter = Annotated[
    Path | None,
    typer.Option(metavar="LORA", help="A low-rank adapter of the model: a folder as PEFT writes it, or GGUF.", rich_help_panel=LANGUAGE),
]

Protect = Annotated[
    list[str],
    typer.Option(
        metavar="PATTERN", help="Weights that meet 16 bits at w4a8 (*down*). Default: the outer layers' ffn_down.", rich_help_panel=LANGUAGE
    ),
]


@dataclass(frozen=True, slots=True)
class Working:
    """The options together."""

    cache_memory: str | None = None
    shrink: bool = False
    speculate: int = 0
    draft: Path | None = None
    power: str = "normal"
    adapter: Path | None = None
    protect: list[str] = field(default_factory=list)

    def arguments(self) -> dict[str, Any]:
        """As :func:`hetsched.app.generating.assistant` takes them."""
        from hetsched.cli import options

        return {
            "cache_bytes": options.nbytes(self.cache_memory, "--cache-memory"), "shrink": self.shrink, "speculate": self.speculate,
            "draft": self.draft, "power": self.power, "adapter": self.adapter, "protect": self.protect or None,
        }  # fmt: skip
