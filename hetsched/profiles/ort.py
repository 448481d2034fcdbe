"""ONNX Runtime's own profile: the JSON that ``SessionOptions.enable_profiling`` leaves."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from hetsched.profiles.timings import Profile, Timing

FORMAT = "ONNX Runtime profile"
_KERNEL = "_kernel_time"
_PROVIDERS = {
    "CPUExecutionProvider": "cpu", "XnnpackExecutionProvider": "cpu", "QNNExecutionProvider": "npu", "CoreMLExecutionProvider": "npu",
    "NnapiExecutionProvider": "npu", "VitisAIExecutionProvider": "npu", "SNPEExecutionProvider": "npu", "CUDAExecutionProvider": "gpu",
    "DmlExecutionProvider": "gpu", "WebGpuExecutionProvider": "gpu", "ROCMExecutionProvider": "gpu", "TensorrtExecutionProvider": "gpu",
}  # fmt: skip
_PRECISIONS = {"float": "f32", "float16": "f16", "int8": "w8a8", "uint8": "w8a8"}


def recognises(document: Any) -> bool:
    """Whether a JSON document is a list of events with nodes or a session among them."""
    events = document.get("traceEvents") if isinstance(document, dict) else document
    return isinstance(events, list) and any(isinstance(e, dict) and e.get("cat") in ("Node", "Session") for e in events)


def read(document: Any) -> Profile:
    """Kernel times of every node in every run. Nodes inside a control-flow node count as part of it."""
    listed: Any = document["traceEvents"] if isinstance(document, dict) else document
    events = [e for e in listed if isinstance(e, dict)]
    begins = sorted(float(e["ts"]) for e in events if e.get("name") == "model_run" and _has_times(e))
    nodes = [e for e in events if e.get("cat") == "Node" and str(e.get("name", "")).endswith(_KERNEL) and _has_times(e)]
    nodes.sort(key=lambda e: (float(e["ts"]), -float(e["dur"])))
    origin = min((float(e["ts"]) for e in nodes), default=0.0)
    timings, inside, ends = [], 0, dict[Any, float]()
    for e in nodes:
        thread = e.get("tid")
        if float(e["ts"]) + float(e["dur"]) <= ends.get(thread, float("-inf")):
            inside += 1
            continue
        ends[thread] = float(e["ts"]) + float(e["dur"])
        timings.append(_timing(e, max(0, bisect_right(begins, float(e["ts"])) - 1), origin))
    notes = (f"{inside} kernel times inside other operators are counted with those",) if inside else ()
    return Profile(FORMAT, tuple(timings), notes)


def _has_times(event: Mapping[str, Any]) -> bool:
    return all(isinstance(event.get(k), int | float) for k in ("ts", "dur"))


def _timing(event: Mapping[str, Any], run: int, origin: float) -> Timing:
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    outputs = args.get("output_type_shape")
    kind, shape = _first(outputs) if isinstance(outputs, list) else ("", None)
    return Timing(
        name=str(event["name"]).removesuffix(_KERNEL), type=str(args.get("op_name", "")), seconds=float(event["dur"]) / 1e6,
        queue=_PROVIDERS.get(str(args.get("provider", "")), ""), shape=shape, precision=_PRECISIONS.get(kind, ""), run=run,
        start_s=(float(event["ts"]) - origin) / 1e6,
    )  # fmt: skip


def _first(outputs: Sequence[Any]) -> tuple[str, tuple[int, ...] | None]:
    """Type and shape of the first output: ``[{"float": [1, 8, 16, 16]}]``."""
    if outputs and isinstance(outputs[0], dict) and outputs[0]:
        kind, dims = next(iter(outputs[0].items()))
        if isinstance(dims, list) and all(isinstance(d, int) for d in dims):
            return str(kind), tuple(dims)
    return "", None
