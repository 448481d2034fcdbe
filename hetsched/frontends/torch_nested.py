"""Programs within a program: those that only switch gradients or automatic casts are put in line, all others are refused.

``torch.no_grad()`` in a module becomes an operator that runs a graph of its own. Here its nodes follow in its place, under names
with the operator's own in front, between nodes that pass the arguments in and the results out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INLINED = frozenset({"higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast"})
#: How deep programs may lie in one another.
MAX_DEPTH = 16
_NAMES = ("name", "as_name")


def renamed(value: Any, prefix: str) -> Any:
    """A part of a program's JSON with ``prefix`` before every name of a value (not of an argument or an operator)."""
    if isinstance(value, list):
        return [renamed(v, prefix) for v in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (key := next(iter(value))) in _NAMES and isinstance(value[key], str):
        return {key: prefix + value[key]}
    return {k: v if k in {"as_string", "as_expr"} else renamed(v, prefix) for k, v in value.items()}


def prefixed(table: Any, prefix: str) -> dict[str, Any]:
    """A table of values by name, with ``prefix`` before the names; empty where it is none."""
    return {prefix + str(k): v for k, v in table.items()} if isinstance(table, dict) else {}


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
