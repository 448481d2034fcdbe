"""``hetsched delta``: what changed between two versions of a model's weights, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.progress import progress
from hetsched.cli.shared_options import Json


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command(short_help="Write what changed between two versions of a language model")(delta)


def delta(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The version that is there: a GGUF file, or a Hugging Face folder.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The next version, in the same format.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The update.")] = Path("update.hsdelta"),
    as_json: Json = False,
) -> None:
    """Write an update that turns one version of a model's weights into the next; 'run OLD --prompt TEXT --update FILE' applies it."""
    from hetsched.app.updating import delta as written
    from hetsched.cli import show
    from hetsched.sizes import size

    with progress(str(output), as_json):
        made = written(old, new, output)
    if as_json:
        show.json(made.summary())
        return
    show.line(
        f"{output}: {size(made.nbytes, 3)} for {made.changed} of {made.weights} weights, which are {size(made.whole_bytes, 3)} together; "
        f"it turns {made.base[:16]} into {made.result[:16]}"
    )
