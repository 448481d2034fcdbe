"""What a plan is put through: for how long, in which heat, what arrives and when. Options of ``simulate`` and keys of a study alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from hetsched import wrong_fields
from hetsched.errors import OptionError
from hetsched.quantities import SECONDS, number_and_unit, pairs, written_in
from hetsched.soc_quantities import Number, Strict
from hetsched_simulations.background import Background

MAX_DURATION_S = 24 * 3600.0
MAX_ARRIVALS = 5_000_000
"""Of a period, where every one is kept: at random, in a queue, or as a turn of a chat."""
NITS = ("nit", "nits")


def _loads(value: Any) -> Any:
    """``display=0.8,modem=0.3`` as a mapping to watts; a display's brightness in nits is what it draws then."""
    given = pairs(value)
    if not isinstance(given, Mapping):
        return value
    found = {name: number_and_unit(text) for name, text in given.items() if isinstance(text, str)}
    nits = {name: said[0] for name, said in found.items() if said is not None and said[1] in NITS}
    if nits.keys() - {"display"}:
        raise ValueError("only the display's load is told in nits: give the others in watts")
    from hetsched_simulations.battery import display_w

    return {**given, **{name: display_w(brightness) for name, brightness in nits.items()}}


Seconds = Annotated[Number, written_in(SECONDS)]
"""Seconds as a number, or text with a unit: ``33ms``, ``10min``."""
Tokens = Annotated[int, Field(ge=1, le=1 << 24)]


class Chat(Strict):
    """A conversation: every turn is a prompt, which is read after all that was said before, and an answer."""

    prompt: Tokens | None = None
    """Tokens that the user writes each turn; None: those of the plan."""
    generate: Tokens | None = None
    """Tokens of each answer; None: those of the plan."""
    turns: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """After so many a new conversation begins; None: when the next turn would not fit into the window."""
    window: Tokens | None = None
    """Tokens that a conversation may have; None: as many as the plan has room for."""


class Scenario(Strict):
    """What a plan is put through.

    Without a period what arrives next does so ``think_s`` after the end of the one before (closed arrivals). With one, it
    arrives whatever happens (open): every period or, with ``poisson``, at random with that mean distance.
    """

    duration_s: Annotated[Seconds, Field(gt=0, le=MAX_DURATION_S)] | None = None
    """None: one inference, or one prompt and its answer."""
    ambient_c: Annotated[Number, Field(ge=-40, le=85)] = 25.0
    period_s: Annotated[Seconds, Field(gt=0, le=MAX_DURATION_S)] | None = None
    contention: bool = True
    """Concurrent segments share the memory bandwidth."""
    case: Annotated[str, Field(min_length=1, max_length=500)] = "table"
    """How the phone's surface sees its surroundings: ``table``, ``hand``, ``pocket``, ``in-a-case``, ``cooled``, or a file."""
    battery: Annotated[Number, Field(ge=0, le=1)] | None = None
    """State of charge at the beginning; None: the battery is left out, and policies take it for full."""
    charging_w: Annotated[Number, Field(ge=0, le=1000)] = 0.0
    """What a cable can give."""
    loads: Annotated[dict[str, Annotated[Number, Field(ge=0, le=1000)]], BeforeValidator(_loads)] = Field(default_factory=dict)
    """Watts that parts of the phone draw on top of the SoC file's ``base_w``, by name; the display's also as ``400nit``."""
    deadline_s: Annotated[Seconds, Field(gt=0, le=MAX_DURATION_S)] | None = None
    """From arrival to result; later ones are counted."""
    think_s: Annotated[Seconds, Field(ge=0, le=MAX_DURATION_S)] = 0.0
    poisson: bool = False
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    queue: bool = False
    """What arrives during an inference waits for it; otherwise it is dropped."""
    chat: Annotated[Chat, BeforeValidator(pairs)] | None = None
    background: Background | None = None
    """Another app: shares of processors and bandwidth, such as ``cpu=0.3,gpu=0.2,dram=5GB/s``, always or ``on=10s,off=20s``."""
    exact: bool = False
    """Every inference op by op, instead of one of each operating state."""
    workload: str | None = None
    """A file of arrivals (``docs/simulator.md``), in place of period, thinking and chat."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.period_s is not None and self.think_s > 0:
            raise ValueError("a period and a time to think exclude each other: give one of them")
        if self.period_s is None and (self.poisson or (self.queue and self.workload is None)):
            raise ValueError("random arrivals and a queue need a period or a rate: give one")
        listed = self.poisson or self.queue or self.chat is not None
        if listed and self.period_s is not None and (self.duration_s or 0.0) / self.period_s > MAX_ARRIVALS:
            raise ValueError(f"more than {MAX_ARRIVALS} arrivals are too many: give a longer period or a shorter duration")
        if self.charging_w > 0 and self.battery is None:
            raise ValueError("charging needs a state of charge to begin with: give the battery")
        if self.workload is not None and (self.period_s is not None or self.think_s > 0 or self.chat is not None):
            raise ValueError("a workload file says what arrives when: leave period, thinking and chat out")
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From plain values, by the names of the fields or of the options (``duration`` for ``duration_s``, ``rate`` for a period).

        Raises:
            OptionError: a name or a value that makes no sense.

        Examples:
            >>> Scenario.of({"duration": "10min", "ambient": 35, "rate": 30}).duration_s
            600.0
        """
        named = {cls.field_of(name): value for name, value in values.items() if value is not None}
        rate = named.pop("rate", None)
        if rate is not None:
            if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 1e-4 <= rate <= 1e5 or "period_s" in named:
                raise OptionError(f"rate = {rate}: it must be 0.0001 to 100000 inferences a second, without a period beside it")
            named["period_s"] = 1.0 / rate
        try:
            return cls.model_validate(named)
        except ValidationError as e:
            first = e.errors(include_url=False)[0]
            said = str(first["msg"]) if not first["loc"] else str(wrong_fields.fault(e, cls, named))
            raise OptionError(said.removeprefix("Value error, ")) from e

    @classmethod
    def field_of(cls, name: str) -> str:
        """The field that an option's name means: ``ambient_c`` for ``ambient``; the name itself where there is none."""
        return next((f for f in (name, f"{name}_s", f"{name}_c", f"{name}_w", f"{name}s") if f in cls.model_fields), name)
