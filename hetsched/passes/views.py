"""How a tensor's elements lie in another one, through operators that only move them: axes of sizes and strides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hetsched.graph import Graph, Op
from hetsched.passes.rewriting import small_value

#: Operators that keep all elements and their order in memory.
RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
#: Operators that :meth:`View.through` follows from their first input to an output.
LAYOUT = RESHAPES | {"Transpose", "Expand", "Tile"}
SELECTIONS = frozenset({"Slice", "Gather", "Split"})

#: Steps of one axis, outermost first, as (size, stride in elements of the source).
Axis = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class View:
    """Where the elements of a tensor come from: per axis the steps through a contiguous source, and the first element's place."""

    axes: tuple[Axis, ...]
    offset: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(math.prod(size for size, _ in axis) for axis in self.axes)

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """The same elements in another shape; None where that is no view of the source.

        Examples:
            >>> View.of((2, 12)).reshaped((2, 3, 4)).axes
            (((2, 12),), ((3, 4),), ((4, 1),))
        """
        rest = list(_merged(step for axis in self.axes for step in axis))
        axes = []
        for wanted in shape:
            axis: list[tuple[int, int]] = []
            while wanted > 1:
                if not rest:
                    return None
                size, stride = rest.pop(0)
                if wanted % size == 0:
                    axis.append((size, stride))
                    wanted //= size
                elif size % wanted == 0:
                    axis.append((wanted, stride * (size // wanted)))
                    rest.insert(0, (size // wanted, stride))
                    wanted = 1
                else:
                    return None
            axes.append(tuple(axis))
        return None if rest else View(tuple(axes), self.offset)

    def transposed(self, perm: Sequence[int]) -> View:
        """The axes in another order."""
        return View(tuple(self.axes[p] for p in perm), self.offset)

    def through(self, graph: Graph, op: Op, output: int = 0) -> View | None:
        """The view that output number ``output`` of ``op`` is, if this is its first input's; None where it is none."""
        shape = graph.tensors[op.outputs[output]].shape
        if op.domain:
            return None
        if op.type in RESHAPES:
            return self.reshaped(shape)
        if op.type == "Transpose":
            return self.transposed(op.attr_ints("perm", range(len(shape))[::-1]))
        if op.type == "Expand":
            own = ((),) * (len(shape) - len(self.axes)) + self.axes
            return View(tuple(a if a or n == 1 else ((n, 0),) for a, n in zip(own, shape, strict=True)), self.offset)
        if op.type == "Tile":
            times = small_value(graph, op.inputs[1])
            steps = [] if times is None else [((int(n), 0),) if n > 1 else () for n in times.reshape(-1)]
            return View(tuple(s + a for s, a in zip(steps, self.axes, strict=True)), self.offset) if steps else None
        if op.type in SELECTIONS:
            return self._selected(graph, op, output)
        return None

    def _selected(self, graph: Graph, op: Op, output: int) -> View | None:
        found = selection(graph, op, output)
        if found is None:
            return None
        axis, start, size, keep = found
        steps = tuple(_merged(self.axes[axis]))
        if len(steps) > 1:
            return None
        stride = steps[0][1] if steps else 0
        new = ((size, stride),) if size > 1 else ()
        kept = (new,) if keep else ()
        return View((*self.axes[:axis], *kept, *self.axes[axis + 1 :]), self.offset + start * stride)

    def is_like(self, other: View) -> bool:
        """Whether both name the same elements in the same order."""
        if self.offset != other.offset or len(self.axes) != len(other.axes):
            return False
        return all(tuple(_merged(a)) == tuple(_merged(b)) for a, b in zip(self.axes, other.axes, strict=True))

    @classmethod
    def of(cls, shape: Sequence[int]) -> View:
        """A whole tensor as it lies."""
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        return cls.strided(zip(shape, strides, strict=True))

    @classmethod
    def strided(cls, axes: Iterable[tuple[int, int]], offset: int = 0) -> View:
        """One step an axis."""
        return cls(tuple(((n, s),) if n > 1 else () for n, s in axes), offset)


def _merged(steps: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Steps with neighbours that are one longer step joined, and those of size 1 left out."""
    out: list[tuple[int, int]] = []
    for size, stride in steps:
        if size == 1:
            continue
        if out and out[-1][1] == size * stride:
            out[-1] = (out[-1][0] * size, stride)
        else:
            out.append((size, stride))
    return out


def selection(graph: Graph, op: Op, output: int = 0) -> tuple[int, int, int, bool] | None:
    """What a Slice, Split or Gather takes of its first input: axis, start, size, and whether the axis stays.

    None where it takes several pieces, steps over elements, or depends on values that are not known.
    """
    shape = graph.tensors[op.inputs[0]].shape
    if op.type == "Split":
        axis = op.attr_int("axis", 0) % len(shape)
        sizes = [graph.tensors[o].shape[axis] for o in op.outputs]
        return axis, sum(sizes[:output]), sizes[output], True
    values = [small_value(graph, n) if n else None for n in op.inputs[1:]]
    if any(v is None or v.size != 1 for v in values):
        return None
    numbers = [int(v.reshape(())) for v in values if v is not None]
    if op.type == "Gather":
        axis = op.attr_int("axis", 0) % len(shape)
        rank = len(graph.tensors[op.inputs[1]].shape)
        return None if rank > 1 else (axis, numbers[0] % shape[axis], 1, rank == 1)
    if len(numbers) < 3 or (len(numbers) > 3 and numbers[3] != 1):
        return None
    axis = numbers[2] % len(shape)
    start = numbers[0] if numbers[0] >= 0 else numbers[0] + shape[axis]
    return axis, min(max(start, 0), shape[axis]), graph.tensors[op.outputs[0]].shape[axis], True
