"""Sizes in words."""

from __future__ import annotations

_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def size(nbytes: float, digits: int = 3) -> str:
    """A number of bytes in the unit that suits it; sizes that are close and compared need more ``digits``.

    Examples:
        >>> size(7_080_000), size(1.25e9), size(512), size(0), size(15_168, 6)
        ('7.08 MB', '1.25 GB', '512 B', '0 B', '15.168 kB')
    """
    for unit, scale in _UNITS:
        if abs(nbytes) >= scale * (1 - 0.5 * 10.0**-digits):
            return f"{nbytes / scale:.{digits}g} {unit}"
    return f"{nbytes:.0f} B"
