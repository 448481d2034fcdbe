"""Programs within a program: those that only switch gradients or automatic casts are put in line, all others are refused.

``torch.no_grad()`` in a module becomes an operator that runs a graph of its own. Here its nodes follow in its place, under names
with the operator's own in front, between nodes that pass the arguments in and the results out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetsched.errors import ModelError

INLINED = frozenset({"higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast"})
#: How deep programs may lie in one another.
MAX_DEPTH = 16
#: About what putting programs in line may take in memory, and so many bytes more for each byte of the file: what is deep inside is
#: copied once for each program around it.
MAX_BYTES, _BYTES_PER_BYTE = 1 << 26, 64
#: Longer names of operators are not put before those of the values inside.
_LABEL_LENGTH = 64
_CONTAINER_BYTES, _ITEM_BYTES = 64, 16
_NAMES = ("name", "as_name")


class Renaming:
    """New names for the values of programs that are put in line, and what the copies take so far; ``size`` is that of the file."""

    def __init__(self, size: int) -> None:
        self._bytes = 0
        self._most = MAX_BYTES + _BYTES_PER_BYTE * size

    def _add(self, count: int) -> None:
        self._bytes += count
        if self._bytes > self._most:
            raise ModelError(
                f"the programs within the exported program take over {self._most >> 20} MiB when they are put in line: export the model "
                "without them"
            )

    def renamed(self, value: Any, prefix: str) -> Any:
        """A part of a program's JSON with ``prefix`` before every name of a value (not of an argument or an operator).

        Raises:
            ModelError: that takes too much memory, with all that was renamed before.
        """
        if isinstance(value, list):
            self._add(_CONTAINER_BYTES + _ITEM_BYTES * len(value))
            return [self.renamed(v, prefix) for v in value]
        if not isinstance(value, dict):
            return value
        self._add(_CONTAINER_BYTES + 4 * _ITEM_BYTES * len(value))
        if len(value) == 1 and (key := next(iter(value))) in _NAMES and isinstance(value[key], str):
            return {key: self.name(value[key], prefix)}
        return {k: v if k in {"as_string", "as_expr"} else self.renamed(v, prefix) for k, v in value.items()}

    def name(self, name: str, prefix: str) -> str:
        """One name with ``prefix`` before it."""
        self._add(_CONTAINER_BYTES + len(prefix) + len(name))
        return prefix + name

    def prefixed(self, table: Any, prefix: str) -> dict[str, Any]:
        """A table of values by name, with ``prefix`` before the names; empty where it is none."""
        return {self.name(str(k), prefix): v for k, v in table.items()} if isinstance(table, dict) else {}


def label(name: object, index: int) -> str:
    """What the names inside an operator start with: its own name, or its number where it has none or a long one."""
    return f"{name}/" if isinstance(name, str) and 0 < len(name) <= _LABEL_LENGTH else f"{index}/"


def passing(source: Mapping[str, Any], target: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A node that only gives the value ``source`` the name that ``target`` says."""
    inputs = [{"name": "self", "arg": dict(source), "kind": 1}]
    return {"target": "torch.ops.aten.alias.default", "inputs": inputs, "outputs": [dict(target)], "name": name}


def nested_graph(node: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]] | None:
    """The graph that a node runs, and the node's arguments for it; None where it runs none."""
    inputs = node.get("inputs")
    args = [i.get("arg") for i in inputs if isinstance(i, dict)] if isinstance(inputs, list) else []
    for k, arg in enumerate(args):
        if isinstance(arg, dict) and isinstance(arg.get("as_graph"), dict) and isinstance(arg["as_graph"].get("graph"), dict):
            return arg["as_graph"]["graph"], [a for a in args[k + 1 :] if isinstance(a, dict)]
    return None
