"""How fast and how small loading is: each figure from a fresh process of its own (Linux: the resident size is read from /proc)."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

_MEASURE = """
import json, statistics, sys, time
from pathlib import Path
began = time.perf_counter()
from hetsched.frontends import load
from hetsched.passes import standard
path, dims, repeats, plan = json.loads(sys.argv[1])
imported = time.perf_counter()
graph = load(path, dims)
first = time.perf_counter()
fused = standard(graph)
passed = time.perf_counter()
again = []
for _ in range(repeats):
    start = time.perf_counter()
    load(path, dims)
    again.append(time.perf_counter() - start)
if plan:
    import hetsched
    hetsched.plan(path, plan, dims=dims)
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps({
    "import_s": imported - began, "load_s": first - imported, "passes_s": passed - first, "ops": len(graph.ops),
    "fused_ops": len(fused.ops),
    "warm_load_s": statistics.median(again) if again else None, "resident_mb": int(peak.split()[1]) / 1024,
}))
"""


def measured(path: Path, dims: dict[str, int] | None = None, repeats: int = 0, plan: str = "") -> dict[str, Any]:
    """Seconds of the first load in a fresh process and of the passes, median of ``repeats`` more loads, largest resident size.

    Args:
        path: the model.
        dims: dims to bind.
        repeats: loads after the first.
        plan: the id of a SoC for which the model is also planned, before the resident size is read.
    """
    arguments = json.dumps([str(path), dims or {}, repeats, plan])
    done = subprocess.run([sys.executable, "-c", _MEASURE, arguments], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def llama_7b(path: Path) -> None:
    """A GGUF file of LLaMA-2 7B's shapes in Q4_0 as a sparse file: its header, and as many bytes as its weights have."""
    hidden, layers, heads, ffn, vocab = 4096, 32, 32, 11008, 32000
    metadata: dict[str, Any] = {
        "general.architecture": "llama", "llama.context_length": 4096, "llama.embedding_length": hidden, "llama.block_count": layers,
        "llama.feed_forward_length": ffn, "llama.attention.head_count": heads, "llama.attention.head_count_kv": heads,
        "llama.rope.dimension_count": hidden // heads, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.tokens": [f"<{i}>" for i in range(vocab)],
    }  # fmt: skip
    tensors: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab, hidden),
        "output_norm.weight": (hidden,),
        "output.weight": (vocab, hidden),
    }
    for i in range(layers):
        block = {f"attn_{k}": (hidden, hidden) for k in ("q", "k", "v", "output")}
        block |= {
            "ffn_gate": (ffn, hidden),
            "ffn_up": (ffn, hidden),
            "ffn_down": (hidden, ffn),
            "attn_norm": (hidden,),
            "ffn_norm": (hidden,),
        }
        tensors.update((f"blk.{i}.{k}.weight", shape) for k, shape in block.items())
    write_sparse_gguf(path, metadata, tensors)


def write_sparse_gguf(path: Path, metadata: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> None:
    """Matrices in Q4_0 (18 bytes for 32 weights), vectors in F32; the data section is a hole."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    header += b"".join(_text(k) + _value(v) for k, v in metadata.items())
    offset = 0
    for name, shape in tensors.items():
        kind, nbytes = (2, math.prod(shape) // 32 * 18) if len(shape) > 1 else (0, 4 * math.prod(shape))
        header += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset)
        offset += -(-nbytes // 32) * 32
    with path.open("wb") as file:
        file.write(header)
        file.truncate(-(-len(header) // 32) * 32 + offset)


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)


def many_nodes(path: Path, count: int) -> int:
    """An ONNX file of about ``count`` nodes: blocks of convolution, normalisation, SiLU, a computed reshape, product and softmax.

    Returns:
        How many nodes it has. Its dim ``side`` is open.
    """
    import onnx
    from onnx import helper, numpy_helper

    rng, channels = np.random.default_rng(0), 8
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [f"{name}:0"], name, **attributes))
        return f"{name}:0"

    def weight(*shape: int) -> str:
        name = f"w{len(weights)}"
        weights.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
        return name

    def whole(*values: int) -> str:
        return node("Constant", value=numpy_helper.from_array(np.array(values, np.int64)))

    x = "x"
    while len(nodes) < count:
        y = node("Conv", x, weight(channels, channels, 3, 3), pads=[1, 1, 1, 1])
        y = node("Relu", node("BatchNormalization", y, *(weight(channels) for _ in range(3)), weight(channels)))
        y = node("Conv", y, weight(channels, 1, 3, 3), group=channels, pads=[1, 1, 1, 1])
        x = node("Add", x, node("Mul", y, node("Sigmoid", y)))
        batch = node("Gather", node("Shape", x), whole(0))
        flat = node("Reshape", x, node("Concat", batch, whole(channels), whole(-1), axis=0))
        rows = node("MatMul", node("Transpose", flat, perm=[0, 2, 1]), weight(channels, channels))
        back = node("Transpose", node("Softmax", rows, axis=-1), perm=[0, 2, 1])
        x = node("Add", x, node("Reshape", back, node("Shape", x)))
    nodes.append(helper.make_node("Identity", [x], ["y"], "last"))
    ends = [helper.make_tensor_value_info("x", 1, [1, channels, "side", "side"])], [helper.make_tensor_value_info("y", 1, None)]
    model = helper.make_model(helper.make_graph(nodes, "many", *ends, weights), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return len(nodes)
