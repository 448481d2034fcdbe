"""The precision of key-value caches: fewer bits for the states of attention, with their scales.

Keys and values differ: keys have outliers in some channels, values do not, so each has its own type (Liu et al., "KIVI: A
Tuning-Free Asymmetric 2bit Quantization for KV Cache", 2024, section 3). Here a key has one scale a token and head, a value
one for every ``group`` elements of a head; scales are float16 and stored with what they scale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from hetsched.errors import OptionError
from hetsched.graph import DType, Graph, Op, Quantization, Tensor
from hetsched.states import IN_PLACE, kv_bytes_per_token

_DTYPES: Mapping[str, DType] = {"fp16": DType.F16, "fp8": DType.F8E4M3, "int8": DType.I8, "int4": DType.I4}
_KEYS, _VALUES = ("fp16", "int8", "fp8"), ("fp16", "int8", "fp8", "int4")
_GROUP, _SCALE_BYTES, _MOST = 32, 2, 1 << 14
_TEXT = re.compile(r"(?P<name>[a-z0-9]+)(?::(?P<group>[0-9]{1,6}))?")


@dataclass(frozen=True, slots=True)
class KvPrecision:
    """Store the caches of every attention with ``key`` and ``value`` precision; other states stay as they are.

    Attributes:
        key: ``fp16``, ``fp8`` (E4M3, no scales) or ``int8`` (a scale a token and head).
        value: ``fp16``, ``fp8``, ``int8`` or ``int4`` (a scale for every ``group`` elements of a head).
        group: elements of a value that share a scale.

    Examples:
        >>> KvPrecision.parse("int8/int4:64")
        KvPrecision(key='int8', value='int4', group=64)
        >>> KvPrecision.parse("fp8").text
        'fp8/fp8'
    """

    key: str = "fp16"
    value: str = "fp16"
    group: int = _GROUP

    name: ClassVar[str] = "kv-precision"
    requires: ClassVar[tuple[str, ...]] = ()
    ensures: ClassVar[tuple[str, ...]] = ("kv-precision-set",)

    @classmethod
    def parse(cls, text: str) -> KvPrecision:
        """``int8`` for both, ``int8/int4`` for keys and values, ``int4:64`` with another group.

        Raises:
            OptionError: the text names no such precision.
        """
        first, slash, second = text.partition("/")
        key, value = _TEXT.fullmatch(first), _TEXT.fullmatch(second if slash else first)
        if key is not None and value is not None and key["name"] in _VALUES and key["name"] not in _KEYS:
            rest = text[len(first) + 1 :] if slash else text
            raise OptionError(f"keys cannot be {key['name']}, since some of their channels are outliers: use int8/{rest}")
        if key is None or value is None or key["name"] not in _KEYS or value["name"] not in _VALUES or (slash and key["group"]):
            raise OptionError(
                f"no precision of a key-value cache is called {text!r}: write KEYS/VALUES with keys {', '.join(_KEYS)} and values "
                f"{', '.join(_VALUES)} (int4:64 for groups of 64), or one for both"
            )
        group = int(value["group"] or _GROUP)
        if not 1 <= group <= _MOST or group % 2:
            raise OptionError(f"a group of {group} elements in {text!r} makes no sense: use an even number up to {_MOST}")
        return cls(key["name"], value["name"], group)

    @property
    def text(self) -> str:
        """What :meth:`parse` reads."""
        grouped = f":{self.group}" if self.group != _GROUP and self.value.startswith("int") else ""
        return f"{self.key}/{self.value}{grouped}"

    def __call__(self, graph: Graph) -> Graph:
        """The graph with its caches stored so; ``nbytes`` of each includes the scales.

        Raises:
            OptionError: the graph has no cache, or a head is no whole number of groups.
        """
        changed: dict[str, Tensor] = {}
        for op in graph.ops:
            if op.type in ("GroupQueryAttention", "Attention"):
                keys, values = _caches(op)
                changed |= {n: self._stored(graph.tensors[n], self.key, graph.tensors[n].shape[-1]) for n in keys}
                changed |= {n: self._stored(graph.tensors[n], self.value, self.group) for n in values}
        if not changed:
            why = "writes its caches out with other operators" if kv_bytes_per_token(graph) else "has no key-value cache"
            raise OptionError(f"the model {graph.name!r} {why}, so their precision cannot be {self.text}: leave --kv out")
        return graph.replace(tensors={n: changed.get(n, t) for n, t in graph.tensors.items()})

    def _stored(self, tensor: Tensor, name: str, group: int) -> Tensor:
        dtype = _DTYPES[name]
        if not name.startswith("int"):
            return replace(tensor, dtype=dtype, quantization=None)
        size = tensor.shape[-1]
        if size % group:
            raise OptionError(
                f"a head of {size} elements of the cache {tensor.name!r} is no whole number of groups of {group}: "
                f"choose another group (int4:{_largest_even(size)})"
            )
        block = group * dtype.bits // 8 + _SCALE_BYTES
        quantization = Quantization(granularity="group", axis=-1, group=group, scheme=f"kv:{name}", block_bytes=block)
        return replace(tensor, dtype=dtype, quantization=quantization)


def _caches(op: Op) -> tuple[list[str], list[str]]:
    """Tensors of the keys and of the values, past and present, that an attention has."""
    names = [
        [n for names, slot in ((op.inputs, past), (op.outputs, present)) if slot < len(names) and (n := names[slot])]
        for past, present in IN_PLACE[op.type]
    ]
    return names[0], names[1]


def _largest_even(size: int) -> int:
    """The largest even divisor up to the usual group."""
    return next((g for g in range(_GROUP, 1, -2) if size % g == 0), size)
