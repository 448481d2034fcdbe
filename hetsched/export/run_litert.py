#!/usr/bin/env python3
"""Runs this bundle with LiteRT's interpreter (on the CPU) and numpy, and compares it with its golden vectors: python run.py --allow-cpu."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import ai_edge_litert
import numpy as np
from ai_edge_litert.interpreter import Interpreter

HERE = Path(__file__).resolve().parent
SCHEMA = 1


def main() -> None:
    """Run the segments in the plan's order, which satisfies every wait, and compare."""
    manifest: dict[str, Any] = json.loads((HERE / "manifest.json").read_bytes())
    if manifest["schema_version"] != SCHEMA:
        sys.exit(f"this runner reads bundles of schema {SCHEMA}, and this one is of {manifest['schema_version']}: export the plan again")
    have, want = ai_edge_litert.__version__, manifest["minimum_runtime"]
    if [int(v) for v in have.split(".")[:2]] < [int(v) for v in want.split(".")[:2]]:
        sys.exit(f"this bundle needs LiteRT {want} or newer, and {have} is installed: pip install -U ai-edge-litert")
    for name, digest in manifest["files"].items():
        if not (HERE / name).is_file() or hashlib.sha256((HERE / name).read_bytes()).hexdigest() != digest:
            sys.exit(f"{name} is missing or was changed: export the plan again")
    others = sorted({s["settings"]["accelerator"] for s in manifest["segments"]} - {"CPU"})
    if others and "--allow-cpu" not in sys.argv:
        sys.exit(f"the plan uses the {' and the '.join(others)}, and this runner the CPU: run it on the phone, or with --allow-cpu")
    values = dict(np.load(HERE / manifest["golden"]["inputs"]))
    for segment in manifest["segments"]:
        interpreter = Interpreter(str(HERE / segment["file"]))
        interpreter.allocate_tensors()
        for detail, tensor in zip(interpreter.get_input_details(), segment["inputs"], strict=True):
            interpreter.set_tensor(detail["index"], values[tensor["name"]].reshape(detail["shape"]))
        interpreter.invoke()
        for detail, tensor in zip(interpreter.get_output_details(), segment["outputs"], strict=True):
            values[tensor["name"]] = interpreter.get_tensor(detail["index"]).reshape(tensor["shape"])
    for name, expected in np.load(HERE / manifest["golden"]["outputs"]).items():
        a, b = (np.asarray(v, np.float64).ravel() for v in (values[name], expected))
        norm = np.linalg.norm(a) * np.linalg.norm(b)
        cosine = float(a @ b / norm) if norm else float(np.array_equal(a, b))
        print(f"{name}: cosine {cosine:.7f}, largest difference {np.abs(a - b).max(initial=0):.3g}")
        if not cosine >= manifest["golden"]["cosine"]:
            sys.exit(f"{name} is not the golden output")


if __name__ == "__main__":
    main()
