"""How much power an assistant may take: a level by its name, or by the state of the machine."""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.errors import OptionError
from hetsched.language.power import PowerLevel, level_named
from hetsched.language.power_watch import PowerWatch
from hetsched.language.session import LanguageModel
from hetsched.language.speculation import Drafter, DraftModel

#: The name for "by the state of the machine".
AUTO = "auto"


def work_at(model: LanguageModel, power: str, levels: Mapping[str, PowerLevel]) -> PowerWatch | None:
    """Let a model work at a level from its next step on; returns what watches the machine for ``auto``.

    Raises:
        OptionError: there is no such level.
    """
    if power == AUTO:
        model.watch = watch = PowerWatch(levels)
        return watch
    if power not in levels:
        raise OptionError(f"there is no power level {power!r}: use {', '.join([*levels, AUTO])}")
    model.watch = None
    model.work_at(level_named(power, levels))
    return None


def follow(drafter: Drafter | None, model: LanguageModel) -> None:
    """Let a smaller model that guesses work at whatever level the model does."""
    if isinstance(drafter, DraftModel):
        drafter.model.watch = lambda: model.power
