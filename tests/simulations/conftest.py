"""Small SoCs and cost tables, made by hand or drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hetsched.costs import CostTable, Domain, Queue
from hetsched.graph import Csr
from hetsched.socs import SoC

GB = 1e9


def figure(value: float) -> dict[str, Any]:
    return {"value": value, "estimated": "test"}


def cluster(
    name: str, points: Sequence[tuple[float, float]], dynamic: float, leakage: float, cores: tuple[int, ...] = ()
) -> dict[str, Any]:
    return {
        "name": name,
        "cores": cores,
        "operating_points": [{"hz": f, "v": v} for f, v in points],
        "operating_points_source": "test",
        "peak_ops_s": {"f32": figure(1e11)},
        "dynamic_w": figure(dynamic),
        "leakage_w": figure(leakage),
    }


POINTS = [(0.5e9, 0.6), (1.0e9, 0.7), (1.5e9, 0.8), (2.0e9, 1.0)]


def make_soc(
    bandwidths: Sequence[float] = (20 * GB, 30 * GB, 40 * GB),
    reachable: float = 50 * GB,
    together: dict[str, float] | None = None,
    trip_c: float = 60.0,
    polling_s: float = 0.1,
    scale: float = 1.0,
    skin: bool = False,
) -> SoC:
    """A CPU, a GPU and an NPU over a package and a case; ``scale`` multiplies the heat capacities of package and case.

    Each processor has a trip of its own, or, with ``skin``, the package has one that cools them all."""
    names = ("cpu", "gpu", "npu")
    processors = [
        {
            "name": n,
            "kind": n,
            "model": n,
            "clusters": [cluster(n, POINTS, w, 0.1 * w, tuple(range(4)) if n == "cpu" else ())],
            "bandwidth_bytes_s": figure(b),
            "onchip_bytes": figure(0),
            "launch_s": figure(0),
            "op_overhead_s": figure(0),
        }
        for n, b, w in zip(names, bandwidths, (4.0, 3.0, 2.0), strict=True)
    ]
    nodes = [{"name": n, "capacity_j_per_k": figure(0.05), "processors": [n]} for n in names]
    nodes += [{"name": "package", "capacity_j_per_k": figure(5.0 * scale)}, {"name": "case", "capacity_j_per_k": figure(100.0 * scale)}]
    resistances = [{"between": [n, "package"], "k_per_w": figure(4.0)} for n in names]
    resistances += [{"between": ["package", "case"], "k_per_w": figure(5.0)}, {"between": ["case", "ambient"], "k_per_w": figure(4.5)}]
    trips = [
        {
            "node": n,
            "temperature_c": figure(trip_c),
            "hysteresis_k": figure(1.0),
            "polling_s": figure(polling_s),
            "processors": [n],
        }
        for n in names
    ]
    if skin:
        trips = [{**trips[0], "node": "package", "processors": list(names)}]
    return SoC.model_validate(
        {
            "id": "test-soc",
            "name": "Test",
            "vendor": "nobody",
            "family": "test",
            "processors": processors,
            "queues": {n: n for n in names},
            "memory": {
                "kind": "test",
                "capacity_bytes": figure(8e9),
                "peak_bytes_s": figure(2 * reachable),
                "reachable_bytes_s": figure(reachable),
                "together_bytes_s": {k: figure(v) for k, v in (together or {}).items()},
                "system_cache_bytes": figure(0),
                "energy_j_per_byte": figure(50e-12),
            },
            "thermal": {"nodes": nodes, "resistances": resistances, "trips": trips},
            "base_w": figure(1.0),
        }
    )


def make_table(
    ops: Sequence[dict[str, Any]],
    *,
    sync_s: float = 0.0,
    launch_s: float = 0.0,
    transfer: tuple[float, float, float] = (0.0, 0.0, 0.0),
    bandwidths: Sequence[float] = (20 * GB, 30 * GB, 40 * GB),
) -> CostTable:
    """A cost table on queues cpu, gpu, npu (domains the same).

    ``ops``: per op a dict with ``reads`` (earlier ops; none: the graph input), ``compute``, ``bytes``, ``overhead``
    (a number, or one per queue). ``transfer`` is (conversion_s, maintenance_s, bytes) of any tensor between two domains.
    Op ``i`` writes tensor ``i + 1``; ops that nobody reads write graph outputs.
    """
    n, q = len(ops), 3
    reads = [list(o.get("reads", ())) for o in ops]
    read_by: list[list[int]] = [[i for i in range(n) if p in reads[i]] for p in range(n)]
    off_diagonal = 1.0 - np.eye(q)

    def column(key: str) -> np.ndarray[Any, Any]:
        return np.array([np.broadcast_to(np.asarray(o.get(key, 0.0), float), (q,)) for o in ops]).ravel()

    def per_tensor(value: float) -> np.ndarray[Any, Any]:
        return np.broadcast_to(value * off_diagonal, (n + 1, q, q)).copy()

    queues = tuple(Queue(k, k, k) for k in ("cpu", "gpu", "npu"))
    return CostTable(
        model="toy",
        soc="test-soc",
        queues=queues,
        domains=tuple(Domain(i, "f32") for i in range(q)),
        host=0,
        input_domain=0,
        op_names=tuple(f"op{i}" for i in range(n)),
        tensor_names=("x", *(f"t{i}" for i in range(n))),
        alt_start=np.arange(0, q * n + 1, q, dtype=np.int32),
        alt_queue=np.tile(np.arange(q, dtype=np.int32), n),
        alt_domain=np.tile(np.arange(q, dtype=np.int32), n),
        alt_precision=("f32",) * (q * n),
        compute_s=column("compute"),
        overhead_s=column("overhead"),
        dram_bytes=column("bytes"),
        weight_bytes=np.zeros(q * n),
        macs=np.ones(q * n),
        energy_j=np.zeros(q * n),
        op_inputs=Csr.from_rows([[p + 1 for p in r] or [0] for r in reads]),
        op_outputs=Csr.from_rows([[i + 1] for i in range(n)]),
        predecessors=Csr.from_rows([sorted(set(r)) for r in reads]),
        successors=Csr.from_rows(read_by),
        tensor_producer=np.arange(-1, n, dtype=np.int32),
        graph_outputs=np.array([i + 1 for i in range(n) if not read_by[i]], np.int32),
        tensor_bytes=np.full((n + 1, q), 1e6),
        conversion_s=per_tensor(transfer[0]),
        maintenance_s=per_tensor(transfer[1]),
        transfer_energy_j=per_tensor(0.0),
        transfer_bytes=per_tensor(transfer[2]),
        launch_s=np.full(q, launch_s),
        launch_energy_j=np.zeros(q),
        sync_s=sync_s * off_diagonal,
        sync_energy_j=np.zeros((q, q)),
        bandwidth_bytes_s=np.array(bandwidths, float),
        refusals=((),) * n,
    )


def on(*queues: int) -> list[int]:
    """Alternatives that put op ``i`` on queue ``queues[i]`` (0 cpu, 1 gpu, 2 npu)."""
    return [3 * i + q for i, q in enumerate(queues)]


def random_case(rng: np.random.Generator, n: int) -> tuple[CostTable, list[int], list[int]]:
    """A random DAG of ``n`` ops with every kind of cost, its order and a placement."""
    ops = [
        {
            "reads": sorted(set(rng.integers(0, i, size=rng.integers(0, 3)).tolist())) if i else [],
            "compute": rng.uniform(0, 2e-3, 3),
            "bytes": rng.uniform(0, 60e6, 3) * (rng.random() < 0.8),
            "overhead": rng.uniform(0, 50e-6, 3) * (rng.random() < 0.8),
        }
        for i in range(n)
    ]
    transfer = (rng.uniform(0, 1e-4), rng.uniform(0, 1e-4), rng.uniform(0, 4e6) * (rng.random() < 0.7))
    table = make_table(ops, sync_s=rng.uniform(0, 1e-4), launch_s=rng.uniform(0, 1e-4), transfer=transfer)
    return table, list(range(n)), on(*rng.integers(0, 3, n).tolist())


@pytest.fixture(scope="session")
def toys() -> SimpleNamespace:
    """The makers above, for tests."""
    make: dict[str, Callable[..., Any]] = {"soc": make_soc, "table": make_table, "on": on, "random_case": random_case}
    return SimpleNamespace(**make)
