"""What the cost model asks of a graph whatever the SoC: counted once a graph, and kept as long as the graph lives.

A study prices one graph on hundreds of chips and settings; only prices change between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from hetsched.fusions import Fusions
from hetsched.graph import Csr, Graph
from hetsched_cost_models import control_flow
from hetsched_cost_models.alike import Alike, alike
from hetsched_cost_models.alternatives import Choosing
from hetsched_cost_models.composites import Apart, taken_apart
from hetsched_cost_models.precisions import is_quantized_model
from hetsched_cost_models.tiles import Tiles, tiles_of
from hetsched_cost_models.transfers import Activations, activations_of
from hetsched_cost_models.work import Work, work_of


@dataclass(eq=False)
class Features:
    """Of one graph. It holds no reference to the graph, which is therefore an argument where it is needed."""

    groups: Alike
    work: Work
    choosing: Choosing
    activations: Activations
    bodies: tuple[control_flow.BodyWork, ...]
    notes: tuple[str, ...]
    """On control flow."""
    structure: dict[str, Any]
    """Who reads and writes what: fields of the cost table."""
    _apart: dict[str, Apart] = field(default_factory=dict)
    _tiles: dict[str, Tiles] = field(default_factory=dict)

    def apart(self, graph: Graph, fusions: Fusions) -> Apart:
        """The work of the graph on a processor that has these ``fusions``."""
        key = str(fusions.value)
        if key not in self._apart:
            self._apart[key] = taken_apart(graph, fusions, self.work, self.groups)
        return self._apart[key]

    def tiles(self, graph: Graph, fusions: Fusions) -> Tiles:
        """The same as a tiled unit does it."""
        key = str(fusions.value)
        if key not in self._tiles:
            self._tiles[key] = tiles_of(graph, self.apart(graph, fusions), self.groups)
        return self._tiles[key]


_KNOWN: WeakKeyDictionary[Graph, Features] = WeakKeyDictionary()


def features_of(graph: Graph) -> Features:
    """The features of a graph, counted when they are first asked for."""
    if graph not in _KNOWN:
        groups = alike(graph, graph.ops)
        structure = _structure(graph)
        _KNOWN[graph] = Features(
            groups, work_of(graph, groups=groups), Choosing(groups, is_quantized_model(graph)),
            activations_of(graph, structure["tensor_names"]), control_flow.bodies(graph), control_flow.notes(graph), structure,
        )  # fmt: skip
    return _KNOWN[graph]


def _structure(graph: Graph) -> dict[str, Any]:
    names = tuple(dict.fromkeys((*graph.inputs, *(o for op in graph.ops for o in op.outputs if o))))
    index = {n: i for i, n in enumerate(names)}
    return {
        "op_names": tuple(op.name for op in graph.ops),
        "tensor_names": names,
        "op_inputs": Csr.from_rows([[index[n] for n in graph.activations(op)] for op in graph.ops]),
        "op_outputs": Csr.from_rows([[index[o] for o in op.outputs if o] for op in graph.ops]),
        "predecessors": graph.predecessors,
        "successors": graph.successors,
        "tensor_producer": np.array([graph.producer.get(n, -1) for n in names], np.int32),
        "graph_outputs": np.array([index[o] for o in graph.outputs if o in index], np.int32),
    }
