"""Another app beside the plan: what it takes of processors and bandwidth, its heat, on and off, in both paths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from hetsched.errors import OptionError
from hetsched_simulations import Simulation, simulate
from hetsched_simulations.background import Background

GB = 1e9


def background(text: str) -> Background:
    return Background.model_validate(text)


def test_as_text_and_as_fields() -> None:
    asked = background("cpu=0.3, gpu=20%, dram=5GB/s, on=10s, off=500ms, seed=7")
    assert asked == Background(shares={"cpu": 0.3, "gpu": 0.2}, dram=5 * GB, on=10.0, off=0.5, seed=7)
    assert Background.model_validate({"npu": 0.5, "dram": "200MB/s"}) == Background(shares={"npu": 0.5}, dram=0.2 * GB)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu=3", "less than or equal to 0.95"),
        ("cpu=much", "valid number"),
        ("cpu=0.3,on=1s", "both on=TIME and off=TIME"),
        ("seed=3", "a share of a processor"),
        ("dram=5", None),
    ],
)
def test_what_makes_no_sense(text: str, message: str | None) -> None:
    if message is None:
        assert background(text).dram == 5.0  # a bare number is bytes a second
        return
    with pytest.raises(ValidationError, match=message):
        background(text)


def run(toys: SimpleNamespace, ops: list[dict[str, Any]], queues: list[int], text: str, **options: Any) -> Simulation:
    settings = {"thermal": False, "iterations": 1, **options}
    return simulate(toys.table(ops), toys.soc(), list(range(len(ops))), toys.on(*queues), background=background(text), **settings)


def test_a_share_of_a_processor_slows_and_draws(toys: SimpleNamespace) -> None:
    """1 ms of computation on a CPU of which another app takes half: 2 ms, in which all of it works at 4 W and leaks 0.4 W."""
    for path in ("full", "multirate"):
        s = run(toys, [{"compute": 1e-3}], [0], "cpu=0.5", path=path)
        assert s.first_s == pytest.approx(2e-3)
        assert s.energy.dynamic == pytest.approx({"cpu": 8e-3, "gpu": 0.0, "npu": 0.0})
        assert s.energy.leakage["cpu"] == pytest.approx(0.8e-3)
        beside = run(toys, [{"compute": 1e-3}], [1], "cpu=0.5", path=path)
        assert beside.first_s == pytest.approx(1e-3)
        assert beside.energy.dynamic == pytest.approx({"cpu": 2e-3, "gpu": 3e-3, "npu": 0.0})


def test_bandwidth_is_shared_with_it(toys: SimpleNamespace) -> None:
    """40 MB on the NPU at 40 GB/s on a bus of 50 GB/s: beside 20 GB/s 30 are left; beside 40 each gets 25."""
    ops = [{"bytes": 40e6}]
    for asked, rate in ((5, 40), (20, 30), (40, 25)):
        s = run(toys, ops, [2], f"dram={asked}GB/s")
        assert s.first_s == pytest.approx(40e6 / (rate * GB))
        assert s.bytes_moved == pytest.approx(40e6 + asked * GB * s.first_s)


def test_on_and_off_by_seed(toys: SimpleNamespace) -> None:
    def again(seed: int, path: str) -> Simulation:
        ops = [{"compute": 4e-3}, {"compute": 3e-3, "reads": [0]}]
        text = f"cpu=0.5,gpu=0.25,on=200ms,off=100ms,seed={seed}"
        soc = toys.soc(trip_c=34.0, polling_s=0.01, scale=0.02)
        return simulate(toys.table(ops), soc, [0, 1], toys.on(0, 1), duration_s=2.0, background=background(text), path=path)

    one, same, other = again(1, "full"), again(1, "full"), again(2, "full")
    assert one.latencies_s.tolist() == same.latencies_s.tolist()
    assert one.latencies_s.tolist() != other.latencies_s.tolist()
    assert one.latencies_s.max() > 1.3 * one.latencies_s.min()
    fast = again(1, "multirate")
    assert fast.inferences == pytest.approx(one.inferences, abs=1)
    assert fast.energy.total == pytest.approx(one.energy.total, rel=0.005)


def test_what_of_the_energy_is_its_own(toys: SimpleNamespace) -> None:
    """Half of a CPU of 4 W that leaks 0.4 W for 2 ms, and 10 MB at 50 pJ a byte."""
    for path in ("full", "multirate"):
        s = run(toys, [{"compute": 1e-3}], [0], "cpu=0.5,dram=5GB/s", path=path)
        own = s.background_energy
        assert own is not None
        assert own.dynamic == pytest.approx({"cpu": 4e-3, "gpu": 0.0, "npu": 0.0})
        assert own.leakage == pytest.approx({"cpu": 0.4e-3, "gpu": 0.0, "npu": 0.0})
        assert own.dram == pytest.approx(0.5e-3)
        alone = simulate(toys.table([{"compute": 1e-3}]), toys.soc(), [0], toys.on(0), path=path, thermal=False)
        assert s.plan_j == pytest.approx(alone.plan_j) == pytest.approx(s.energy.soc - 4.9e-3)  # half of the power for twice as long
        assert s.phone()["background_energy_j"] == own.to_dict()


@pytest.mark.parametrize("governor", ["performance", "schedutil"])
def test_the_plan_and_the_other_app_make_the_whole(toys: SimpleNamespace, governor: str) -> None:
    """On and off, hot, at clocks that follow the load or not; both paths split alike."""
    ops = [{"compute": 4e-3, "bytes": 1e6}, {"compute": 3e-3, "reads": [0]}]
    parts = []
    for path in ("full", "multirate"):
        text = "cpu=0.5,gpu=0.25,dram=1GB/s,on=200ms,off=100ms,seed=1"
        s = run(toys, ops, [0, 1], text, iterations=150, path=path, governor=governor, thermal=True, initial_c=40.0)
        own = s.background_energy
        assert own is not None and 0 < own.soc < s.energy.soc
        mine = {k: v - own.to_dict()[k] for k, v in s.energy_j.items() if k in own.to_dict()}
        assert min(v for k, v in mine.items() if k != "base") > -1e-12
        assert sum(mine.values()) - s.energy.base == pytest.approx(s.plan_j, rel=1e-9)
        parts.append((own.soc, s.plan_j))
    assert parts[1] == pytest.approx(parts[0], rel=0.05 if governor == "schedutil" else 0.005)


def test_nobody_beside_the_plan(toys: SimpleNamespace) -> None:
    s = simulate(toys.table([{"compute": 1e-3}]), toys.soc(), [0], toys.on(0))
    assert s.background_energy is None
    assert s.phone()["background_energy_j"] is None
    assert s.plan_j == s.energy.soc


def test_a_processor_that_is_not_there(toys: SimpleNamespace) -> None:
    with pytest.raises(OptionError, match="the background load names 'dsp', which test-soc does not have: use cpu, gpu, npu"):
        run(toys, [{}], [0], "dsp=0.2")
