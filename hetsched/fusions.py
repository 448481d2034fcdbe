"""Which composites the compiler of a processor makes: the field ``fusions`` of a processor in a SoC file."""

from __future__ import annotations

from typing import Annotated, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hetsched.soc_quantities import spelt

Word = Annotated[str, Field(max_length=64), spelt(r"[A-Za-z][A-Za-z0-9_.:]*", "the type of an operator, such as Gelu")]
#: A composite's type, or a composite's type with the activations that the compiler can put into it.
Entry: TypeAlias = Word | Annotated[dict[Word, tuple[Word, ...]], Field(min_length=1, max_length=1)]

_EPILOGUES = ("FusedConv", "FusedConvTranspose", "FusedMatMul", "FusedGemm")


class Fusions(BaseModel):
    """Composites that become one kernel, with where that is known from: exactly one of ``source`` and ``estimated``.

    An entry ``FusedConv`` takes every activation, ``{FusedConv: [Relu, Clip]}`` only these (and none).

    Examples:
        >>> some = Fusions(value=("Gelu", {"FusedConv": ("Relu",)}), estimated="an example")
        >>> some.fuses("Gelu"), some.fuses("FusedConv", "Relu"), some.fuses("FusedConv", "Silu"), some.fuses("Attention")
        (True, True, False, False)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: tuple[Entry, ...] = Field(max_length=256)
    source: str | None = None
    estimated: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.source is None) == (self.estimated is None):
            raise ValueError("fusions need either 'source: ...' or 'estimated: <basis>'")
        names = [next(iter(e)) if isinstance(e, dict) else e for e in self.value]
        twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
        if twice is not None:
            raise ValueError(f"the fusion {twice!r} is listed twice")
        return self

    def fuses(self, op_type: str, activation: str = "") -> bool:
        """Whether a composite of this type, with this activation at its end (``""``: none), is one kernel here."""
        for entry in self.value:
            if isinstance(entry, str):
                if entry == op_type:
                    return True
            elif op_type in entry:
                return not activation or activation in entry[op_type]
        return False


#: What a SoC file that says nothing is taken to mean.
CONSERVATIVE = Fusions(
    value=tuple({kind: ("Relu", "Clip")} for kind in _EPILOGUES),
    estimated="what every vendor's compiler does: bias, batch normalisation, ReLU and clipping at the end of a matrix product",
)
