#!/usr/bin/env python3
"""Runs this bundle with ONNX Runtime and numpy, and compares it with its golden vectors: python run.py [--allow-cpu] [X.npz]."""

import hashlib
import json
import platform
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

HERE = Path(__file__).resolve().parent
SCHEMA = 1


def checked() -> dict[str, Any]:
    """The manifest, after versions and files were looked at."""
    manifest: dict[str, Any] = json.loads((HERE / "manifest.json").read_bytes())
    have, want = ort.__version__, manifest["minimum_runtime"]
    if manifest["schema_version"] != SCHEMA:
        sys.exit(f"this runner reads bundles of schema {SCHEMA}, and this one is of {manifest['schema_version']}: export the plan again")
    if [int(v) for v in have.split(".")[:2]] < [int(v) for v in want.split(".")[:2]]:
        sys.exit(f"this bundle needs ONNX Runtime {want} or newer, and {have} is installed: pip install -U onnxruntime")
    for name, digest in manifest["files"].items():
        if not (HERE / name).is_file() or hashlib.sha256((HERE / name).read_bytes()).hexdigest() != digest:
            sys.exit(f"{name} is missing or was changed: export the plan again")
    stranger = next((s["file"] for s in manifest["segments"] if s["file"] not in manifest["files"]), None)
    if stranger is not None:
        sys.exit(f"{stranger} is no file of this bundle: export the plan again")
    return manifest


def read_feeds(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """The inputs in a .npz file, which must be those of the model."""
    try:
        feeds = dict(np.load(path))
    except (OSError, ValueError, TypeError) as e:
        sys.exit(f"{path} is not a .npz file of the inputs: {e}")
    for tensor in manifest["inputs"]:
        name, shape = tensor["name"], tensor["shape"]
        if name not in feeds or list(feeds[name].shape) != shape:
            found = list(feeds[name].shape) if name in feeds else "missing"
            sys.exit(f"{path}: the input {name!r} is {found}, and the model wants {tensor['dtype']} {shape}")
    return feeds


def plug_in(provider: str) -> list[Any]:
    """Devices of a provider that is installed as a plug-in (pip install onnxruntime-qnn); none where it is not."""
    if provider != "QNNExecutionProvider":
        return []
    try:
        import onnxruntime_qnn
    except ImportError:
        return []
    if not any(d.ep_name == provider for d in ort.get_ep_devices()):
        ort.register_execution_provider_library(provider, onnxruntime_qnn.get_library_path())
    return [d for d in ort.get_ep_devices() if d.ep_name == provider][:1]


def session(segment: dict[str, Any], allow_cpu: bool) -> Any:
    """A session on the provider that the plan names; the CPU stands in only where that is allowed."""
    settings = dict(segment["settings"])
    provider, options = settings.pop("provider"), ort.SessionOptions()
    options.intra_op_num_threads = int(settings.pop("intra_op_num_threads", "1"))
    path, devices = str(HERE / segment["file"]), plug_in(provider)
    if provider != "CPUExecutionProvider":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if devices:
        if platform.machine() in ("x86_64", "AMD64") and sys.platform == "linux":
            print(f"segment {segment['index']}: the vendor's emulator stands in for the NPU, and its times mean nothing")
        options.add_provider_for_devices(devices, settings)
        return ort.InferenceSession(path, options)
    if provider in ort.get_available_providers():
        return ort.InferenceSession(path, options, providers=[(provider, settings)])
    if not allow_cpu:
        sys.exit(f"segment {segment['index']} is for {provider}, which is not here: run it on the phone, or with --allow-cpu")
    print(f"segment {segment['index']}: the CPU stands in for {provider}")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(manifest: dict[str, Any], sessions: list[Any], feeds: dict[str, Any]) -> dict[str, Any]:
    """One inference: a thread a queue, an event a segment."""
    values, failed = dict(feeds), list[str]()
    done = [threading.Event() for _ in sessions]

    def work(queue: str) -> None:
        for s, opened, own in zip(manifest["segments"], sessions, done, strict=True):
            if s["queue"] == queue:
                for other in s["waits"]:
                    done[other].wait()
                try:
                    out = opened.run([t["name"] for t in s["outputs"]], {t["name"]: values[t["name"]] for t in s["inputs"]})
                    values.update(zip((t["name"] for t in s["outputs"]), out, strict=True))
                except Exception as e:
                    failed.append(f"segment {s['index']} failed: {e}")
                own.set()

    threads = [threading.Thread(target=work, args=(q,)) for q in dict.fromkeys(s["queue"] for s in manifest["segments"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        sys.exit(failed[0])
    return {t["name"]: values[t["name"]] for t in manifest["outputs"]}


def main() -> None:
    """Run, time, compare."""
    given = [a for a in sys.argv[1:] if not a.startswith("--")]
    manifest = checked()
    sessions = [session(s, "--allow-cpu" in sys.argv) for s in manifest["segments"]]
    golden = manifest["golden"]
    feeds = read_feeds(Path(given[0]) if given else HERE / golden["inputs"], manifest)
    outputs = run(manifest, sessions, feeds)
    began = time.perf_counter()
    outputs = run(manifest, sessions, feeds)
    took, predicted = (time.perf_counter() - began) * 1e3, manifest["predicted_latency_s"] * 1e3
    print(f"{took:.2f} ms here (the plan predicts {predicted:.2f} ms on {manifest['soc']})")
    for name, want in () if given else np.load(HERE / golden["outputs"]).items():
        a, b = (v.astype(np.float64).ravel() for v in (outputs[name], want))
        norm = np.linalg.norm(a) * np.linalg.norm(b)
        cosine = float(a @ b / norm) if norm else float(np.array_equal(a, b))
        print(f"{name}: cosine {cosine:.7f}, largest difference {np.abs(a - b).max(initial=0):.3g}")
        if not cosine >= golden["cosine"]:
            sys.exit(f"{name} is not the golden output")


if __name__ == "__main__":
    main()
