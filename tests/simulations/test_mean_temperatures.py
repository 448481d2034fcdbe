"""The mean temperature of a long step, which leakage goes by, in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched_simulations.thermal import Mix, Network


@pytest.mark.parametrize("seconds", [1e-5, 0.3, 40.0, 4000.0])
def test_the_mean_is_that_of_many_small_steps(seconds: float) -> None:
    """Three nodes from 0.1 s to minutes, and a sensor with a lag."""
    joined = np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.2], [0.0, 0.2, 0.0]])
    network = Network(np.array([0.05, 5.0, 100.0]), joined, np.array([0.0, 0.0, 0.25]), 25.0, (Mix(np.array([0.0, 0.5, 0.5]), 1.0, 7.0),))
    start, power = network.with_sensors(np.array([60.0, 40.0, 30.0])), np.array([3.0, 0.1, 1.0, 0.0])
    count = 4000
    small = network.transition(seconds / count)
    rest = network.modes().rest_c
    nodes = [start]
    for _ in range(count):
        nodes.append(rest + small[0] @ (nodes[-1] - rest) + small[1] @ power)
    mean = (np.array(nodes[:-1]) + np.array(nodes[1:])).mean(axis=0) / 2
    assert network.modes().mean_c(start, nodes[-1], seconds) == pytest.approx(mean, abs=2e-3)
