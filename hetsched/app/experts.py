"""Reading how often the experts of a mixture are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hetsched import plain_yaml
from hetsched.errors import OptionError

_MOST_BYTES, _MOST_EXPERTS = 1 << 20, 1 << 16


def read_profile(profile: str | Path | Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Rows of probabilities from a YAML or JSON file, or as they are given; one empty row for ``uniform``.

    A file holds a list of numbers (all layers alike), a list of such lists (a layer each), or one of these under ``experts``.

    Raises:
        OptionError: the file is absent, malformed or too large.
    """
    if isinstance(profile, str | Path):
        return ((),) if str(profile) == "uniform" else _rows(_parsed(Path(profile)), f"the profile {str(profile)!r}")
    return _rows(profile, "the profile")


def _parsed(path: Path) -> Any:
    if not path.is_file():
        raise OptionError(f"there is no profile {str(path)!r} of experts: give a YAML or JSON file, or 'uniform'")
    if path.stat().st_size > _MOST_BYTES:
        raise OptionError(f"the profile {str(path)!r} is larger than {_MOST_BYTES >> 20} MiB: it is no profile of experts")
    try:
        return plain_yaml.load(path.read_text("utf-8"))
    except UnicodeDecodeError as e:
        raise OptionError(f"the profile {str(path)!r} is neither YAML nor JSON: write a list of probabilities") from e
    except ValueError as e:
        raise OptionError(f"the profile {str(path)!r} {e}: write a list of probabilities") from e


def _rows(value: Any, where: str) -> tuple[tuple[float, ...], ...]:
    if isinstance(value, Mapping):
        value = value.get("experts")
    if not isinstance(value, list | tuple) or not value:
        raise OptionError(f"{where} holds no list of probabilities: write one number an expert, or such a list a layer")
    rows = value if all(isinstance(r, list | tuple) for r in value) else [value]
    if sum(len(row) for row in rows) > _MOST_EXPERTS:
        raise OptionError(f"{where} has more than {_MOST_EXPERTS} probabilities: it is no profile of experts")
    bad = next((p for row in rows for p in row if isinstance(p, bool) or not isinstance(p, int | float)), None)
    if bad is not None or any(not row for row in rows):
        raise OptionError(f"{where} has {str(bad)[:40]!r} where a probability is expected: write numbers from 0 to 1")
    return tuple(tuple(float(p) for p in row) for row in rows)
