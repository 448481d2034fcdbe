"""Things by name: the built-in ones, and those that installed plug-ins register as entry points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def names(group: str, built_in: Mapping[str, str]) -> list[str]:
    """Every name of an entry-point group, sorted; ``built_in`` are ``name -> module:attribute``."""
    from importlib.metadata import entry_points

    return sorted({*built_in, *(e.name for e in entry_points(group=group))})


def factory(group: str, built_in: Mapping[str, str], name: str) -> Any:
    """What makes the thing of a name, imported now; built-in ones come first. None: nothing has the name."""
    from importlib import import_module
    from importlib.metadata import entry_points

    if name in built_in:
        module, _, attribute = built_in[name].partition(":")
        return getattr(import_module(module), attribute)
    return next((e.load() for e in entry_points(group=group) if e.name == name), None)
