"""How the verbs read their arguments: an option that takes one value is given once, numbers are numbers, help has headings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from typer.core import TyperCommand, TyperGroup

from hetsched.cli.headings import ORDER
from hetsched.errors import OptionError

#: Options given twice by those who want something that another verb does.
_INSTEAD = {"--soc": "; 'hetsched compare' takes several"}


class Verbs(TyperGroup):
    """All verbs. What a verb is given is looked through before the verb reads it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb, and refuse what its reader would pass over or word badly.

        Raises:
            OptionError: an option is given twice, or a number is none.
        """
        name, verb, rest = super().resolve_command(ctx, args)
        if verb is not None:
            _look_through(verb, type(ctx)(verb, info_name=name, parent=ctx), rest)
        return name, verb, rest


class Headed(TyperCommand):
    """A verb whose options stand under headings, those of ``rich_help_panel``."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options heading by heading, those without one last."""
        sections: dict[str, list[tuple[str, str]]] = {h: [] for h in ("Arguments", *ORDER, "Options")}
        for p in self.get_params(ctx):
            record = p.get_help_record(ctx)
            if record is not None:
                heading = "Arguments" if p.param_type_name == "argument" else getattr(p, "rich_help_panel", None) or "Options"
                sections[heading].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _look_through(verb: Any, ctx: Any, args: Sequence[str]) -> None:
    try:
        values, _, order = verb.make_parser(ctx).parse_args(list(args))
    except Exception as e:  # the parser's, which does not know of which verb it is
        if getattr(e, "ctx", ctx) is None:
            e.ctx = ctx  # type: ignore[attr-defined]
        raise
    given = Counter(p.name for p in order)
    for p in verb.params:
        if p.param_type_name != "option" or p.is_flag or p.name not in given:
            continue
        called = p.opts[-1]
        if not p.multiple and given[p.name] > 1:
            raise OptionError(f"{called} is given {given[p.name]} times, and '{ctx.info_name}' takes one{_INSTEAD.get(called, '')}")
        value, annotation = values[p.name], p.type_descriptor.annotation
        for text in value if p.multiple else [value]:
            _check_number(called, text, (get_args(annotation) or (annotation,))[0])


def _check_number(option: str, text: str, wanted: object) -> None:
    """Refuse a text that is no number, where one is wanted.

    Raises:
        OptionError: it is none.
    """
    if wanted is not int and wanted is not float:
        return
    try:
        int(text) if wanted is int else float(text)
    except ValueError as e:
        what = "a whole number" if wanted is int else "a number"
        raise OptionError(f"{option} {text!r} is not {what}: write it without a unit, such as {option} 30") from e
