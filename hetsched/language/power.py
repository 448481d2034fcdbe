"""How much power generating text may take: which cores compute and how precisely, how far back a token sees, how much is speculated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from hetsched.errors import OptionError, shortened
from hetsched.language.precision import PRECISIONS

#: A battery below this share is critical.
LOW_BATTERY = 0.1
_MOST_BYTES = 1 << 16
_ROUNDING = 1e-9
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class PowerLevel:
    """A level.

    Attributes:
        name: normal, warm or critical.
        context: share of the context limit that a new token sees.
        speculation: share of the tokens that are speculated at once: wrong guesses cost energy.
        threads: share of the cores that compute, one at least.
        slow_cores: whether the slowest kind of cores comes first, which takes the least energy for the same work.
        precision: ``w4a8`` or ``w4a16``; empty: the one that the model was opened with.
    """

    name: str
    context: float = 1.0
    speculation: float = 1.0
    threads: float = 1.0
    slow_cores: bool = False
    precision: str = ""

    def window(self, context: int) -> int:
        """Tokens that a new one sees at most, of a context limit; 0: all."""
        return 0 if self.context == 1 else max(int(context * self.context + _ROUNDING), 1)

    def speculated(self, length: int) -> int:
        """Tokens that are speculated at once, of those asked for."""
        return int(length * self.speculation + _ROUNDING)

    def cores(self, cores: Sequence[int], speeds: Sequence[float]) -> tuple[int, ...]:
        """The cores that compute, of those there are and by their speeds; of one kind the first ones.

        The fastest of them comes first: its thread also does what cannot be shared.

        Examples:
            >>> WARM.cores((0, 1, 2, 3), (9.0, 9.0, 4.0, 4.0)), NORMAL.cores((0, 1, 2), (4.0, 4.0, 9.0))
            ((2, 3), (2, 0, 1))
        """
        ordered = sorted(zip(cores, speeds, strict=True), key=lambda v: v[1] if self.slow_cores else -v[1])
        count = max(int(len(cores) * self.threads + _ROUNDING), 1)
        return tuple(core for core, _ in sorted(ordered[:count], key=lambda v: -v[1]))


NORMAL = PowerLevel("normal")
WARM = PowerLevel("warm", context=0.5, speculation=0.5, threads=0.5, slow_cores=True, precision="w4a8")
CRITICAL = PowerLevel("critical", context=0.25, speculation=0.0, threads=0.25, slow_cores=True, precision="w4a8")
LEVELS: Mapping[str, PowerLevel] = {level.name: level for level in (NORMAL, WARM, CRITICAL)}


def level_named(name: str, levels: Mapping[str, PowerLevel] = LEVELS) -> PowerLevel:
    """A level by its name.

    Raises:
        OptionError: there is none.
    """
    if name not in levels:
        raise OptionError(f"there is no power level {name!r}: use {', '.join(levels)}")
    return levels[name]


def level_for(throttle: int, battery: float | None = None) -> str:
    """The name of the level for a phone's state.

    Args:
        throttle: as policies count it (:mod:`hetsched.policies`): 0 is none, 3 the last of the heat, 4 a nearly empty battery.
        battery: share of the charge that is left; None: no battery.
    """
    if throttle >= 3 or (battery is not None and battery < LOW_BATTERY):
        return CRITICAL.name
    return WARM.name if throttle > 0 else NORMAL.name


def read_power_policy(path: str | Path) -> Mapping[str, PowerLevel]:
    """The levels of a YAML file: what it leaves out is as usual.

    Raises:
        OptionError: it cannot be read, or names a level or a field that there is not, or a value that makes no sense.
    """
    from hetsched import plain_yaml

    path = Path(path)
    raw = plain_yaml.read(path, "the power policy", _MOST_BYTES)
    if not isinstance(raw, dict):
        raise OptionError(f"the power policy {path} is no mapping: write levels such as 'warm: {{threads: 0.5}}'")
    return dict(LEVELS) | {name: _changed(path, level_named(str(name)), given) for name, given in raw.items()}


def _changed(path: Path, level: PowerLevel, given: object) -> PowerLevel:
    known = {f.name: f.type for f in fields(PowerLevel) if f.name != "name"}
    if not isinstance(given, dict) or not set(given) <= set(known):
        raise OptionError(
            f"the level {level.name} of the power policy {path} holds {shortened(repr(given), _SHOWN)}: use {', '.join(known)}"
        )
    for field, value in given.items():
        share = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1 and (value > 0 or field == "speculation")
        fits = {"bool": isinstance(value, bool), "str": value in PRECISIONS, "float": share}[str(known[field])]
        if not fits:
            wanted = {"bool": "true or false", "str": " or ".join(PRECISIONS), "float": "a share, above 0 and at most 1"}[str(known[field])]
            said = shortened(repr(value), _SHOWN)
            raise OptionError(f"the {field} of the level {level.name} in the power policy {path} is {said}: use {wanted}")
    return replace(level, **given)
