"""How much power generating text may take: how far back a token sees, how many tokens are speculated, how many threads compute."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.errors import OptionError

#: A battery below this share is critical.
LOW_BATTERY = 0.1


@dataclass(frozen=True, slots=True)
class PowerLevel:
    """A level.

    Attributes:
        name: normal, warm or critical.
        divisor: context limit, speculation and threads are divided by it.
        speculates: whether tokens are speculated: wrong guesses cost energy.
    """

    name: str
    divisor: int
    speculates: bool = True

    def window(self, context: int) -> int:
        """Tokens that a new one sees at most, of a context limit; 0: all."""
        return 0 if self.divisor == 1 else max(context // self.divisor, 1)

    def speculated(self, length: int) -> int:
        """Tokens that are speculated at once, of those asked for."""
        return length // self.divisor if self.speculates else 0

    def threads(self, threads: int) -> int:
        """Threads that compute, of those there are."""
        return max(threads // self.divisor, 1)


NORMAL, WARM, CRITICAL = PowerLevel("normal", 1), PowerLevel("warm", 2), PowerLevel("critical", 4, speculates=False)
LEVELS = {level.name: level for level in (NORMAL, WARM, CRITICAL)}


def level_named(name: str) -> PowerLevel:
    """A level by its name.

    Raises:
        OptionError: there is none.
    """
    if name not in LEVELS:
        raise OptionError(f"there is no power level {name!r}: use {', '.join(LEVELS)}")
    return LEVELS[name]


def level_for(throttle: int, battery: float | None = None) -> PowerLevel:
    """The level for a phone's state.

    Args:
        throttle: as policies count it (:mod:`hetsched.policies`): 0 is none, 3 the last of the heat.
        battery: share of the charge that is left; None: no battery.
    """
    if throttle >= 3 or (battery is not None and battery < LOW_BATTERY):
        return CRITICAL
    return WARM if throttle > 0 else NORMAL
