"""The key-value caches of an ONNX decoder: which inputs and outputs they are, and which dims make a phase.

Exporters differ in names (``past_key_values.0.key`` and ``present.0.key``, ``past.0.key`` and ``cat_3``, ``k_cache_0_in`` and
``k_cache_0_out``), so a pair is found by name, or by the ``Concat`` that appends to a past what it makes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hetsched.errors import OptionError
from hetsched.graph import Op, Role, Tensor

if TYPE_CHECKING:
    import onnx

_PAST = re.compile(r"(?:^|[._/])past|cache|state", re.IGNORECASE)
#: How exporters call the tokens, best first.
_TOKENS = ("input_ids", "decoder_input_ids", "tokens", "inputs_embeds", "input")
#: The input slot of the keys' cache; that of the values is the next.
_PAST_SLOT = {"Attention": 4, "GroupQueryAttention": 3}
_TERM = re.compile(r"\s*\+\s*")


def is_past(name: str) -> bool:
    """Whether an input is called like a cache or a state."""
    return _PAST.search(name) is not None


def state_pairs(tensors: Mapping[str, Tensor], ops: Sequence[Op], inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """Output -> input of every cache: called alike, or made by a Concat of the past and the new tokens.

    The shapes fit: the same rank and type, and equal sizes but for one axis, along which the output is no shorter.
    """
    by_name = {_stem(n): n for n in inputs if is_past(n)}
    producer = {o: op for op in ops for o in op.outputs if o}
    out: dict[str, str] = {}
    for name in outputs:
        past = by_name.get(_stem(name)) or _appended(producer.get(name), inputs) or _attended(producer.get(name), name, inputs)
        if past is not None and past not in out.values() and _fits(tensors[past], tensors[name]):
            out[name] = past
    return out


def with_state_roles(tensors: Mapping[str, Tensor], states: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors with the role *state* for every past and present."""
    names = {*states.keys(), *states.values()}
    return {n: replace(t, role=Role.STATE) if n in names else t for n, t in tensors.items()}


def _stem(name: str) -> str:
    """A cache's name without what tells past from present."""
    name = re.sub(r"past_key_values|present_key_values|past|present", "", name, flags=re.IGNORECASE)
    return re.sub(r"[._/](?:in|out|next|new)$", "", name).strip("._/")


def _attended(op: Op | None, name: str, inputs: Sequence[str]) -> str | None:
    """The cache that an attention continues as its output ``name``."""
    if op is None or op.type not in _PAST_SLOT or name == op.outputs[0]:
        return None
    slot = _PAST_SLOT[op.type] + op.outputs.index(name) - 1
    return op.inputs[slot] if slot < len(op.inputs) and op.inputs[slot] in inputs else None


def _appended(op: Op | None, inputs: Sequence[str]) -> str | None:
    if op is None or op.type != "Concat" or not op.inputs or op.inputs[0] not in inputs:
        return None
    return op.inputs[0]


def _fits(past: Tensor, present: Tensor) -> bool:
    if past.dtype is not present.dtype or len(past.shape) != len(present.shape) or len(past.shape) < 2:
        return False
    longer = [b - a for a, b in zip(past.shape, present.shape, strict=True) if a != b]
    return not longer or (len(longer) == 1 and longer[0] > 0)


def phase_dims(inputs: Sequence[onnx.ValueInfoProto], tokens: int, past: int, model: str) -> dict[str, int]:
    """Values of the free dims for ``tokens`` new tokens after ``past`` cached ones.

    Raises:
        OptionError: the model has no such dims; the message says what is fixed or absent.
    """
    axes = {i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in inputs}
    first = next((n for n in _TOKENS if n in axes), None)
    caches = [n for n in axes if is_past(n) and len(axes[n]) >= 3]
    if first is None or not caches:
        absent = "input of tokens" if first is None else "input of cached keys and values"
        raise OptionError(f"the model {model!r} has no {absent}, so no prompt can be planned: plan it with --dim NAME=N instead")
    values: dict[str, int] = {}
    new = axes[first][1] if len(axes[first]) > 1 else None
    length = next((d for d in axes[caches[0]][1:] if isinstance(d, str) and d and "batch" not in d), None)
    if not isinstance(new, str) or not new or length is None:
        what = f"{new} tokens" if not isinstance(new, str) else f"caches of the shape {axes[caches[0]]}"
        raise OptionError(
            f"the shapes of the model {model!r} are fixed ({what}), so a prompt and an answer cannot both be planned from it: "
            "leave --prompt and --generate out, or export it with dynamic axes"
        )
    values[new], values[length] = tokens, past
    for tensor, row in axes.items():
        for name in (d for d in row if isinstance(d, str) and d and d not in values):
            masked = "mask" in tensor and name is row[-1]
            total = past + tokens if masked or name.startswith("total") else _evaluated(name, values)
            if total is not None:
                values[name] = total
    return values


def _evaluated(name: str, values: Mapping[str, int]) -> int | None:
    """The value of a dim that is a sum of others: ``past_sequence_length + 1``."""
    terms = [int(t) if t.isdecimal() else values.get(t) for t in _TERM.split(name.strip())]
    known = [t for t in terms if t is not None]
    return sum(known) if len(known) == len(terms) > 1 else None
