"""Binding the dims of a language model: which phase of it a graph is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsched.errors import OptionError

_MOST = 1 << 24


@dataclass(frozen=True, slots=True)
class Phase:
    """``batch`` sequences, ``tokens`` new tokens each, ``past`` cached ones; logits of the last ``logits`` positions."""

    batch: int = 1
    tokens: int = 1
    past: int = 512
    logits: int = 1

    @property
    def rows(self) -> int:
        """Rows of every activation."""
        return self.batch * self.tokens

    @property
    def dims(self) -> dict[str, int]:
        """The dims by name, as a graph records them."""
        return {"batch": self.batch, "tokens": self.tokens, "past": self.past, "logits": self.logits}


def bind(dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]], name: str) -> Phase:
    """The phase that ``dims`` ask for.

    Without any it is a decode step: 1 token after 512. With more than one token ``past`` is 0 unless given: a prefill.

    Raises:
        OptionError: a dim is unknown or out of range, or ``shapes`` are given.
    """
    known = ("batch", "tokens", "past", "logits")
    bad = next((d for d in dims if d not in known), None) or next(iter(shapes), None)
    if bad is not None:
        raise OptionError(f"the language model {name!r} has no dim {bad!r}; it has batch, tokens, past and logits")
    tokens = _bound(dims, "tokens", 1, 1, _MOST)
    batch = _bound(dims, "batch", 1, 1, 1 << 16)
    if batch * tokens > _MOST:
        raise OptionError(f"--dim batch={batch} and tokens={tokens} are more than {_MOST} tokens together: lower one")
    past = _bound(dims, "past", 512 if tokens == 1 else 0, 0, _MOST)
    return Phase(batch, tokens, past, _bound(dims, "logits", 1, 1, tokens))


def _bound(dims: Mapping[str, int], name: str, default: int, least: int, most: int) -> int:
    value = dims.get(name, default)
    if not least <= value <= most:
        raise OptionError(f"--dim {name}={value} is out of range: {name} may be from {least} to {most} here")
    return value
