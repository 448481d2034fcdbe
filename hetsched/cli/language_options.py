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
    int | None,
    typer.Option(
        metavar="N", help="Guess so many tokens at once and check them in one step; the text stays the same. Default: as planned, else 0.",
        rich_help_panel=LANGUAGE,
    ),
]  # fmt: skip
Draft = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL", help="A smaller model that guesses. Default: what followed the last tokens before.", rich_help_panel=LANGUAGE
    ),
]
DraftLayers = Annotated[
    int | None,
    typer.Option("--draft-layers", metavar="K", help="Guess with the model's own first K layers and its head.", rich_help_panel=LANGUAGE),
]
SaveAcceptance = Annotated[
    Path | None,
    typer.Option(
        "--save-acceptance", metavar="FILE", help="Count accepted guesses in a file, for 'plan --acceptance'; an older one is added to.",
        rich_help_panel=LANGUAGE,
    ),
]  # fmt: skip
Power = Annotated[
    str, typer.Option(metavar="LEVEL", help="normal, warm, critical, or auto (by heat and charge).", rich_help_panel=LANGUAGE)
]
PowerPolicy = Annotated[
    Path | None,
    typer.Option(
        "--power-policy", metavar="FILE", help="What the levels take of cores, precision, context and guesses (YAML).",
        rich_help_panel=LANGUAGE,
    ),
]  # fmt: skip
Adapter = Annotated[
    Path | None,
    typer.Option(metavar="LORA", help="A low-rank adapter of the model: a folder as PEFT writes it, or GGUF.", rich_help_panel=LANGUAGE),
]

Protect = Annotated[
    list[str],
    typer.Option(
        metavar="PATTERN", help="Weights that meet 16 bits at w4a8 (*down*), or none. Default: the head, the outer layers' ffn_down.",
        rich_help_panel=LANGUAGE,
    ),
]  # fmt: skip
#: ``--protect none``.
_NONE = ["none"]

Update = Annotated[
    list[Path],
    typer.Option(metavar="FILE", help="Update of the weights, from 'hetsched delta'; several in their order.", rich_help_panel=LANGUAGE),
]


@dataclass(frozen=True, slots=True)
class Working:
    """The options together."""

    cache_memory: str | None = None
    shrink: bool = False
    speculate: int | None = None
    draft: Path | None = None
    power: str = "normal"
    adapter: Path | None = None
    protect: list[str] = field(default_factory=list)
    draft_layers: int | None = None
    save_acceptance: Path | None = None
    power_policy: Path | None = None
    update: list[Path] = field(default_factory=list)

    def check(self, target: Path) -> None:
        """Refuse what could not be written, before any work is done.

        Raises:
            OptionError: accepted guesses are to be counted where nothing guesses, or cannot be written.
        """
        from hetsched.errors import OptionError
        from hetsched.files import check_destination

        if self.save_acceptance is not None:
            if not self.speculate and (self.speculate is not None or not _guesses(target)):
                raise OptionError(f"--save-acceptance {self.save_acceptance} counts guesses: say how many with --speculate N")
            check_destination(self.save_acceptance, (target, self.draft, self.adapter), "--save-acceptance")

    def arguments(self) -> dict[str, Any]:
        """As :func:`hetsched.app.generating.assistant` takes them."""
        from hetsched.cli import options

        return {
            "cache_bytes": options.nbytes(self.cache_memory, "--cache-memory"), "shrink": self.shrink, "speculate": self.speculate,
            "draft": self.draft, "power": self.power, "adapter": self.adapter, "draft_layers": self.draft_layers,
            "power_policy": self.power_policy, "protect": () if self.protect == _NONE else self.protect or None,
            "update": self.update,
        }  # fmt: skip


def _guesses(target: Path) -> bool:
    """Whether a file is a plan with guessed tokens."""
    from hetsched.files import is_plan_file
    from hetsched.plans import Deployment

    asked = Deployment.from_file(target).language if is_plan_file(target) else None
    return asked is not None and asked.speculation is not None
