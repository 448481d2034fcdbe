"""Where tensors live: an arena with an offset for each, and the bytes of the weights beside it.

Two tensors may share bytes only if every use of one happens before the other is first written, whatever the timing:
through queue order and fences, never through the order in which the plan happens to list them. Overlapping queues
would otherwise write over each other's data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetsched.costs import FOUR_BITS, CostTable, Queue
from hetsched.graph import Graph, Tensor
from hetsched.partition.lifetimes import Holding, Lifetime, lifetimes_of
from hetsched.partition.liveness import ALIGNMENT, Liveness, ended_before
from hetsched.partition.packing import Packed, packed
from hetsched.partition.stretches import Stretch, overwrites, stretches_of
from hetsched.plans import Buffer
from hetsched.segments import Segment


@dataclass(frozen=True)
class Layout:
    """The arena of a plan, in bytes: states first (``pool_bytes``, kept between inferences), everything else above them.

    ``bound_bytes``: no arena for the same order and placement is smaller. ``unshared_bytes``: with bytes of its own for every
    tensor and copy.
    """

    buffers: tuple[Buffer, ...]
    nbytes: int
    pool_bytes: int
    bound_bytes: int
    unshared_bytes: int


def place_buffers(graph: Graph | None, table: CostTable, segments: Sequence[Segment], alternative: Sequence[int]) -> Layout:
    """The arena of a plan.

    Args:
        graph: says what may share bytes, and the stored size where a CPU holds a tensor; None: the table's bytes, and nothing
            is written over.
        table: the cost table.
        segments: of the plan.
        alternative: of every op.
    """
    holding, after = Holding(table, segments, alternative), ended_before(segments)
    lifetimes = lifetimes_of(graph, holding)
    stretches = stretches_of(graph, holding, lifetimes)
    states, others = [x for x in stretches if x.pooled], [x for x in stretches if not x.pooled]
    pool = packed(Liveness(states, after))
    rest = packed(Liveness(others, after), overwrites(graph, holding, others, after))
    place = {**_places(states, pool, 0), **_places(others, rest, pool.nbytes)}
    return Layout(
        tuple(_buffer(x, place[x.name], len(segments)) for x in lifetimes), pool.nbytes + rest.nbytes, pool.nbytes,
        pool.bound + rest.bound, sum(-(-x.nbytes // ALIGNMENT) * ALIGNMENT for x in lifetimes),
    )  # fmt: skip


def _places(stretches: Sequence[Stretch], found: Packed, base: int) -> dict[str, int]:
    return {name: base + offset for x, offset in zip(stretches, found.offsets, strict=True) for name in x.names}


def _buffer(x: Lifetime, offset: int, segments: int) -> Buffer:
    last = max(0, segments - 1) if x.kept else max((s for s, _ in x.uses), default=x.first)
    return Buffer(tensor=x.name, offset=offset, nbytes=x.nbytes, first=x.first, last=max(last, x.first))


def weight_bytes(graph: Graph, table: CostTable, alternative: Sequence[int]) -> int:
    """Bytes of constants held: once per processor and stored width, so twice if two processors need a weight each its way."""
    return sum(held_weights(graph, table, alternative).values())


def held_bytes(graph: Graph, table: CostTable, alternative: Sequence[int]) -> dict[str, int]:
    """Processor -> bytes of the constants that it holds."""
    out: dict[str, int] = {}
    for (_, processor, _), n in held_weights(graph, table, alternative).items():
        out[processor] = out.get(processor, 0) + n
    return out


def held_weights(graph: Graph, table: CostTable, alternative: Sequence[int]) -> dict[tuple[str, str, float], int]:
    """Bytes of every constant by its name, the processor that holds it, and the width of an element there (0: as stored)."""
    held: dict[tuple[str, str, float], int] = {}
    for op, a in zip(graph.ops, alternative, strict=True):
        queue = table.queues[int(table.alt_queue[a])]
        for name in graph.constants(op):
            bits, nbytes = _held(graph.tensors[name], queue, table.alt_precision[a])
            held[name, queue.processor, bits] = nbytes
    return held


def alternative_bytes(graph: Graph, table: CostTable) -> npt.NDArray[np.float64]:
    """[m] bytes that an alternative keeps in memory: its weights, shared out among the ops that read them, and what it writes."""
    readers = Counter(name for op in graph.ops for name in set(graph.constants(op)))
    out = np.zeros(len(table.alt_queue))
    for i, op in enumerate(graph.ops):
        written = table.tensor_bytes[table.op_outputs.row(i)].sum(axis=0)
        for a in table.alternatives(i):
            queue = table.queues[int(table.alt_queue[a])]
            weights = sum(_held(graph.tensors[n], queue, table.alt_precision[a])[1] / readers[n] for n in set(graph.constants(op)))
            out[a] = weights + written[table.alt_domain[a]]
    return out


def _held(tensor: Tensor, queue: Queue, precision: str) -> tuple[float, int]:
    """Width of an element of a constant where it is held (0: as stored), and its bytes there."""
    blocks = tensor.quantization is not None and tensor.quantization.block_bytes > 0
    if (blocks and queue.kind != "npu") or (tensor.is_sparse and queue.kind == "cpu"):
        return 0, tensor.nbytes  # CPUs and GPUs read blocks, and CPUs sparse weights, as they are stored
    is_float = tensor.dtype.is_float or tensor.is_packed
    bits = _stored_bits(16 if tensor.is_packed else tensor.dtype.bits, is_float, len(tensor.shape), precision)
    return bits, math.ceil(tensor.elements * bits / 8)


def _stored_bits(bits: int, is_float: bool, rank: int, precision: str) -> float:
    """Width of a constant under a precision: float matrices as its weights, other floats as float, integers as they are."""
    if not is_float:
        return bits
    if precision.startswith("w") and rank >= 2:
        return FOUR_BITS if precision.startswith("w4") else 8
    return {"f16": 16, "f8": 8}.get(precision, min(bits, 32))
