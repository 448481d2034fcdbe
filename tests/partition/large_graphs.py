"""Transformer-like cost tables of thousands of ops on three queues that all take every op, without a model file.

The figures are made up (estimated: orders of magnitude of a phone); what matters is the shape: runs of light ops with one
reader between matrix products, a residual around each half of a layer, heads side by side.
"""

from __future__ import annotations

import numpy as np

from hetsched.costs import CostTable, Domain, Queue
from hetsched.graph import Csr

MACS_S = (4e10, 2e11, 2e12)
"""Multiply-accumulates a second of the CPU, the GPU and the NPU."""
BYTES_S = (1.5e10, 2.5e10, 3e10)
OVERHEAD_S = (1e-6, 8e-6, 3e-6)
WATTS = (3.0, 4.0, 2.5)
HEADS = 4
LAYER = 49
"""Ops of a layer."""
TOKENS, WIDTH = 128, 512


def transformer(ops: int, precisions: int = 1, slow: float = 1.0) -> CostTable:
    """Layers of ``LAYER`` ops each, as many as make ``ops`` ops or a few less.

    ``slow`` is how many times as long the NPU takes for an op that is no matrix product: where it is large, queues take turns.
    """
    made = _Made()
    x = 0
    while len(made.rows) + LAYER <= ops:
        x = _layer(made, x)
    return made.table(precisions, slow)


class _Made:
    """Ops in topological order: tensors read, multiply-accumulates, elements written."""

    def __init__(self) -> None:
        self.rows: list[tuple[tuple[int, ...], float, float]] = []
        self.elements = [float(TOKENS * WIDTH)]

    def op(self, *reads: int, macs: float = 0.0, elements: float = TOKENS * WIDTH) -> int:
        self.rows.append((reads, macs, elements))
        self.elements.append(elements)
        return len(self.rows)

    def table(self, precisions: int, slow: float) -> CostTable:
        n, queues, d = len(self.rows), 3, 3 * precisions
        domains = [(q, k) for q in range(queues) for k in range(precisions)]
        queue, domain = np.tile([q for q, _ in domains], n), np.tile(np.arange(d), n)
        width = np.tile([2.0 / (1 + k) for _, k in domains], n)
        macs = np.repeat([m for _, m, _ in self.rows], d)
        moved = np.repeat([sum(self.elements[t] for t in reads) + e for reads, _, e in self.rows], d) * width
        compute = np.maximum(macs * width / 2 / np.array(MACS_S)[queue], moved / np.array(BYTES_S)[queue])
        compute = np.where((queue == 2) & (macs == 0), slow, 1.0) * compute
        overhead = np.array(OVERHEAD_S)[queue]
        sizes = 2.0 * np.array(self.elements)
        move = np.where(np.eye(d, dtype=bool), 0.0, 1.0)[None] * (4e-6 + sizes / 8e9)[:, None, None]
        preds = [sorted({t - 1 for t in reads if t > 0}) for reads, _, _ in self.rows]
        succs: list[list[int]] = [[] for _ in range(n)]
        for v, row in enumerate(preds):
            for u in row:
                succs[u].append(v)
        sync = np.where(np.eye(queues, dtype=bool), 0.0, 3e-5)
        return CostTable(
            model="transformer", soc="made up", queues=tuple(Queue(k, k, k) for k in ("cpu", "gpu", "npu")),
            domains=tuple(Domain(q, ("f16", "w8a8")[k]) for q, k in domains), host=0, input_domain=0,
            op_names=tuple(f"op{i}" for i in range(n)), tensor_names=tuple(f"t{i}" for i in range(n + 1)),
            alt_start=np.arange(0, n * d + 1, d, dtype=np.int32), alt_queue=queue.astype(np.int32), alt_domain=domain.astype(np.int32),
            alt_precision=tuple(("f16", "w8a8")[k] for _ in range(n) for _, k in domains), compute_s=compute, overhead_s=overhead,
            dram_bytes=np.zeros(n * d), weight_bytes=np.zeros(n * d), macs=macs, energy_j=(compute + overhead) * np.array(WATTS)[queue],
            op_inputs=Csr.from_rows([list(reads) for reads, _, _ in self.rows]), op_outputs=Csr.from_rows([[i + 1] for i in range(n)]),
            predecessors=Csr.from_rows(preds), successors=Csr.from_rows(succs), tensor_producer=np.arange(-1, n, dtype=np.int32),
            graph_outputs=np.array([n], np.int32), tensor_bytes=np.repeat(sizes[:, None], d, 1), conversion_s=move,
            maintenance_s=np.zeros_like(move), transfer_energy_j=move * 2.0, transfer_bytes=np.zeros_like(move),
            launch_s=np.array([1e-6, 4e-5, 8e-5]), launch_energy_j=np.array([1e-6, 6e-5, 8e-5]), sync_s=sync, sync_energy_j=sync,
            bandwidth_bytes_s=np.array(BYTES_S), refusals=((),) * n,
        )  # fmt: skip


def _layer(made: _Made, x: int) -> int:
    """Attention with a residual, then the feed-forward half with another one."""
    square = float(TOKENS * WIDTH * WIDTH)
    y = _normalised(made, x)
    head, scores = TOKENS * WIDTH / HEADS, float(TOKENS * TOKENS)
    parts = []
    for _ in range(HEADS):
        q, k, v = (made.op(y, macs=square / HEADS, elements=head) for _ in range(3))
        s = _chain(made, made.op(q, k, macs=head * TOKENS, elements=scores), 2, scores)
        parts.append(made.op(s, v, macs=head * TOKENS, elements=head))
    x = made.op(x, made.op(*parts, macs=square))
    y = _chain(made, made.op(_normalised(made, x), macs=4 * square, elements=4.0 * TOKENS * WIDTH), 4, 4.0 * TOKENS * WIDTH)
    return made.op(x, made.op(y, macs=4 * square))


def _chain(made: _Made, x: int, count: int, elements: float) -> int:
    for _ in range(count):
        x = made.op(x, elements=elements)
    return x


def _normalised(made: _Made, x: int) -> int:
    """Mean, difference, square, mean, root, quotient: six light ops, two of them with two readers."""
    centred = made.op(x, made.op(x, elements=TOKENS))
    return made.op(centred, _chain(made, made.op(centred), 2, float(TOKENS)))
