"""The graph that text is generated with: a decode step of one token, of all layers or of the first ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import Graph, Role


def first_layers(graph: Graph, layers: int) -> Graph:
    """The decode step of a model's first layers; 0: of all.

    Raises:
        OptionError: there are not so many.
    """
    if not layers:
        return graph
    from hetsched.passes.early_layers import EarlyLayers

    return EarlyLayers(layers)(graph)


def decode_graph(
    path: Path, context: int, updates: Sequence[str | Path] = (), bits: int = 0, protect: Sequence[str] | None = None
) -> Graph:  # fmt: skip
    """The decode step of a model file, with as much cached as a context limit allows.

    Args:
        path: a model file or folder.
        context: most tokens of a sequence.
        updates: updates of its weights, one after another.
        bits: matrices that are stored as plain floats become integers of 8 or 4 bits in groups; 0: they stay.
        protect: patterns of those that get 8 bits in either case; None: the sensitive ones.

    Raises:
        UnsupportedModelError: it is no decoder.
        ModelError: it has no weights, or an update does not belong to it.
        OptionError: there are no weights of so many bits.
    """
    graph = load(path, {"tokens": 1, "past": max(context - 1, 0), "logits": 1})
    if "input_ids" not in graph.inputs or not any(graph.tensors[n].role is Role.STATE for n in graph.inputs):
        raise UnsupportedModelError(f"{path.name} is no decoder with an embedding and caches: text cannot be generated with it")
    absent = next((t for t in graph.tensors.values() if t.data is not None and not t.data.is_present), None)
    if absent is not None:
        raise ModelError(f"the weights of {path.name} are absent (the first is {absent.name!r}): it can be planned but not run")
    if updates:
        from hetsched.language.update_file import read_update, updated

        graph = updated(graph, path, [read_update(u) for u in updates])
    if bits:
        from hetsched.language.quantizing import quantized

        graph = quantized(graph, bits, protect)
    return graph


def weight_paths(graph: Graph) -> list[Path]:
    """The files that its weights lie in."""
    return sorted({t.data.path for t in graph.tensors.values() if t.data is not None and t.data.path is not None})


def weights_identity(graph: Graph) -> str:
    """What tells the weights of a graph from others that have the same header: when their files were written."""
    changed = sum(p.stat().st_mtime_ns * (n + 1) for n, p in enumerate(weight_paths(graph)))
    return f"{graph.sha256[:24]}{changed & 0xFFFFFFFF:08x}"
