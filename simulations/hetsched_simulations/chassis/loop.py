"""A run as the simulator plays it: work of constant size on one queue, over and over, on the product's own device.

The rate follows the clocks: nothing of the work waits for memory at the top, so that it takes as long as its clocks say. It draws the
dynamic power of its clusters times ``draw``, leakage, the DRAM power of its traffic and the SoC's ``base_w``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from hetsched.cores import cores_of
from hetsched.costs import CostTable, Domain, FloatArray, Queue
from hetsched.graph import Csr
from hetsched.socs import SoC
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.chassis.runs import QUARTER, Run, first_below
from hetsched_simulations.conditions import Conditions
from hetsched_simulations.device import Device
from hetsched_simulations.engine import EventLog
from hetsched_simulations.history import History
from hetsched_simulations.multirate import MultiRate
from hetsched_simulations.workload import commands_of

WORK_S = 1.0
"""Seconds of one repetition at the top clocks."""
CASE = "case"
"""The thermal node of a phone's outside, in every shipped file."""
AVERAGED_S = 10.0
"""Rates are means over so long, about as apps report them."""


@dataclass(frozen=True, eq=False, slots=True)
class Played:
    """A simulated run: what holds from ``start_s`` ([k]) for ``seconds`` ([k])."""

    start_s: FloatArray
    seconds: FloatArray
    rate: FloatArray
    """[k] as a fraction of the rate at the top clocks"""
    power_w: FloatArray
    case_c: FloatArray

    def mean(self, values: FloatArray, from_s: float, to_s: float) -> float:
        """Mean over a time."""
        inside = np.clip(np.minimum(self.start_s + self.seconds, to_s) - np.maximum(self.start_s, from_s), 0.0, None)
        return float(inside @ values / inside.sum())

    def averaged(self) -> tuple[tuple[float, float], ...]:
        """(seconds, mean rate) of every :data:`AVERAGED_S`."""
        end = float(self.start_s[-1] + self.seconds[-1])
        starts = np.arange(0.0, end - AVERAGED_S / 2, AVERAGED_S).tolist()
        return tuple((t + AVERAGED_S / 2, self.mean(self.rate, t, t + AVERAGED_S)) for t in starts)


def play(run: Run, soc: SoC, draw: float) -> Played:
    """Play a run on a phone: first, where it rests, with pauses, then without; temperatures and governors go on."""
    table = constant_work(soc, run.queue, run.traffic_bytes_s, draw)
    device = Device(soc, table, Conditions(run.ambient_c, run.start_c))
    bus, commands = Bus.of(soc, table.queues, table.bandwidth_bytes_s.tolist(), True), commands_of(table, (0,), (0,))
    parts, begun = [], 0.0
    for seconds, period_s in ((run.rest_s, WORK_S / run.rest_share), (run.seconds - run.rest_s, None)):
        if seconds > 0:
            device.history = History()
            MultiRate(device, bus, commands, EventLog((run.queue,), 0, False), period_s, None).run(seconds, 1, None)
            parts.append(_played(device, begun))
            begun += seconds
    return parts[0] if len(parts) == 1 else _joined(parts)


def constant_work(soc: SoC, target: str, traffic_bytes_s: float, draw: float) -> CostTable:
    """One op of :data:`WORK_S` at the top clocks, on a queue of its own, that moves so many bytes a second meanwhile."""
    processor = target.partition(":")[0]
    queue = Queue(target, processor, soc.by_name[processor].kind, cores_of(target))
    none = np.zeros((1, 1, 1))
    one = np.zeros(1, np.int32)
    return CostTable(
        model="constant work", soc=soc.id, queues=(queue,), domains=(Domain(0, "f32"),), host=0, input_domain=0, op_names=("work",),
        tensor_names=("out",), alt_start=np.array([0, 1], np.int32), alt_queue=one, alt_domain=one, alt_precision=("f32",),
        compute_s=np.array([WORK_S]), overhead_s=np.zeros(1), dram_bytes=np.array([traffic_bytes_s * WORK_S]),
        weight_bytes=np.zeros(1), macs=np.zeros(1), energy_j=np.zeros(1), op_inputs=Csr.from_rows([[]]), op_outputs=Csr.from_rows([[0]]),
        predecessors=Csr.from_rows([[]]), successors=Csr.from_rows([[]]), tensor_producer=one, graph_outputs=one,
        tensor_bytes=np.zeros((1, 1)), conversion_s=none, maintenance_s=none, transfer_energy_j=none, transfer_bytes=none,
        launch_s=np.zeros(1), launch_energy_j=np.zeros(1), sync_s=np.zeros((1, 1)), sync_energy_j=np.zeros((1, 1)),
        bandwidth_bytes_s=np.array([max(traffic_bytes_s, 1.0)]), refusals=((),), effort=np.array([draw]),
    )  # fmt: skip


def first_quarter_down(played: Played) -> float | None:
    """When the mean rate first is a quarter under the top."""
    return first_below(played.averaged(), QUARTER)


def _played(device: Device, begun_s: float) -> Played:
    c = device.history.columns()
    clusters = device.clusters
    rate = c.hz / np.array([x.top.hz for x in clusters.clusters]) @ clusters.weight[0]
    power = (c.dynamic_w + c.static_w).sum(axis=1) + c.dram_w + device.power.base_w
    case = [n.name for n in device.soc.thermal.nodes].index(CASE)
    return Played(begun_s + c.start_s, c.seconds, np.asarray(rate), np.asarray(power), c.node_c[:, case])


def _joined(parts: list[Played]) -> Played:
    return Played(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Played)))
