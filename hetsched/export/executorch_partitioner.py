"""A partitioner for ExecuTorch that gives every node the backend that the plan names.

from partitioner import PlannedPartitioner
specs = {"XnnpackBackend": DelegationSpec("XnnpackBackend", []), ...}
program = to_edge_transform_and_lower(exported, partitioner=[PlannedPartitioner("partition_tags.json", specs)])
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from executorch.exir.backend.partitioner import Partitioner, PartitionResult


class PlannedPartitioner(Partitioner):  # type: ignore[misc]  # ExecuTorch is not installed where this is checked
    """Reads ``partition_tags.json``; ``specs`` are ``DelegationSpec`` by name of the backend. Nodes without a tag stay portable."""

    def __init__(self, path: str, specs: Mapping[str, Any]) -> None:
        held = json.loads(Path(path).read_text())
        self.tags, self.backends, self.specs = held["tags"], held["backends"], specs

    def partition(self, exported_program: Any) -> Any:
        """Put the tag of each node where ExecuTorch looks for it."""
        used = {}
        for node in exported_program.graph.nodes:
            tag = self.tags.get(node.name)
            if node.op == "call_function" and tag is not None:
                node.meta["delegation_tag"] = tag
                used[tag] = self.specs[self.backends[tag]]
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=used)
