"""Normalisation and activation operators of ``com.microsoft``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hetsched.frontends.onnx_expansion import Expansion
from hetsched.graph import AttrValue


def _gelu(e: Expansion) -> None:
    e.add("Gelu", (e.input(0),), {"approximate": "none"}, e.output())


def _fast_gelu(e: Expansion) -> None:
    x = e.add("Add", (e.input(0), e.input(1))) if e.has(1) else e.input(0)
    e.add("Gelu", (x,), {"approximate": "tanh"}, e.output())


def _bias_gelu(e: Expansion) -> None:
    e.add("Gelu", (e.add("Add", (e.input(0), e.input(1))),), {"approximate": "none"}, e.output())


def _quick_gelu(e: Expansion) -> None:
    """``x · sigmoid(alpha · x)``."""
    e.trace.step(e.standard("Swish", (e.input(0),), e.op.outputs, {"alpha": e.op.attr_float("alpha", 1.702)}))


def _bias_split_gelu(e: Expansion) -> None:
    """``left · gelu(right)`` of the two halves of ``x + bias``."""
    x = e.add("Add", (e.input(0), e.input(1)))
    half = e.shape(x)[-1] // 2
    left, right = e.split(x, (half, half), -1)
    e.add("Mul", (left, e.add("Gelu", (right,), {"approximate": "none"})), {}, e.output())


def _bias_add(e: Expansion) -> None:
    e.add("Add", (e.add("Add", (e.input(0), e.input(1))), e.input(2)), {}, e.output())


def _layer_normalization(e: Expansion) -> None:
    attrs = {"axis": e.op.attr_int("axis", -1), "epsilon": e.op.attr_float("epsilon", 1e-5)}
    e.refuse_outputs(1)
    e.add("LayerNormalization", e.op.inputs, dict(attrs), e.output())


def _simplified(e: Expansion) -> None:
    e.refuse_outputs(1)
    attrs: dict[str, AttrValue] = {"axis": e.op.attr_int("axis", -1), "epsilon": e.op.attr_float("epsilon", 1e-5)}
    e.trace.step(e.standard("RMSNormalization", e.op.inputs[:2], e.op.outputs[:1], attrs))


def _skip(kind: str, normalise: str, scales: int) -> Callable[[Expansion], None]:
    """``normalise(input + skip [+ bias])``; the sum is the fourth output."""

    def rule(e: Expansion) -> None:
        if any(e.output(i) for i in (1, 2)):
            raise e.refuse("also writes its mean or variance")
        x, skip = e.input(0), e.input(1)
        if e.has(2 + scales):
            x = e.add("Add", (x, e.input(2 + scales)))
        total = e.output(3) or e.fresh("sum")
        parameters = tuple(e.optional(2 + i) for i in range(scales))
        attrs: dict[str, AttrValue] = {"epsilon": e.op.attr_float("epsilon", 1e-12), "axis": -1}

        def build() -> None:
            e.add("Add", (x, skip), {}, total)
            e.trace.step(e.standard(normalise, (total, *parameters), (e.output(),), attrs))

        outputs = (e.output(), total) if e.output(3) else (e.output(),)
        e.composite(kind, (x, skip, *parameters), outputs, attrs, build)

    return rule


def _embed(e: Expansion) -> None:
    """Word, position and segment embeddings, their sum normalised; the mask's row sums are the second output."""
    ids, tokens = e.input(0), e.shape(e.input(0))[1]
    total = e.add("Gather", (e.input(2), ids), {"axis": 0})
    if e.has(8):
        positions = e.add("Gather", (e.input(3), e.input(8)), {"axis": 0})
    else:
        positions = e.add("Slice", (e.input(3), e.indices(0), e.indices(tokens), e.indices(0)))
    total = e.add("Add", (total, positions))
    if e.has(1) and e.has(4):
        total = e.add("Add", (total, e.add("Gather", (e.input(4), e.input(1)), {"axis": 0})), {}, e.output(2))
    elif e.output(2):
        total = e.add("Identity", (total,), {}, e.output(2))
    e.add("LayerNormalization", (total, e.input(5), e.input(6)), {"epsilon": e.op.attr_float("epsilon", 1e-12)}, e.output())
    if e.output(1) and e.has(7):
        e.add("ReduceSum", (e.input(7), e.indices(1)), {"keepdims": 0}, e.output(1))
    elif e.output(1):
        e.trace.step(e.standard("Identity", (e.constant(np.zeros(e.shape(ids)[0], np.int32), "mask_index"),), (e.output(1),), {}))


NORMS: dict[str, Callable[[Expansion], None]] = {
    "Gelu": _gelu,
    "FastGelu": _fast_gelu,
    "BiasGelu": _bias_gelu,
    "QuickGelu": _quick_gelu,
    "BiasSplitGelu": _bias_split_gelu,
    "BiasAdd": _bias_add,
    "LayerNormalization": _layer_normalization,
    "SimplifiedLayerNormalization": _simplified,
    "SkipLayerNormalization": _skip("SkipLayerNorm", "LayerNormalization", 2),
    "SkipSimplifiedLayerNormalization": _skip("SkipRMSNorm", "RMSNormalization", 1),
    "EmbedLayerNormalization": _embed,
}
