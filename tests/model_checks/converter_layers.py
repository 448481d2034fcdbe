"""How many layers a vendor's converter reports for a graph.

Profilers count layers in the converter's terms: TFLite's converter puts bias, batch normalisation and an activation into
the operator before them and spells padding out; Qualcomm's keeps activations apart and converts floats at the edges of
the graph. The rules follow what the formats can say, never single models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hetsched.errors import OptionError
from hetsched.graph import LINEAR_QUANTIZATION, Graph, Op
from hetsched.passes.activations import activation_of
from hetsched.passes.fuse_conv import FuseConv
from hetsched.passes.fuse_functions import FuseFunctions
from hetsched.passes.fuse_layer_norm import FuseLayerNorm
from hetsched.passes.fuse_matmul import FuseMatMul
from hetsched.passes.protocol import Pass, run_passes
from hetsched.passes.rewriting import sole_reader
from hetsched.passes.undo import undo_where

Style = Literal["tflite", "qnn_dlc"]
_MEANS = frozenset({"ReduceMean", "GlobalAveragePool"})
_WINDOWS = frozenset({"Conv", "FusedConv", "MaxPool", "AveragePool"})


@dataclass(frozen=True)
class _Rules:
    """``native`` are composites that are one layer; ``apart`` says as how many an operator is written otherwise.

    ``absorbs`` are operators that take a following ReLU or ReLU6; ``padding`` is a layer of its own where it is neither
    SAME nor VALID; ``edges``: floats are converted where they enter or leave the graph.
    """

    native: frozenset[str]
    passes: tuple[Pass, ...]
    apart: Mapping[str, int] = field(default_factory=dict)
    absorbs: frozenset[str] = frozenset()
    padding: bool = False
    edges: bool = False


_RULES: dict[str, _Rules] = {
    # TFLite's schema: fused_activation_function of these operators; PADDING is SAME or VALID; no layer norm, and
    # DEPTH_TO_SPACE only in the order of depth, column, row (else reshapes and transposes in NCHW order and back).
    "tflite": _Rules(
        native=frozenset({"Gelu", "HardSwish"}),
        passes=(FuseConv(activations=()), FuseMatMul(activations=())),
        apart={"LayerNormalization": 8, "DepthToSpace/CRD": 5, "Silu": 2},
        absorbs=frozenset({"FusedConv", "Conv", "FusedMatMul", "Gemm", "FusedGemm", "Add", "Sub", "Mul", "Div", "MaxPool", "AveragePool"}),
        padding=True,
    ),
    # QNN operator definitions: activations are operators; Gelu, LayerNorm and HardSwish exist; DepthToSpace needs a transpose
    # where rows and columns come first.
    "qnn_dlc": _Rules(
        native=frozenset({"Gelu", "HardSwish", "LayerNormalization"}),
        passes=(FuseConv(activations=()),),
        apart={"DepthToSpace/CRD": 2, "Silu": 2},
        edges=True,
    ),
}  # fmt: skip


def layers(graph: Graph, style: Style) -> int:
    """Number of layers that the converter behind ``style`` reports for ``graph``.

    Args:
        graph: as loaded or after the passes.
        style: ``tflite`` (TFLite and LiteRT), or ``qnn_dlc`` (Qualcomm's converter to DLC and QNN).

    Raises:
        OptionError: unknown style.
    """
    if style not in _RULES:
        raise OptionError(f"no converter is called {style!r}: use one of {', '.join(_RULES)}")
    rules = _RULES[style]
    own = undo_where(graph, lambda op: op.type not in rules.native)
    own = run_passes(own, (FuseFunctions(), FuseLayerNorm(), *rules.passes))
    own = undo_where(own, lambda op: op.type not in rules.native and not op.type.startswith("Fused"))
    gone = _absorbed(own, rules)
    total = sum(_size(own, op, rules) for i, op in enumerate(own.ops) if i not in gone and op.type not in LINEAR_QUANTIZATION)
    edges = (*own.inputs, *own.outputs) if rules.edges else ()
    return total + sum(own.tensors[n].dtype.is_float for n in edges)


def _size(graph: Graph, op: Op, rules: _Rules) -> int:
    order = f"/{op.attr_str('mode', 'DCR')}" if op.type == "DepthToSpace" else ""
    return rules.apart.get(op.type + order, 1) + (rules.padding and _padded(graph, op))


def _absorbed(graph: Graph, rules: _Rules) -> set[int]:
    """Operators that are part of the one before: activations, means of means, and the flattening of a mean."""
    gone: set[int] = set()
    for i, op in enumerate(graph.ops):
        after = sole_reader(graph, op.outputs[0]) if op.outputs and op.outputs[0] else None
        if after is None or i in gone:
            continue
        if op.type in _MEANS and graph.ops[after].type in {*_MEANS, "Flatten", "Squeeze", "Reshape"}:
            if graph.ops[after].type in _MEANS or rules.padding:
                gone.add(after)
        elif op.type in rules.absorbs and _is_epilogue(graph, graph.ops[after]):
            gone.add(after)
    return gone


def _is_epilogue(graph: Graph, op: Op) -> bool:
    """ReLU, ReLU6 or ReLU from -1 to 1: what TFLite's ``fused_activation_function`` can be, beside TANH."""
    found = activation_of(graph, op)
    if found is None:
        return False
    return found.kind == "Relu" or (found.kind == "Clip" and (found.alpha, found.beta) in {(0.0, 6.0), (-1.0, 1.0)})


def _padded(graph: Graph, op: Op) -> bool:
    """Whether the padding of a window is neither none nor TensorFlow's SAME (all that is missing, the odd one at the end)."""
    if op.type not in _WINDOWS or op.attr_str("auto_pad", "NOTSET") not in {"NOTSET", ""}:
        return False
    shape, out = graph.tensors[op.inputs[0]].shape[2:], graph.tensors[op.outputs[0]].shape[2:]
    n = len(shape)
    pads = op.attr_ints("pads", (0,) * 2 * n)
    if not any(pads):
        return False
    kernel = op.attr_ints("kernel_shape", graph.tensors[op.inputs[1]].shape[2:] if "Conv" in op.type else (1,) * n)
    strides, dilations = op.attr_ints("strides", (1,) * n), op.attr_ints("dilations", (1,) * n)
    for d in range(n):
        needed = max(0, (-(-shape[d] // strides[d]) - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - shape[d])
        if (pads[d], pads[d + n]) != (needed // 2, needed - needed // 2) or out[d] != -(-shape[d] // strides[d]):
            return True
    return op.type == "AveragePool" and bool(op.attr_int("count_include_pad", 0))
