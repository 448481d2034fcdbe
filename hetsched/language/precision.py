"""How activations meet the weights of products, and which weights are too sensitive for eight bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hetsched.errors import OptionError

_FEW_BITS = "w4a8"
PRECISIONS = (_FEW_BITS, "w4a16")
#: What other names that ``--precision`` takes mean where text is generated.
MEANT = {"auto": "w4a16", "float": "w4a16", "w8a16": "w4a16", "w8a8-dynamic": _FEW_BITS}
#: Bits that weights which a file stores as plain floats get, where a precision that names some is asked for.
WEIGHT_BITS = {"w8a16": 8, "w8a8-dynamic": 8, "w4a16": 4, "w4a8": 4}
_DOWN = ("*ffn_down*", "*down_proj*")
#: So many layers at each end have outliers in what their down projections read; what the head rounds nothing evens out any more
#: (measured: docs/language_models.md).
_ENDS = 2


@dataclass(frozen=True, slots=True)
class Precision:
    """Bits of the activations that meet weights in blocks.

    Attributes:
        name: ``w4a8`` (int8 in groups) or ``w4a16`` (two int8: codes, and codes of what those leave over).
        protected: patterns of weight names that meet 16 bits at ``w4a8``, too.
    """

    name: str
    protected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name not in PRECISIONS:
            raise OptionError(f"the precision {self.name!r} is not one that text is generated with: use {' or '.join(PRECISIONS)}")

    def of(self, weight: str) -> str:
        """``int8`` or ``int16``.

        Examples:
            >>> Precision("w4a8", ("*down*",)).of("blk.0.ffn_down.weight"), Precision("w4a8", ()).of("blk.0.ffn_down.weight")
            ('int16', 'int8')
        """
        return "int16" if self.name == "w4a16" or any(fnmatchcase(weight, p) for p in self.protected) else "int8"


def precision_of(name: str, weights: Sequence[str], protect: Sequence[str] | None) -> Precision:
    """A precision for a model.

    Args:
        name: ``w4a8`` or ``w4a16``.
        weights: names of the weights of its products, in the order of its layers.
        protect: patterns of those that meet 16 bits at ``w4a8``, too; None: the sensitive ones.

    Raises:
        OptionError: there is no such precision, or a pattern that no weight has.
    """
    if protect is None:
        downs = [w for w in weights if any(fnmatchcase(w, p) for p in _DOWN)]
        return Precision(name, tuple(dict.fromkeys((*downs[:_ENDS], *downs[-_ENDS:], *weights[-1:]))) if name == _FEW_BITS else ())
    unused = next((p for p in protect if not any(fnmatchcase(w, p) for w in weights)), None)
    if unused is not None:
        raise OptionError(f"the protected weights {unused!r} are none of the model's: give a name, or a pattern such as '*down*'")
    return Precision(name, tuple(protect) if name == _FEW_BITS else ())
