#!/usr/bin/env python3
"""The demo: a real trained text detector (PP-OCRv4), planned for three phones and this machine, simulated, run, reported.

    python docs/demo.py DEST        (the model is expected in models/, 'make demo' brings it)

Writes plans, traces and one report into DEST and prints their paths. Everything below uses the public Python API.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from demo_page import ink_found, page

import hetsched
from hetsched.cli import show, traces
from hetsched.cli.simulating import show_simulation as show_simulation_of

MODEL = Path("models/pp-ocrv4-det.onnx")
DIMS = {"x.2": 480, "x.3": 480}
PHONES = ("snapdragon-8-gen-3", "dimensity-9300", "apple-a17-pro")
TEN_MINUTES_S = 600.0


def step(began: float, text: str) -> None:
    """Say what happens now and when."""
    show.line(f"[{time.perf_counter() - began:5.1f} s] {text}")


def main() -> int:
    """Run the demo."""
    began, dest = time.perf_counter(), Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    dest.mkdir(parents=True, exist_ok=True)
    step(began, f"load {MODEL} at 480 x 480")
    graph = hetsched.load(MODEL, dims=DIMS)
    planned = {}
    step(began, "measure this machine (once: it compiles the kernels that it times, about a minute)")
    hetsched.soc("host")
    for soc in (*PHONES, "host"):
        step(began, f"plan for {soc}")
        planned[soc] = hetsched.plan(graph, soc)
        planned[soc].save(dest / ("plan.json" if soc == PHONES[0] else f"plan.{soc}.json"))
    simulated = []
    for ambient in (25.0, 35.0):
        step(began, f"simulate ten minutes on the {planned[PHONES[0]].soc.name} at {ambient:g} °C")
        run = hetsched.simulate(planned[PHONES[0]], duration_s=TEN_MINUTES_S, ambient_c=ambient)
        traces.write(run.trace, dest / f"simulated.{ambient:g}c.pftrace")
        traces.write(run.trace, dest / f"simulated.{ambient:g}c.parquet")
        simulated.append(run)
    step(began, "run the host plan here and check every operator")
    image = page(DIMS["x.2"], DIMS["x.3"])
    np.savez(dest / "page.npz", x=image)
    ran = hetsched.run(planned["host"], inputs={"x": image}, check=True, repeat=10)
    traces.write(ran.trace, dest / "measured.pftrace")
    traces.write(ran.trace, dest / "measured.parquet")
    step(began, "write the report")
    report = hetsched.report([*planned.values(), *simulated, ran], dest / "report.html")

    show.line("")
    compare(planned)
    show.line("")
    for run in simulated:
        show_simulation_of(run, None)
    show.line("")
    show.ran(ran, None)
    (probability,) = ran.outputs.values()
    show.line(f"  the detector finds text on {ink_found(probability):.1%} of the page")
    show.line("")
    for path in sorted(dest.iterdir()):
        show.line(f"  {path}")
    step(began, f"done: open {report}")
    return 0 if ran.check is not None and ran.check.passed else 1


def compare(planned: dict[str, hetsched.Planned]) -> None:
    """One table: all-CPU, all-GPU, vendor default and hetsched on every SoC."""
    rows = []
    for p in planned.values():
        kinds = {q.name: q.kind for q in p.table.queues}
        for b in p.plan.baselines:
            kind = kinds.get(b.solver.removeprefix("single:"), "")
            if b.solver == "vendor" or kind in ("cpu", "gpu"):
                label = "vendor default" if b.solver == "vendor" else f"all on {b.solver.removeprefix('single:')}"
                segments = "-" if b.segments is None else str(b.segments)
                rows.append([p.soc.name, label, show.seconds(b.latency_s), show.joules(b.energy_j), segments, b.reason])
        pred = p.plan.prediction
        rows.append([p.soc.name, "hetsched", show.seconds(pred.latency_s), show.joules(pred.energy_j), str(len(p.plan.segments)), ""])
    show.table("predicted", ["SoC", "placement", "latency", "energy", "segments", ""], rows, numeric=(2, 3, 4))


if __name__ == "__main__":
    sys.exit(main())
