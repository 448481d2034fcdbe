"""Options of ``hetsched run`` that would be ignored: those of generating text without a prompt, and the other way round."""

from __future__ import annotations

import typer

from hetsched.cli.headings import LANGUAGE
from hetsched.errors import OptionError

#: What running a plan's operators and generating text both know.
BOTH = frozenset({"target", "precision", "seed", "trace", "as_json"})


def refuse_misplaced(context: typer.Context, *, generating: bool) -> None:
    """Refuse an option that was given and has no meaning here.

    Raises:
        OptionError: names the first of them.
    """
    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        if option.name in BOTH or source is None or source.name != "COMMANDLINE":  # its type is typer's own or click's, by version
            continue
        of_text = getattr(option, "rich_help_panel", None) == LANGUAGE
        if of_text and not generating:
            raise OptionError(f"{option.opts[-1]} belongs to generating text: give --prompt TEXT, too")
        if generating and not of_text:
            raise OptionError(f"{option.opts[-1]} belongs to running a plan's operators, and --prompt generates text: leave one out")
