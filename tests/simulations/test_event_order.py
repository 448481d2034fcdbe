"""No order of events depends on hashing: other processes with other seeds write the same trace, to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import make_soc, make_table, on
from hetsched_simulations import simulate
from hetsched_simulations.background import Background

ops = [{"compute": 1e-3, "bytes": 5e6, "reads": r} for r in ([], [0], [0], [0], [1, 2, 3], [4])]
table, soc = make_table(ops, sync_s=30e-6, launch_s=50e-6, transfer=(20e-6, 10e-6, 1e6)), make_soc(trip_c=34.0, polling_s=0.01, scale=0.02)
other = Background.model_validate("cpu=0.3,dram=5GB/s,on=100ms,off=50ms,seed=3")
for path in ("full", "multirate"):
    s = simulate(table, soc, list(range(6)), on(0, 0, 1, 2, 0, 2), duration_s=0.7, path=path, background=other)
    print(s.trace.spans, s.trace.instants, s.trace.counters, s.latencies_s.tolist(), s.energy)
"""


def test_the_same_trace_whatever_the_hash_seed() -> None:
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONHASHSEED": seed}) for seed in ("0", "4711")]
    found = [p.communicate()[0] for p in runs]
    assert [p.returncode for p in runs] == [0, 0]
    assert len(found[0]) > 10_000
    assert found[0] == found[1]
