"""What an inference takes of the host, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hetsched_simulations.host_time import host_time


def test_launches_caches_spins_and_sleep(toys: SimpleNamespace) -> None:
    """CPU, NPU, CPU: waits of 20 and 400 us, spun for up to 50; one launch of 0.1 ms on 2 W; 60 us of caches at each crossing."""
    table = toys.table([{"compute": 1e-3, "reads": [i - 1] if i else []} for i in range(3)], transfer=(0.0, 60e-6, 0.0), launch_s=1e-4)
    object.__setattr__(table, "host_w", 2.0)
    table.sync_s[0, 2], table.sync_s[2, 0] = 20e-6, 400e-6
    table.sync_energy_j[:] = np.minimum(table.sync_s, 50e-6) * 2.0
    table.launch_energy_j[2] = 2e-4
    took = host_time(table, [0, 1, 2], toys.on(0, 2, 0))
    assert took.launch_s == pytest.approx(1e-4)
    assert took.maintenance_s == pytest.approx(120e-6)
    assert took.spin_s == pytest.approx(70e-6)
    assert took.blocked_s == pytest.approx(350e-6)
    assert took.waits == 2
    assert took.to_dict() == pytest.approx(
        {"launch_ms": 0.1, "maintenance_ms": 0.12, "spin_ms": 0.07, "blocked_ms": 0.35, "cpu_ms": 0.29, "waits": 2}
    )
    alone = host_time(table, [0, 1, 2], toys.on(0, 0, 0))
    assert (alone.cpu_s, alone.blocked_s, alone.waits) == (0.0, 0.0, 0)
