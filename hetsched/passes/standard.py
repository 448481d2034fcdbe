"""The standard sequence of passes."""

from __future__ import annotations

from hetsched.graph import Graph
from hetsched.passes.dead_code import DropDeadCode
from hetsched.passes.fold_constants import FoldConstants
from hetsched.passes.fold_scales import FoldScales
from hetsched.passes.fuse_attention import FuseAttention
from hetsched.passes.fuse_conv import FuseConv
from hetsched.passes.fuse_dynamic_quantization import FuseDynamicQuantization
from hetsched.passes.fuse_elementwise import FuseElementwise
from hetsched.passes.fuse_functions import FuseFunctions
from hetsched.passes.fuse_gated import FuseGated
from hetsched.passes.fuse_layer_norm import FuseLayerNorm
from hetsched.passes.fuse_matmul import FuseMatMul
from hetsched.passes.fuse_merged_matmul import FuseMergedMatMul
from hetsched.passes.fuse_norms import FuseNorms
from hetsched.passes.fuse_quantization import FuseQuantization
from hetsched.passes.fuse_rotary import FuseRotary
from hetsched.passes.fuse_skip_norm import FuseSkipNorm
from hetsched.passes.fuse_softmax import FuseSoftmax
from hetsched.passes.merge_views import MergeViews
from hetsched.passes.propagate_quantization import PropagateQuantization
from hetsched.passes.protocol import Pass, PassReport, check_order, run_passes
from hetsched.passes.recognise_dynamic_quantize import RecogniseDynamicQuantize
from hetsched.passes.sink_transposes import SinkTransposes

#: What leaves fewer, or cheaper, operators of the file's own kind: they compute the same values, and are not undone.
SIMPLIFYING: tuple[Pass, ...] = (
    FoldConstants(),
    DropDeadCode(),
    SinkTransposes(),
    MergeViews(),
    FoldScales(),
    PropagateQuantization(),
)
#: Written-out functions first (they become activations), integer forms after all float patterns, leftover chains last.
FUSING: tuple[Pass, ...] = (
    RecogniseDynamicQuantize(),
    FuseFunctions(),
    FuseLayerNorm(),
    FuseNorms(),
    FuseRotary(),
    FuseGated(),
    FuseSoftmax(),
    FuseDynamicQuantization(),
    FuseConv(),
    FuseMatMul(),
    FuseAttention(),
    FuseSkipNorm(),
    FuseMergedMatMul(),
    FuseQuantization(),
    FuseElementwise(),
)

#: The whole sequence; what each pass needs and gives is checked when this module is imported.
STANDARD: tuple[Pass, ...] = (*SIMPLIFYING, *FUSING)

check_order(STANDARD)


def standard(graph: Graph, report: list[PassReport] | None = None) -> Graph:
    """The graph after the standard passes; :func:`hetsched.passes.unfuse` undoes what they fused.

    Args:
        graph: as the loader leaves it.
        report: what each pass changed is appended.
    """
    return run_passes(graph, STANDARD, report)
