#!/usr/bin/env python3
"""Runs this bundle with OpenVINO and numpy, and compares it with its golden vectors: python run.py [--allow-cpu]."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import openvino

HERE = Path(__file__).resolve().parent
SCHEMA = 1


def main() -> None:
    """Give every operator its device, compile, run, compare."""
    manifest = json.loads((HERE / "manifest.json").read_bytes())
    if manifest["schema_version"] != SCHEMA:
        sys.exit(f"this runner reads bundles of schema {SCHEMA}, and this one is of {manifest['schema_version']}: export the plan again")
    have, want = openvino.__version__, manifest["minimum_runtime"]
    if [int(v) for v in have.split(".")[:2]] < [int(v) for v in want.split(".")[:2]]:
        sys.exit(f"this bundle needs OpenVINO {want} or newer, and {have} is installed: pip install -U openvino")
    for name, digest in manifest["files"].items():
        if not (HERE / name).is_file() or hashlib.sha256((HERE / name).read_bytes()).hexdigest() != digest:
            sys.exit(f"{name} is missing or was changed: export the plan again")
    core = openvino.Core()
    model = core.read_model(HERE / "model.onnx")
    wanted = json.loads((HERE / "affinities.json").read_bytes())
    here = {d.partition(".")[0] for d in core.available_devices}
    absent = sorted(set(wanted.values()) - here)
    if absent and "--allow-cpu" not in sys.argv:
        sys.exit(f"the plan uses {', '.join(absent)}, which OpenVINO does not find here: run it there, or with --allow-cpu")
    given = 0
    for op in model.get_ops():
        device = wanted.get(op.get_friendly_name())
        if device is not None:
            op.get_rt_info()["affinity"] = device if device in here else "CPU"
            given += 1
    devices = sorted({d if d in here else "CPU" for d in wanted.values()})
    exact = {"INFERENCE_PRECISION_HINT": "f32"} if devices == ["CPU"] else {}  # a new CPU would take bfloat16
    compiled = core.compile_model(model, devices[0] if len(devices) == 1 else "HETERO:" + ",".join(devices), exact)
    request = compiled.create_infer_request()
    feeds = dict(np.load(HERE / manifest["golden"]["inputs"]))
    results = request.infer(feeds)
    stands_in = f"; the CPU stands in for {', '.join(absent)}" if absent else ""
    print(f"{given} operators have a device: {', '.join(devices)}{stands_in}")
    for name, expected in np.load(HERE / manifest["golden"]["outputs"]).items():
        a, b = (np.asarray(v, np.float64).ravel() for v in (results[name], expected))
        norm = np.linalg.norm(a) * np.linalg.norm(b)
        cosine = float(a @ b / norm) if norm else float(np.array_equal(a, b))
        print(f"{name}: cosine {cosine:.7f}, largest difference {np.abs(a - b).max(initial=0):.3g}")
        if not cosine >= manifest["golden"]["cosine"]:
            sys.exit(f"{name} is not the golden output")


if __name__ == "__main__":
    main()
