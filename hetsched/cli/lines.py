"""Text from files, made safe to show: one line, and nothing that a terminal would obey."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""``text`` with control characters, line breaks and lone surrogates written as escapes.

    Examples:
        >>> printable("a name\nwith \x1b[31mcolour")
        'a name\\nwith \\x1b[31mcolour'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(count: int, thing: str, things: str = "") -> str:
    """So many of a thing; its plural is with an s unless it is given.

    Examples:
        >>> counted(1, "segment"), counted(2, "segment"), counted(0, "switch", "switches")
        ('1 segment', '2 segments', '0 switches')
    """
    return f"{count} {thing if count == 1 else things or thing + 's'}"
