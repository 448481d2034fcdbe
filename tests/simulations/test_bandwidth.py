"""Max-min fair sharing of the DRAM."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.costs import Queue
from hetsched.errors import SoCError
from hetsched_simulations.bandwidth import Bus, max_min_fair

GB = 1e9


@pytest.mark.parametrize(
    ("demands", "groups", "caps", "total", "rates"),
    [
        ([10], [0], [10], 50, [10]),
        ([20, 40], [0, 1], [20, 40], 50, [20, 30]),  # the small demand is met, the big one takes the rest
        ([40, 40, 40], [0, 1, 2], [40, 40, 40], 60, [20, 20, 20]),
        ([10, 40, 40], [0, 1, 2], [40, 40, 40], 60, [10, 25, 25]),
        ([30, 30], [0, 0], [40], 100, [20, 20]),  # two queues of one processor share what it reaches
        ([30, 30, 50], [0, 0, 1], [40, 50], 60, [20, 20, 20]),
        ([5, 30, 50], [0, 0, 1], [20, 50], 60, [5, 15, 40]),
    ],
)
def test_hand_computed_shares(demands: list[float], groups: list[int], caps: list[float], total: float, rates: list[float]) -> None:
    assert max_min_fair(demands, groups, caps, total) == pytest.approx(rates, rel=1e-12)


@given(st.data())
def test_no_limit_is_exceeded_and_everyone_has_a_bottleneck(data: st.DataObject) -> None:
    """Max-min fairness: each flow has its demand, or a full limit within which nobody has more than it."""
    n = data.draw(st.integers(1, 6))
    figures = st.floats(0.1, 100.0)
    demands = data.draw(st.lists(figures, min_size=n, max_size=n))
    groups = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    caps = data.draw(st.lists(figures, min_size=3, max_size=3))
    total = data.draw(figures)
    rates = np.array(max_min_fair(demands, groups, caps, total))
    assert (rates <= np.array(demands) * (1 + 1e-9)).all()
    assert rates.sum() <= total * (1 + 1e-9)
    for i in range(n):
        mates = rates[np.array(groups) == groups[i]]
        assert mates.sum() <= caps[groups[i]] * (1 + 1e-9)
        has_demand = rates[i] >= demands[i] * (1 - 1e-9)
        group_full = mates.sum() >= caps[groups[i]] * (1 - 1e-6) and rates[i] >= mates.max() * (1 - 1e-6)
        bus_full = rates.sum() >= total * (1 - 1e-6) and rates[i] >= rates.max() * (1 - 1e-6)
        assert has_demand or group_full or bus_full


def test_a_measured_pair_has_its_own_limit(toys: SimpleNamespace) -> None:
    soc = toys.soc(together={"cpu+npu": 30 * GB})
    queues = tuple(Queue(k, k, k) for k in ("cpu", "gpu", "npu"))
    bus = Bus.of(soc, queues, (20 * GB, 30 * GB, 40 * GB))
    assert bus.share(((0, 20 * GB), (2, 40 * GB))) == pytest.approx((15 * GB, 15 * GB))
    assert bus.share(((0, 20 * GB), (1, 30 * GB))) == pytest.approx((20 * GB, 30 * GB))
    assert bus.share(((0, 20 * GB), (1, 30 * GB), (2, 40 * GB))) == pytest.approx((50 / 3 * GB,) * 3)
    assert bus.share(((2, 40 * GB),)) == (40 * GB,)


def test_without_contention_everyone_gets_the_demand(toys: SimpleNamespace) -> None:
    queues = tuple(Queue(k, k, k) for k in ("cpu", "gpu", "npu"))
    bus = Bus.of(toys.soc(), queues, (20 * GB, 30 * GB, 40 * GB), contention=False)
    assert bus.share(((0, 20 * GB), (1, 30 * GB), (2, 40 * GB))) == (20 * GB, 30 * GB, 40 * GB)


def test_a_queue_of_another_soc_is_refused(toys: SimpleNamespace) -> None:
    with pytest.raises(SoCError, match="queue 'dsp' of the cost table is on 'dsp'"):
        Bus.of(toys.soc(), [Queue("dsp", "dsp", "npu")], [GB])
