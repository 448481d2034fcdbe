"""Reading the fields of a model description (GGUF metadata, ``config.json``), each checked for type and range."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hetsched.errors import ModelError

#: No size in a description may be larger (layers have a limit of their own).
MAX_SIZE = 1 << 28
MAX_LAYERS = 1024


class Fields:
    """The fields of one description.

    Args:
        values: the fields by name.
        where: what the description is, for messages (``the file 'x.gguf'``).
    """

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self.values, self.where = values, where

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def size(self, *names: str, default: int | None = None, least: int = 1, most: int = MAX_SIZE) -> int:
        """A whole number in ``[least, most]``: the first of ``names`` that is there, or ``default``.

        Raises:
            ModelError: none is there and there is no default, or the value is no such number.
        """
        name = next((n for n in names if n in self), None)
        if name is None:
            if default is None:
                raise ModelError(f"{self.where} has no {names[0]!r}: it is damaged or not a language model")
            return default
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most or value != int(value):
            raise self.misfit(name, f"a whole number from {least} to {most}")
        return int(value)

    def number(self, *names: str, default: float) -> float:
        """A finite number: the first of ``names`` that is there, or ``default``.

        Raises:
            ModelError: the value is no such number.
        """
        name = next((n for n in names if n in self), None)
        if name is None:
            return default
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise self.misfit(name, "a finite number")
        return float(value)

    def positive(self, *names: str, default: float) -> float:
        """As :meth:`number`, above 0."""
        value = self.number(*names, default=default)
        if value <= 0:
            raise self.misfit(next(n for n in names if n in self), "a number above 0")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A truth value, or ``default``."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool | int):
            raise self.misfit(name, "true or false")
        return bool(value)

    def text(self, name: str, default: str) -> str:
        """A text, or ``default``."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.misfit(name, "a text")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of finite numbers; empty where the field is absent."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(
            isinstance(v, int | float) and not isinstance(v, bool) and _is_finite(v) for v in value
        ):
            raise self.misfit(name, "a list of finite numbers")
        return tuple(float(v) for v in value)

    def part(self, name: str) -> Fields:
        """The fields of an object within this one; empty where it is absent."""
        value = self.values.get(name)
        if value is None:
            return Fields({}, f"{name!r} of {self.where}")
        if not isinstance(value, Mapping):
            raise self.misfit(name, "an object")
        return Fields(value, f"{name!r} of {self.where}")

    def misfit(self, name: str, wanted: str) -> ModelError:
        """The error for a field that is not what it should be."""
        return ModelError(f"{name!r} of {self.where} is {_short(self.values.get(name))}, which is not {wanted}: it is damaged")


def _is_finite(value: int | float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 1 << 63


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number of over 64 bits"
    if isinstance(value, int | float | str):
        return repr(value)[:60]
    return f"a {type(value).__name__}"
