"""Options of ``hetsched plan`` on guessed tokens."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hetsched.cli.headings import LANGUAGE
from hetsched.errors import OptionError

Guesses = Annotated[
    str | None,
    typer.Option(
        "--speculate", metavar="N", help="Tokens guessed at once and verified in one step; auto: as many as are fastest.",
        rich_help_panel=LANGUAGE,
    ),
]  # fmt: skip
Accepted = Annotated[
    str | None,
    typer.Option(
        "--acceptance", metavar="A", help="How often a guess is right: a probability, or a file of 'run --save-acceptance'.",
        rich_help_panel=LANGUAGE,
    ),
]  # fmt: skip


def guessed_length(text: str | None) -> int | Literal["auto"] | None:
    """The length of ``--speculate``.

    Raises:
        OptionError: neither a number nor ``auto``.
    """
    if text is None:
        return None
    try:
        return "auto" if text == "auto" else int(text)
    except ValueError as e:
        raise OptionError(f"--speculate {text} is no number of tokens: use 1 to 15, or auto") from e
