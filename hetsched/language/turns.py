"""Threads that share a model take turns: one at a time computes, or changes which pages a sequence has."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def in_turn(method: Callable[Concatenate[Any, _Given], _Result]) -> Callable[Concatenate[Any, _Given], _Result]:
    """A method of something with a ``pool``: it waits until no other thread is at work with the pool."""

    @wraps(method)
    def taken(self: Any, /, *args: _Given.args, **named: _Given.kwargs) -> _Result:
        with self.pool.lock:
            return method(self, *args, **named)

    return taken
