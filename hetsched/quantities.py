"""Quantities and lists of them as people write them: ``10min``, ``5GB/s``, ``prompt=64,generate=128``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BeforeValidator

SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
BYTES_A_SECOND = {"gb/s": 1e9, "mb/s": 1e6}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zµ/]*)\s*", re.IGNORECASE)


def number_and_unit(text: str) -> tuple[float, str] | None:
    """The number and its unit in lower case, perhaps an empty one; None: it is no quantity.

    Examples:
        >>> number_and_unit("1.5 GB/s"), number_and_unit("60"), number_and_unit("soon")
        ((1.5, 'gb/s'), (60.0, ''), None)
    """
    found = _QUANTITY.fullmatch(text)
    return None if found is None else (float(found[1]), found[2].lower())


def written_in(units: Mapping[str, float]) -> BeforeValidator:
    """Text with one of these units becomes a number; what has none stays for the field's own check."""

    def converted(value: Any) -> Any:
        found = number_and_unit(value) if isinstance(value, str) else None
        return found[0] * units[found[1]] if found is not None and found[1] in units else value

    return BeforeValidator(converted)


def pairs(value: Any) -> Any:
    """Text ``prompt=64,generate=128`` as a mapping of texts, empty text as an empty one; anything else stays.

    Raises:
        ValueError: a value without a name, or a name twice.

    Examples:
        >>> pairs("cpu=0.3, dram=5GB/s")
        {'cpu': '0.3', 'dram': '5GB/s'}
    """
    if not isinstance(value, str):
        return value
    found: dict[str, str] = {}
    for part in value.split(","):
        name, _, text = (piece.strip() for piece in part.partition("="))
        if part.strip() and not name:
            raise ValueError(f"{part.strip()!r} has no name: write NAME=VALUE")
        if name and found.setdefault(name, text) != text:
            raise ValueError(f"{name!r} is given twice: {found[name]} and {text}")
    return found
