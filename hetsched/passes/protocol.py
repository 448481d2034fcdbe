"""What a pass is: a rewriting with a name, the properties that it needs and those that hold after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hetsched.errors import OptionError
from hetsched.graph import Graph


class Pass(Protocol):
    """A rewriting of a graph into one that computes the same outputs, under the same names of inputs and outputs.

    Implementations are frozen dataclasses whose fields are their options; ``name``, ``requires`` and ``ensures`` are class
    variables. Properties are plain words (``"no-dead-code"``): an earlier pass of the sequence must ensure each that a
    later one requires.

    Examples:
        >>> from hetsched.passes.fuse_conv import FuseConv
        >>> FuseConv().name, FuseConv().ensures
        ('fuse-conv', ('conv-fused',))
    """

    @property
    def name(self) -> str:
        """Unique, lower case with hyphens; reports show it."""
        ...

    @property
    def requires(self) -> tuple[str, ...]:
        """Properties that earlier passes must have ensured."""
        ...

    @property
    def ensures(self) -> tuple[str, ...]:
        """Properties that hold of the result."""
        ...

    def __call__(self, graph: Graph) -> Graph:
        """The rewritten graph."""
        ...


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass changed: operators before and after, and how many of which type it made or rewrote.

    ``source`` is the graph that the pass was given. Graphs never change and share their tensors, so keeping it costs
    little; going on from it undoes the pass, and all that came later.
    """

    name: str
    before: int
    after: int
    made: Mapping[str, int]
    source: Graph | None = field(default=None, repr=False, compare=False)

    @property
    def changed(self) -> bool:
        """Whether the pass did anything."""
        return bool(self.made) or self.before != self.after


def check_order(passes: Sequence[Pass]) -> None:
    """Check that each pass finds the properties that it requires.

    Raises:
        OptionError: a pass comes before all those that ensure what it requires.

    Examples:
        >>> from hetsched.passes.fuse_conv import FuseConv
        >>> check_order([FuseConv()])
        Traceback (most recent call last):
        ...
        hetsched.errors.OptionError: the pass 'fuse-conv' requires 'functions-named', which no pass before it ensures: move it later
    """
    have: set[str] = set()
    for p in passes:
        missing = [r for r in p.requires if r not in have]
        if missing:
            raise OptionError(f"the pass {p.name!r} requires {missing[0]!r}, which no pass before it ensures: move it later")
        have.update(p.ensures)


def run_passes(graph: Graph, passes: Sequence[Pass], report: list[PassReport] | None = None) -> Graph:
    """Apply ``passes`` in turn; what each changed is appended to ``report``."""
    for rewrite in passes:
        before, graph = graph, rewrite(graph)
        if report is not None:
            report.append(pass_report(rewrite.name, before, graph))
    return graph


def pass_report(name: str, before: Graph, after: Graph) -> PassReport:
    """How ``after`` differs from ``before``; an operator counts as made if no operator was the same in name, type and tensors."""
    known = {(op.name, op.type, op.inputs, op.outputs) for op in before.ops}
    made = Counter(op.type for op in after.ops if (op.name, op.type, op.inputs, op.outputs) not in known)
    return PassReport(name, len(before.ops), len(after.ops), dict(sorted(made.items())), before)
