"""What a decoder language model is made of, whichever file describes it.

GGUF metadata and a Hugging Face ``config.json`` both map to an :class:`Architecture`; the graph is built from that alone
and from the weights' descriptions, so that one model gives one graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.errors import ModelError

#: Most elements of a head, and most experts in all layers; beyond that a small file would cost much memory.
MAX_HEAD_DIM = 1 << 14
MAX_EXPERTS = 1 << 16


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding.

    Attributes:
        theta: base of the frequencies.
        dim: rotated elements of each head.
        interleaved: pairs are neighbours (GGUF's ``llama`` order) rather than halves of a head.
        scaling: ``""``, ``linear``, ``llama3``, ``yarn`` or ``longrope``.
        factor: how much longer the context is than the original one.
        low, high: ``low_freq_factor`` and ``high_freq_factor`` (llama3), ``beta_slow`` and ``beta_fast`` (yarn).
        original: context length that the model was first trained for.
        short_factors, long_factors: a divisor per frequency (longrope).
        magnitude: factor on cosines and sines; 0 lets the scaling decide.
    """

    theta: float
    dim: int
    interleaved: bool = False
    scaling: str = ""
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    magnitude: float = 0.0


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture of experts: ``count`` feed-forward nets of width ``ffn``, of which each token uses ``per_token``."""

    count: int
    per_token: int
    ffn: int
    normalised: bool = True


@dataclass(frozen=True, slots=True)
class StateSpace:
    """A selective state space (Mamba) layer: inner width, state size, width of the convolution, rank of the step size."""

    inner: int
    state: int
    kernel: int
    rank: int
    logarithmic: bool = False  # whether A is stored as log(-A)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder language model. Sizes are in elements; ``windows`` has a sliding window per layer (0: full attention).

    ``family`` is one of llama, mistral, mixtral, qwen2, qwen3, qwen3moe, gemma, gemma2, gemma3, phi2, phi3, mamba.
    ``attention_scale`` multiplies query-key products; the caps are ``c`` of ``c tanh(x / c)``, 0 for none.
    ``has_…`` say which optional weights to expect where no file lists them. ``layer_norm``: norms subtract the mean and have a bias;
    ``parallel``: attention and feed-forward block read the same norm; ``gated``: the feed-forward block has a gate.
    """

    family: str
    layers: int
    hidden: int
    vocab: int
    context: int
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    ffn: int = 0
    norm_epsilon: float = 1e-5
    norm_offset: float = 0.0
    activation: str = "silu"
    tied: bool = False
    rope: Rope | None = None
    local_rope: Rope | None = None
    windows: tuple[int, ...] = ()
    attention_scale: float = 1.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    embedding_scale: float = 1.0
    experts: Experts | None = None
    state_space: StateSpace | None = None
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False
    has_head_norms: bool = False
    has_post_norms: bool = False
    has_head_bias: bool = False
    fused_projections: bool = False
    layer_norm: bool = False
    parallel: bool = False
    gated: bool = True

    def __post_init__(self) -> None:
        if self.state_space is not None:
            return
        if self.head_dim > MAX_HEAD_DIM:
            raise ModelError(f"heads of {self.head_dim} elements are more than {MAX_HEAD_DIM}: the description of the model is damaged")
        if not self.kv_heads or self.heads % self.kv_heads:
            raise ModelError(f"{self.heads} query heads cannot share {self.kv_heads} key heads: the description of the model is damaged")
        if self.rope is not None and (self.rope.dim > self.head_dim or self.rope.dim % 2):
            raise ModelError(
                f"{self.rope.dim} rotated elements do not fit heads of {self.head_dim}: the description of the model is damaged"
            )
        if self.experts is not None and self.experts.count * self.layers > MAX_EXPERTS:
            raise ModelError(
                f"{self.experts.count} experts in {self.layers} layers are more than {MAX_EXPERTS}: the description is damaged"
            )
        if self.experts is not None and self.experts.per_token > self.experts.count:
            raise ModelError(f"a token cannot use {self.experts.per_token} of {self.experts.count} experts: the description is damaged")

    def window(self, layer: int) -> int:
        """The sliding window of a layer in tokens; 0 where it sees everything."""
        return self.windows[layer] if layer < len(self.windows) else 0

    def rope_of(self, layer: int) -> Rope | None:
        """The rotary embedding of a layer (gemma3 has another one where there is a window)."""
        return self.local_rope if self.local_rope is not None and self.window(layer) else self.rope

    def kv_bytes_per_token(self, bits: int = 16) -> int:
        """Bytes that one more token adds to the KV cache: ``2 · layers · kv_heads · head_dim · bits / 8``."""
        return 0 if self.state_space is not None else 2 * self.layers * self.kv_heads * self.head_dim * bits // 8
