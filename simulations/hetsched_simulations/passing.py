"""Many intervals at once, as the full path brings them: power, heat and the meters of each, with leakage at its own temperature."""

from __future__ import annotations

import numpy as np

from hetsched.costs import FloatArray
from hetsched_simulations.device import Device
from hetsched_simulations.history import Mode
from hetsched_simulations.machine import Intervals


def let_pass(device: Device, passed: Intervals) -> None:
    """Let intervals pass on a device, at its present clocks; what :meth:`Device.advance` makes of them one by one."""
    modes = _modes(device, passed)
    starts = np.concatenate([[passed.start_s], passed.end_s[:-1]])
    if device.supply is not None:
        for start, end, mode in zip(starts.tolist(), passed.end_s.tolist(), modes, strict=True):
            device.advance(start, end, mode)
        return
    seconds = passed.seconds
    node_c, static = _heated(device, modes, seconds)
    device.passed(starts, passed.end_s, modes, node_c, static)


def _modes(device: Device, passed: Intervals) -> list[Mode]:
    """What holds in each interval."""
    power, c = device.power, len(device.hz)
    active, worked = device.loaded(passed.activity, passed.effort)
    dynamic, leakage = device.dynamic_w * worked, device.leakage_25_w * active
    flow = passed.flow_bytes_s + device.other_bytes_s
    dram = flow * power.j_per_byte
    heat = np.concatenate([dynamic, dram[:, None]], axis=1) @ power.heat[:, : c + 1].T + device.base_heat_w
    if device.dma_w:
        heat += np.outer(device.copying_w(passed.busy), device.dma_heat)
    rows = zip(dynamic, active, leakage, flow.tolist(), dram.tolist(), passed.busy, heat, passed.cached_bytes_s.tolist(), strict=True)
    hz, throttled, other = device.hz, device.throttled, device.other
    return [Mode(d, a, k, f, m, b, hz, throttled, h, s, other) for d, a, k, f, m, b, h, s in rows]


def _heated(device: Device, modes: list[Mode], seconds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Temperatures at the start of each interval and after the last ([k + 1, n]), and static power in each ([k, c])."""
    power = device.power
    idle = power.idle_w * np.clip(1.0 - np.array([m.active for m in modes]), 0.0, 1.0)
    leaking = np.array([m.leakage_25_w for m in modes])
    if device.network is None:
        factor = power.leaks_more(power.sense @ device.node_c)
        return np.tile(device.node_c, (len(modes) + 1, 1)), leaking * factor + idle
    net = device.network.modes()
    rates, of_cluster = net.rates_per_s, power.heat[:, : len(device.hz)]
    decay = np.exp(-np.outer(seconds, rates))
    gain = np.where(rates > 0, (1.0 - decay) / np.where(rates > 0, rates, 1.0), seconds[:, None])
    fed = (np.array([m.heat_w for m in modes]) + idle @ of_cluster.T) @ net.into.T * gain
    leak_fed = net.into @ of_cluster
    senses, rest = power.sense @ net.out * power.per_doubling[:, None], (power.sense @ net.rest_c - 25.0) * power.per_doubling
    z = np.empty((len(modes) + 1, len(rates)))
    z[0] = net.to @ (device.node_c - net.rest_c)
    static = np.empty_like(leaking)
    with np.errstate(over="ignore", invalid="ignore"):  # a network that runs away is told of by the device
        for k in range(len(modes)):
            static[k] = leaking[k] * np.exp2(senses @ z[k] + rest)
            z[k + 1] = z[k] * decay[k] + fed[k] + gain[k] * (leak_fed @ static[k])
        node_c = net.rest_c + z @ net.out.T
    return node_c, static + idle
