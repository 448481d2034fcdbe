"""Mixtures of experts of ``com.microsoft``: planned from their weights, run by ONNX Runtime only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from hetsched.frontends.onnx_expansion import Expansion
from hetsched.graph import AttrValue, DType, Op, Quantization

#: Slots of the three weights of MoE and of QMoE (with the slots of their scales).
_FLOAT = (2, 4, 6)
_PACKED = ((2, 3), (5, 6), (8, 9))


def _mixture(e: Expansion) -> None:
    weights = [e.input(slot) for slot in _FLOAT if e.has(slot)]
    _keep(e, weights, e.op.inputs)


def _packed_mixture(e: Expansion) -> None:
    """The weights as tensors of their true element type; bytes hold two codes of 4 bits."""
    bits = e.op.attr_int("expert_weight_bits", 4)
    if bits not in {4, 8}:
        raise e.refuse(f"has weights of {bits} bits")
    weights = []
    for slot, scales in _PACKED:
        if not e.has(slot):
            continue
        stored = e.trace.tensor(e.input(slot))
        group = e.op.attr_int("block_size", 0)
        meaning = Quantization(e.input(scales), None, "group" if group else "channel", 2 if group else 0, group or None)
        weights.append(stored.name)
        if bits == 8:
            e.trace.tensors[stored.name] = replace(stored, quantization=meaning)
    _keep(e, weights, e.op.inputs)


def _keep(e: Expansion, weights: list[str], inputs: tuple[str, ...]) -> None:
    """One operator with the counts that the cost model needs: only the experts that tokens choose are read."""
    x = e.trace.tensor(e.input(0))
    rows, experts = math.prod(x.shape[:-1]), e.shape(e.input(1))[-1]
    chosen = min(max(1, e.op.attr_int("k", 1)), experts)
    active = experts * (1 - (1 - chosen / experts) ** rows)
    stored = sum(e.trace.tensor(w).nbytes for w in weights)
    macs = sum(e.trace.tensor(w).elements * (2 if _holds_two(e, w) else 1) for w in weights)
    attrs: dict[str, AttrValue] = {
        **e.op.attrs, "num_experts": experts, "experts_per_token": chosen, "active_experts": active,
        "active_weight_bytes": round(stored * active / experts), "macs_per_token": macs // experts * chosen,
    }  # fmt: skip
    e.trace.tensors[e.output()] = replace(x, name=e.output(), data=None)
    e.trace.ops.append(Op(e.op.name, e.op.type, inputs, e.op.outputs[:1], attrs, e.op.domain, e.op.origin))


def _holds_two(e: Expansion, name: str) -> bool:
    return e.op.type == "QMoE" and e.op.attr_int("expert_weight_bits", 4) == 4 and e.dtype(name) is DType.U8


EXPERTS: dict[str, Callable[[Expansion], None]] = {"MoE": _mixture, "QMoE": _packed_mixture}
