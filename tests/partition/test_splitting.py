"""Splits of operators between two queues: estimates, cuts, and placements that really overlap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched.costs import CostTable, Domain, Queue
from hetsched.graph import Csr
from hetsched.partition.splitting import GRANULES, placed, proposals
from hetsched.partition.timing import Costs, figures
from hetsched.segments import schedule


def chain(names: list[str], times: list[tuple[float, float]], reads: list[list[int]], launch: float = 0.0, sync: float = 0.0) -> CostTable:
    """Ops with one output each on two queues; op ``i`` reads the outputs of ``reads[i]`` (-1: the input)."""
    n = len(names)
    inputs = [[p + 1 for p in row] for row in reads]
    preds = [[p for p in row if p >= 0] for row in reads]
    succs = [[v for v in range(n) if u in preds[v]] for u in range(n)]
    m, t = 2 * n, n + 1
    zeros = np.zeros((t, 2, 2))
    return CostTable(
        model="chain", soc="two", queues=(Queue("a", "a", "npu"), Queue("b", "b", "gpu")), domains=(Domain(0, "f16"), Domain(1, "f16")),
        host=0, input_domain=0, op_names=tuple(names), tensor_names=tuple(f"t{i}" for i in range(t)),
        alt_start=np.arange(0, m + 1, 2, dtype=np.int32), alt_queue=np.tile([0, 1], n).astype(np.int32),
        alt_domain=np.tile([0, 1], n).astype(np.int32), alt_precision=("f16",) * m, compute_s=np.array([x for row in times for x in row]),
        overhead_s=np.zeros(m), dram_bytes=np.zeros(m), weight_bytes=np.zeros(m), macs=np.zeros(m), energy_j=np.ones(m),
        op_inputs=Csr.from_rows(inputs), op_outputs=Csr.from_rows([[i + 1] for i in range(n)]), predecessors=Csr.from_rows(preds),
        successors=Csr.from_rows(succs), tensor_producer=np.arange(-1, n, dtype=np.int32), graph_outputs=np.array([n], np.int32),
        tensor_bytes=np.zeros((t, 2)), conversion_s=zeros, maintenance_s=zeros, transfer_energy_j=zeros, transfer_bytes=zeros,
        launch_s=np.full(2, launch), launch_energy_j=np.zeros(2), sync_s=sync * (1 - np.eye(2)), sync_energy_j=np.zeros((2, 2)),
        bandwidth_bytes_s=np.full(2, 1e10), refusals=((),) * n,
    )  # fmt: skip


WHOLE = ["pre", "big", "post"]
TIMES = [(1.0, 2.0), (12.0, 12.0), (1.0, 2.0)]


def split_table(cuts: tuple[int, int], count: int, **more: float) -> CostTable:
    shares = [cuts[0] / count, (cuts[1] - cuts[0]) / count, 1 - cuts[1] / count]
    times = [TIMES[0], *((12.0 * s, 12.0 * s) for s in shares), (0.0, 0.0), TIMES[2]]
    names = ["pre", "big/1of3", "big/2of3", "big/3of3", "big/join", "post"]
    return chain(names, times, [[-1], [0], [0], [0], [1, 2, 3], [4]], **more)


def test_equal_queues_get_equal_shares_and_really_overlap() -> None:
    table = chain(WHOLE, TIMES, [[-1], [0], [1]])
    (split,) = proposals(table, [0, 2, 4], {1: 64})
    assert (split.home, split.other) == (0, 1)
    assert split.cuts[1] - split.cuts[0] == 32
    assert split.saved_s == pytest.approx(6.0)
    after = split_table(split.cuts, 64)
    order, alternative = placed(table, [0, 1, 2], [0, 2, 4], after, [split], {1})
    assert figures(Costs(after), order, alternative).latency_s == pytest.approx(1 + 6 + 1)
    schedule(after, order, alternative)  # valid
    apart = placed(table, [0, 1, 2], [0, 2, 4], after, [split], set())
    assert figures(Costs(after), *apart).latency_s == pytest.approx(14)


def test_the_estimate_is_what_the_schedule_says() -> None:
    costs = {"launch": 0.1, "sync": 0.25}
    table = chain(WHOLE, TIMES, [[-1], [0], [1]], **costs)
    whole = schedule(table, [0, 1, 2], [0, 2, 4]).latency_s
    (split,) = proposals(table, [0, 2, 4], {1: 1024})
    after = split_table(split.cuts, 1024, **costs)
    shared = figures(Costs(after), *placed(table, [0, 1, 2], [0, 2, 4], after, [split], {1})).latency_s
    assert whole - shared == pytest.approx(split.saved_s, rel=1e-9)


@pytest.mark.parametrize("count", [3, 5, 16, 100, 4096])
def test_cuts_are_granular_and_inside(count: int) -> None:
    table = chain(WHOLE, [TIMES[0], (12.0, 30.0), TIMES[2]], [[-1], [0], [1]])
    granule = next(g for least, g in GRANULES if count >= least)
    for split in proposals(table, [0, 2, 4], {1: count}):
        assert 0 < split.cuts[0] < split.cuts[1] < count
        assert split.cuts[0] % granule == 0
        assert 12.0 - split.saved_s >= 12.0 * 30.0 / 42.0 - 1e-9  # no better than perfect sharing


def test_nothing_is_proposed_where_it_cannot_pay() -> None:
    assert proposals(chain(WHOLE, TIMES, [[-1], [0], [1]], launch=5.0), [0, 2, 4], {1: 64}) == []
    assert proposals(chain(WHOLE, [TIMES[0], (12.0, 1e4), TIMES[2]], [[-1], [0], [1]]), [0, 2, 4], {1: 64}) == []
    assert proposals(chain(WHOLE, TIMES, [[-1], [0], [1]]), [0, 2, 4], {1: 2}) == []
    table = chain(WHOLE, TIMES, [[-1], [0], [1]])
    one_core = replace(table, queues=(Queue("a", "a", "cpu", (0, 1)), Queue("b", "b", "cpu", (1,))))
    assert proposals(one_core, [0, 2, 4], {1: 64}) == []
