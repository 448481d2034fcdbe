"""How the work of an operator is divided among the threads of a queue.

No part depends on another one, and every element of a result is computed by the same operations in the same order however the
work is divided: results have the same bits on any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from hetsched.runtime.lower.lowering import Affine, Lowering

Array = npt.NDArray[Any]

#: Elements of plain work (sums, copies, conversions) that are worth another thread. A multiple of the blocks that kernels work in.
MANY = 8192
#: Parts for each thread of a queue, where there is enough work: a thread that comes late costs little.
_PARTS = 3
#: Pieces of work below which a part is not divided any further.
_ENOUGH = 4


def part_edges(units: int, grain: int, threads: int) -> list[int]:
    """Where parts of ``units`` begin, and the end: as many for each thread, nearly equal, the larger ones first.

    Args:
        units: how much work there is.
        grain: parts are multiples of it.
        threads: of the queue.

    Examples:
        >>> part_edges(49, 8, 2)
        [0, 32, 49]
        >>> part_edges(49, 8, 1)
        [0, 49]
    """
    pieces = -(-units // grain)
    parts = 1 if threads == 1 else min(pieces, threads * min(_PARTS, max(1, pieces // (_ENOUGH * threads))))
    return [min(-(-i * pieces // parts) * grain, units) for i in range(parts + 1)] if units else [0]


def emit_elements(
    low: Lowering, kernel: Any, operands: Sequence[Array], out: Array, options: tuple[Any, ...], shape: Array, strides: Sequence[Array],
    dtypes: tuple[Any, ...] = (),
) -> None:  # fmt: skip
    """Call ``kernel(*operands, out, *options, shape, *strides)``, divided along the first dimension.

    Args:
        low: the op.
        kernel: of element by element work.
        operands: what it reads.
        out: its result, contiguous in ``shape``.
        options: arguments between ``out`` and ``shape``.
        shape: of the result, as :func:`hetsched_kernels.broadcast.broadcast_plan` merges it.
        strides: of each operand.
        dtypes: they choose the kernel's variant.
    """
    row = math.prod(int(n) for n in shape[1:])

    def part(first: int, last: int) -> tuple[Any, ...]:
        reads = [x[first * int(s[0]) :] for x, s in zip(operands, strides, strict=True)]
        own = np.array([last - first, *shape[1:]], np.int64)
        return (*reads, out[first * row : last * row], *options, own, *strides)

    low.emit_split(kernel, int(shape[0]), -(-MANY // max(row, 1)), part, dtypes)


def emit_affine(
    low: Lowering, kernel: Any, x: Array, out: Array, a: Affine, tail: tuple[Any, ...] = (), dtypes: tuple[Any, ...] = ()
) -> None:
    """Call ``kernel(x, out, scales, zeros, outer, channels, inner, *tail)``, divided along the first dimension that is more than one."""
    dims = [a.outer, a.channels, a.inner]
    axis = next((i for i, n in enumerate(dims) if n > 1), 2)
    unit = math.prod(dims[axis + 1 :])

    def part(first: int, last: int) -> tuple[Any, ...]:
        own = [*dims[:axis], last - first, *dims[axis + 1 :]]
        scales, zeros = (a.scales[first:last], a.zeros[first:last]) if axis == 1 else (a.scales, a.zeros)
        return (x[first * unit : last * unit], out[first * unit : last * unit], scales, zeros, *own, *tail)

    low.emit_split(kernel, dims[axis], -(-MANY // max(unit, 1)), part, dtypes)


def emit_rows_of(
    low: Lowering, kernel: Any, x: Array, out: Array, rows: int, cols: int, tail: tuple[Any, ...] = (), each: int = MANY
) -> None:  # fmt: skip
    """Call ``kernel(x, out, rows, cols, *tail)`` for a few rows at a time, ``each`` elements being worth another thread."""
    low.emit_split(
        kernel, rows, -(-each // max(cols, 1)),
        lambda first, last: (x[first * cols : last * cols], out[first * cols : last * cols], last - first, cols, *tail),
    )  # fmt: skip
