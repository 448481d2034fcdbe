"""What the compiled frontier DP (:mod:`hetsched.partition.frontier_core`) is given: costs as arrays."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from hetsched.partition.timing import Costs


class Packed(NamedTuple):
    """Costs as arrays: rows of tensors per op, alternatives, and what is added up."""

    read_start: Any
    reads: Any
    write_start: Any
    writes: Any
    alt_start: Any
    queue: Any
    domain: Any
    own: Any  # [m] of each alternative
    transfer: Any  # [t, d, d]
    wanted: Any  # [t, d] whether any reader could want the tensor there
    first: Any  # [q] of opening the first segment
    switch: Any  # [q, q] of opening another
    last: Any  # [q] of the end
    imitate: Any  # [q, q]
    given: int  # code of a graph input


def packed(c: Costs, add: Any) -> Packed:
    """The arrays of costs and of what is added up (an :class:`hetsched.partition.frontier.Additive`)."""
    (read_start, reads), starts, domain = _rows(c.inputs), np.array([0, *(r.stop for r in c.alts)]), np.array(c.domain)
    runs, wanted = np.zeros((c.n, c.domains), np.bool_), np.zeros((len(c.producer), c.domains), np.bool_)
    runs[np.repeat(np.arange(c.n), np.diff(starts)), domain] = True
    read, wants = np.nonzero(np.repeat(runs, np.diff(read_start), axis=0))
    wanted[reads[read], wants] = True
    return Packed(
        read_start, reads, *_rows(c.outputs), starts, np.array(c.queue), domain,
        np.array(add.op), _matrices(add.transfer, c.domains), wanted, np.array(add.first), np.array(add.switch),
        np.array(add.last), np.array(add.imitate), c.input_domain << c.domains,
    )  # fmt: skip


def _matrices(rows: list[list[list[float]]], domains: int) -> Any:
    return np.fromiter(chain.from_iterable(chain.from_iterable(rows)), np.float64).reshape(-1, domains, domains)


def _rows(rows: list[list[int]]) -> tuple[Any, Any]:
    return np.cumsum([0, *map(len, rows)]), np.fromiter(chain.from_iterable(rows), np.int64)
