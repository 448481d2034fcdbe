"""Only the fusions that a target's compilers are known to make: composites that no processor has become their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hetsched.graph import Graph, Op
from hetsched.passes.activations import ACTIVATIONS
from hetsched.passes.fuse_conv import FuseConv
from hetsched.passes.fuse_dynamic_quantization import FuseDynamicQuantization
from hetsched.passes.fuse_elementwise import FuseElementwise
from hetsched.passes.fuse_functions import FuseFunctions
from hetsched.passes.fuse_matmul import FuseMatMul
from hetsched.passes.fuse_quantization import FuseQuantization
from hetsched.passes.protocol import Pass, PassReport, pass_report, run_passes
from hetsched.passes.undo import undo_where

if TYPE_CHECKING:
    from hetsched.socs import SoC


def for_soc(graph: Graph, soc: SoC, kernels: Callable[[Op, Graph], bool] | None = None, report: list[PassReport] | None = None) -> Graph:
    """The graph as the compilers of ``soc`` see it.

    A composite that no processor fuses (``fusions`` in the SoC file) is undone one level, and so are the composites among
    its parts. What was undone is then fused again as far as it may be: a convolution whose activation no compiler takes
    keeps its bias and normalisation. Where some processors fuse a composite and others do not, it stays; the others pay
    for its parts.

    Args:
        graph: after :func:`hetsched.passes.standard`.
        soc: the target.
        kernels: for a target that runs this project's own kernels: whether there is one for a composite. It decides
            alone.
        report: what was undone is appended.
    """
    out = _undone(graph, soc, kernels)
    if out is not graph:
        out = _undone(run_passes(out, _again(soc, everything=kernels is not None)), soc, kernels)
    if report is not None:
        report.append(pass_report(f"for-{soc.id}", graph, out))
    return out


def fuses(soc: SoC, op: Op) -> bool:
    """Whether some processor of ``soc`` runs the composite ``op`` as one kernel."""
    activation = op.attr_str("activation", "") if op.type.startswith("Fused") else ""
    return any(p.fusions.fuses(op.type, activation) for p in soc.processors)


def _undone(graph: Graph, soc: SoC, kernels: Callable[[Op, Graph], bool] | None) -> Graph:
    return undo_where(graph, lambda op: not (fuses(soc, op) if kernels is None else kernels(op, graph)))


def _again(soc: SoC, *, everything: bool) -> tuple[Pass, ...]:
    """The passes that make what may stay."""

    def some(kind: str, activation: str = "") -> bool:
        return everything or any(p.fusions.fuses(kind, activation) for p in soc.processors)

    conv, product = (tuple(a for a in ACTIVATIONS if some(kind, a)) for kind in ("FusedConv", "FusedMatMul"))
    found: tuple[tuple[bool, Pass], ...] = (
        (True, FuseFunctions()),
        (some("FusedMatMul"), FuseDynamicQuantization(activations=product)),
        (some("FusedConv"), FuseConv(activations=conv)),
        (some("FusedMatMul"), FuseMatMul(activations=product)),
        (True, FuseQuantization()),
        (some("FusedElementwise"), FuseElementwise()),
    )
    return tuple(p for wanted, p in found if wanted)
