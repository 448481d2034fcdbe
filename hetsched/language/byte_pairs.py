"""Byte-pair encoding (Sennrich et al., 2016) on bytes, as GPT-2 writes them: every byte is a printable character."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise

_UNSEEN = 1 << 62


@cache
def byte_characters() -> tuple[str, ...]:
    """The character that stands for each byte: itself where it is printable, else one from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [b for b in range(256) if b not in printable]
    return tuple(chr(b) if b in printable else chr(256 + others.index(b)) for b in range(256))


@cache
def bytes_of_characters() -> Mapping[str, int]:
    """The inverse of :func:`byte_characters`."""
    return {c: b for b, c in enumerate(byte_characters())}


def written(text: str) -> str:
    """The UTF-8 bytes of a text as characters."""
    table = byte_characters()
    return "".join(table[b] for b in text.encode("utf-8", "surrogatepass"))


def read(characters: str) -> bytes:
    """The bytes that characters stand for; a character that stands for none is taken as it is."""
    table = bytes_of_characters()
    return b"".join(bytes([table[c]]) if c in table else c.encode() for c in characters)


def merged(word: str, ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """The pieces of a word after all merges, the one of the lowest rank (then leftmost) first.

    Examples:
        >>> merged("low", {("l", "o"): 0, ("lo", "w"): 1})
        ['low']
    """
    parts = list(word)
    while len(parts) > 1:
        found = [ranks.get(pair, _UNSEEN) for pair in pairwise(parts)]
        best = min(found)
        if best == _UNSEEN:
            break
        out, i = [], 0
        while i < len(parts):
            if i < len(found) and found[i] == best:
                out.append(parts[i] + parts[i + 1])
                i += 2
            else:
                out.append(parts[i])
                i += 1
        parts = out
    return parts
