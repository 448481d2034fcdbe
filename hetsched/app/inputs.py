"""Models and SoCs, by whatever the user calls them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.costs import CostTable
from hetsched.graph import Graph, Op
from hetsched.socs import SoC

if TYPE_CHECKING:
    from hetsched.passes import PassReport


def load(model: str | Path, dims: Mapping[str, int] | None = None, report: list[PassReport] | None = None) -> Graph:
    """Load a model file as a clean operator DAG: dims bound, constants folded, operators fused.

    Args:
        model: path of a model file; its format is found from its content.
        dims: values of symbolic dimensions by name (or ``<input>.<axis>``); batch dimensions default to 1.
        report: what each pass changed is appended.

    Raises:
        ModelError: the file is absent, damaged, unsupported or needs dims.
        OptionError: ``dims`` names a dimension that the model does not have.
    """
    from hetsched import frontends, passes

    return passes.standard(frontends.load(Path(model), dims), report)


def targeted(graph: Graph, chip: SoC, report: list[PassReport] | None = None) -> Graph:
    """The graph with the fusions that the compilers of ``chip`` make; on ``host`` those that the CPU kernels have.

    Args:
        graph: from :func:`load`.
        chip: the target.
        report: what was undone is appended.
    """
    from hetsched import passes
    from hetsched.passes.widen_floats import WidenFloats

    if chip.id == "host":
        wide = WidenFloats()(graph)
        graph = graph if wide is graph else passes.standard(wide, report)
    return passes.for_soc(graph, chip, _has_kernel if chip.id == "host" else None, report)


def _has_kernel(op: Op, graph: Graph) -> bool:
    from hetsched.runtime.support import RULES

    return op.type in RULES and RULES[op.type](op, graph) is None


def cost_table(graph: Graph, chip: SoC, precision: str, runtime: str) -> CostTable:
    """What every way of running ``graph`` on ``chip`` costs, on ``host`` with the kernels and runtimes of this machine."""
    from hetsched.runtime.ort_support import others_here
    from hetsched.runtime.support import supported
    from hetsched_cost_models import build_table

    return build_table(graph, chip, precision=precision, runtime=runtime, supported=supported, others=others_here())


def soc(name: str | Path) -> SoC:
    """A SoC by id (``snapdragon-8-gen-3``), by the path of a YAML file, or ``host``: this machine, measured.

    Raises:
        SoCError: no SoC has the name, or its file is malformed.
    """
    if str(name) == "host":
        from hetsched_cost_models.host import host_soc

        return host_soc()
    from hetsched.soc_files import load_soc

    return load_soc(name)
