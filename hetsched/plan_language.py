"""What a plan file says of a prompt and its answer: what was asked for, and the figures of both phases together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from hetsched.acceptance import GUESSERS, MOST_GUESSES, Shares
from hetsched.soc_quantities import Strict
from hetsched.step_times import StepTimes


class LanguagePrediction(Strict):
    """Predicted figures of a prompt and its answer; intervals are 80 %. Rates are tokens per second."""

    ttft_s: float
    """Time to first token: the prefill and the choice of the token."""
    ttft_interval_s: tuple[float, float]
    prefill_rate: float
    prefill_rate_interval: tuple[float, float]
    decode_rate: float
    """Averaged over the answer, while the context grows from the prompt to its end."""
    decode_rate_interval: tuple[float, float]
    energy_per_token_j: float
    """Of the decode steps, averaged likewise."""
    kv_bytes_per_token: int
    kv_cache_bytes: int
    """Caches and other states after the last token."""
    peak_memory_bytes: int
    """Weights of both phases, each held once a processor and width, and the larger arena with its caches."""


class SpeculationPrediction(Strict):
    """Predicted figures of an answer whose tokens are guessed and checked, averaged over it."""

    tokens_per_step: float
    """Tokens that a step gives on average."""
    step_s: float
    """A step: its guesses and the check of them, as often as the shares say."""
    verify_s: float
    """The check of as many guesses as are made at most."""
    draft_s: float
    """Making so many guesses; 0 where they are looked up."""
    decode_rate: float
    decode_rate_interval: tuple[float, float]
    """80 %; how far the acceptance may be off is not in it."""
    gain: float
    """The rate over that without guesses."""
    energy_per_token_j: float


class Speculation(Strict):
    """How tokens are guessed, and how often guesses are accepted."""

    length: Annotated[int, Field(ge=1, le=MOST_GUESSES)]
    """Most tokens that are guessed at once."""
    guesser: Annotated[str, Field(pattern=GUESSERS)]
    draft: Annotated[str, Field(max_length=4096)] = ""
    """Of ``model:`` the smaller model's path, relative to the plan file where possible."""
    shares: Annotated[tuple[tuple[Annotated[float, Field(ge=0, le=1)], ...], ...], Field(min_length=2, max_length=MOST_GUESSES + 1)]
    """``shares[d][k]``: how often a step has d guesses of which k are accepted; all together 1."""
    assumed: Annotated[float, Field(ge=0, le=1)] | None = None
    """The probability that a guess is accepted, where that was assumed; None: the shares were measured."""
    rates: Annotated[tuple[float, ...], Field(max_length=MOST_GUESSES)] = ()
    """Tokens per second with 1, 2, ... guesses at once, where the best number was looked for."""
    prediction: SpeculationPrediction | None = None

    @field_validator("shares")
    @classmethod
    def _whole(cls, shares: Shares) -> Shares:
        if [len(row) for row in shares] != list(range(1, len(shares) + 1)) or abs(sum(map(sum, shares)) - 1.0) > 1e-6:
            raise ValueError("it must have a row of d + 1 shares for each number of guesses d from 0 on, all together 1")
        return shares

    @property
    def layers(self) -> int:
        """How many of the model's own first layers guess; 0: something else does."""
        return int(self.guesser.removeprefix("layers:")) if self.guesser.startswith("layers:") else 0


class Language(Strict):
    """What a language model is asked for: rebuilds the graphs of its phases, beside the model's dims."""

    prompt: Annotated[int, Field(ge=0, le=1 << 24)] = 0
    """Tokens of the prompt; 0: one phase only, planned by its dims."""
    generate: Annotated[int, Field(ge=0, le=1 << 24)] = 0
    kv: Annotated[str, Field(max_length=40)] = ""
    """Precision of keys and values, ``int8/int4:64``; empty: float16."""
    experts: tuple[tuple[float, ...], ...] = ()
    """Probability that a token uses each expert, a row a layer or one for all; empty: all alike."""
    sampling: Literal["", "greedy", "top_k", "top_p"] = ""
    prediction: LanguagePrediction | None = None
    speculation: Annotated[Speculation | None, Field(exclude_if=lambda made: made is None)] = None
    """None: no token is guessed."""
    steps: Annotated[StepTimes | None, Field(exclude_if=lambda made: made is None)] = None
    """On this machine, the times that steps are priced by; None: operators are priced one by one."""
