"""Models and SoCs, by whatever the user calls them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hetsched.graph import Graph
from hetsched.socs import SoC


def load(model: str | Path, dims: Mapping[str, int] | None = None) -> Graph:
    """Load a model file as a clean operator DAG: dims bound, constants folded, operators fused.

    Args:
        model: path of a model file; its format is found from its content.
        dims: values of symbolic dimensions by name (or ``<input>.<axis>``); batch dimensions default to 1.

    Raises:
        ModelError: the file is absent, damaged, unsupported or needs dims.
        OptionError: ``dims`` names a dimension that the model does not have.
    """
    from hetsched import frontends, passes

    return passes.standard(frontends.load(Path(model), dims))


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
