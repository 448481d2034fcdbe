"""Convolution with what follows: a bias per channel, batch normalisation, an activation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hetsched.graph import AttrValue, Graph, Op, Tensor
from hetsched.passes.activations import ACTIVATIONS, following
from hetsched.passes.rewriting import Fusion, apply, fused, inline, is_float, is_free, other_input, sole_reader, vector

_KINDS = {"Conv": "FusedConv", "ConvTranspose": "FusedConvTranspose"}


@dataclass(slots=True)
class _Chain:
    """A convolution and what has been joined to it so far."""

    members: list[int]
    bias: str
    norm: tuple[str, ...] = ()
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class FuseConv:
    """Conv or ConvTranspose → FusedConv or FusedConvTranspose.

    ``batch_norm`` joins a following BatchNormalization; a Mul and Add with constants per channel count as one with
    mean 0 and variance 1. ``activations`` are the kinds of activation that are joined.
    """

    batch_norm: bool = True
    activations: tuple[str, ...] = ACTIVATIONS

    name: ClassVar[str] = "fuse-conv"
    requires: ClassVar[tuple[str, ...]] = ("functions-named",)
    ensures: ClassVar[tuple[str, ...]] = ("conv-fused",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with convolutions fused."""
        found = (self._fusion(graph, i) for i, op in enumerate(graph.ops) if op.type in _KINDS and not op.body and not op.domain)
        return apply(graph, [f for f in found if f is not None])

    def _fusion(self, graph: Graph, i: int) -> Fusion | None:
        conv = graph.ops[i]
        if not is_float(graph, conv.outputs[0]):
            return None
        chain = _Chain([i], conv.inputs[2] if len(conv.inputs) > 2 else "")
        chain.attrs = {**conv.attrs, "batch_norm": 0, "activation": "", "activation_alpha": 0.0, "activation_beta": 0.0}
        _join_bias(graph, chain)
        if self.batch_norm and not _join_norm(graph, chain):
            _join_affine(graph, chain)
        after = following(graph, _end(graph, chain), self.activations)
        if after is not None:
            chain.members.append(after[0])
            chain.attrs.update(after[1].attrs)
        if len(chain.members) == 1:
            return None
        ops = [graph.ops[m] for m in chain.members]
        op = fused(ops, _KINDS[conv.type], (*conv.inputs[:2], chain.bias, *chain.norm), chain.attrs)
        return Fusion(tuple(chain.members), op, chain.tensors)


def _end(graph: Graph, chain: _Chain) -> str:
    return graph.ops[chain.members[-1]].outputs[0]


def _next(graph: Graph, chain: _Chain, kind: str) -> tuple[int, Op] | None:
    i = sole_reader(graph, _end(graph, chain))
    return None if i is None or graph.ops[i].type != kind or graph.ops[i].body else (i, graph.ops[i])


def _constant_operand(graph: Graph, chain: _Chain, kind: str, called: str) -> tuple[int, Tensor] | None:
    """A following ``kind`` whose other operand is a constant per channel."""
    found = _next(graph, chain, kind)
    if found is None:
        return None
    i, op = found
    end = _end(graph, chain)
    name, shape = other_input(op, end), graph.tensors[end].shape
    if name is None or graph.tensors[op.outputs[0]].shape != shape:
        return None
    value = vector(graph, name, 1, shape, called)
    return None if value is None or not is_free(graph, value) else (i, value)


def _join_bias(graph: Graph, chain: _Chain) -> None:
    if chain.bias:
        return
    found = _constant_operand(graph, chain, "Add", f"{graph.ops[chain.members[0]].name}/bias")
    if found is not None:
        chain.members.append(found[0])
        chain.bias = found[1].name
        chain.tensors[chain.bias] = found[1]


def _join_norm(graph: Graph, chain: _Chain) -> bool:
    found = _next(graph, chain, "BatchNormalization")
    if found is None or found[1].inputs[0] != _end(graph, chain):
        return False
    i, op = found
    if not all(graph.tensors[n].is_constant for n in op.inputs[1:5]):
        return False
    chain.members.append(i)
    chain.norm = op.inputs[1:5]
    chain.attrs.update(batch_norm=1, epsilon=op.attr_float("epsilon", 1e-5))
    return True


def _join_affine(graph: Graph, chain: _Chain) -> None:
    """``x * scale + shift`` with constants per channel, as batch normalisation with mean 0 and variance 1."""
    name = graph.ops[chain.members[0]].name
    scale = _constant_operand(graph, chain, "Mul", f"{name}/scale")
    if scale is None:
        return
    channels, dtype = scale[1].elements, scale[1].dtype.numpy
    zero, one = (inline(f"{name}/{k}", np.full(channels, v, dtype)) for k, v in (("mean", 0), ("variance", 1)))
    if not (is_free(graph, zero) and is_free(graph, one)):
        return
    chain.members.append(scale[0])
    shift = _constant_operand(graph, chain, "Add", f"{name}/shift")
    if shift is not None:
        chain.members.append(shift[0])
    norm = (scale[1], zero if shift is None else shift[1], zero, one)
    chain.tensors.update((t.name, t) for t in norm)
    chain.norm = tuple(t.name for t in norm)
    chain.attrs.update(batch_norm=1, epsilon=0.0)
