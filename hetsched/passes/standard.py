"""The standard sequence of passes."""

from __future__ import annotations

from typing import Protocol

from hetsched.graph import Graph
from hetsched.passes.fuse_conv import FuseConv
from hetsched.passes.fuse_elementwise import FuseElementwise
from hetsched.passes.fuse_functions import FuseFunctions
from hetsched.passes.fuse_layer_norm import FuseLayerNorm
from hetsched.passes.fuse_matmul import FuseMatMul
from hetsched.passes.fuse_quantization import FuseQuantization
from hetsched.passes.fuse_softmax import FuseSoftmax


class Pass(Protocol):
    """A rewriting of a graph into one that computes the same outputs."""

    def __call__(self, graph: Graph) -> Graph:
        """The rewritten graph."""
        ...


#: In this order: written-out functions first (they become activations), integer forms after all float patterns,
#: leftover chains last.
STANDARD: tuple[Pass, ...] = (
    FuseFunctions(),
    FuseLayerNorm(),
    FuseSoftmax(),
    FuseConv(),
    FuseMatMul(),
    FuseQuantization(),
    FuseElementwise(),
)


def standard(graph: Graph) -> Graph:
    """The graph after the standard passes; :func:`hetsched.passes.unfuse` undoes them."""
    for rewrite in STANDARD:
        graph = rewrite(graph)
    return graph
