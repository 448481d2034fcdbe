"""Where chat templates run: Jinja's sandbox, with limits for the work that a template may do and what it may hold.

Imported where jinja2 is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from hetsched.errors import ModelError

#: Calls and turns of loops that a template may take, and characters, items or digits that a value in it may have.
MAX_STEPS, MAX_HELD = 1_000_000, 1 << 24


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """An environment for one rendering."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        self.steps = 0
        self.filters |= {"counted": self._counted, "held": _held}

    def call(self, context: Context, called: Any, *args: Any, **named: Any) -> Any:
        """Call something from a template."""
        self._step()
        return super().call(context, called, *args, **named)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Multiply, or raise to a power."""
        sizes = [v.bit_length() if isinstance(v, int) else len(v) if hasattr(v, "__len__") else 1 for v in (left, right)]
        texts = [n for v, n in zip((left, right), sizes, strict=True) if hasattr(v, "__len__")]
        numbers = [v for v in (left, right) if isinstance(v, int)]
        if operator == "**":
            most = sizes[0] * right if isinstance(left, int) and isinstance(right, int) else 0
        else:
            most = texts[0] * numbers[0] if texts and numbers else sum(sizes)
        _limit(most)
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """The template with a count of every loop's turns, and a look at whatever it puts together."""
        tree = super()._parse(source, name, filename)
        watched: nodes.Template = _Watching().visit(tree)
        return watched

    @pass_context
    def _counted(self, _: Context, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._step()
            yield item

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise ModelError(f"the chat template takes more than {MAX_STEPS} steps: it is damaged, give --raw")


class _Watching(NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 (jinja2 asks for it by the node's name)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "counted")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        return _filtered(self.generic_visit(node), "held")

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802
        return _filtered(self.generic_visit(node), "held")


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@pass_context
def _held(_: Context, value: Any) -> Any:
    _limit(len(value) if hasattr(value, "__len__") else 0)
    return value


def _limit(size: int) -> None:
    if size > MAX_HELD:
        raise ModelError(f"the chat template makes a value of more than {MAX_HELD} characters or items: it is damaged, give --raw")
