"""What a plan file says of a prompt and its answer: what was asked for, and the figures of both phases together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hetsched.soc_quantities import Strict


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
