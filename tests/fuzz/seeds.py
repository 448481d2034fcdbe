"""Small well-formed files of every format, from which the fuzzer starts."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from cases import Case

TESTS = Path(__file__).parents[1]
#: Golden files of other tests are seeds too, up to this size.
_GOLDEN_BYTES = 64 << 10

_ONNX = (
    """g (float[batch,3,8,8] x) => (float[a,b] y) <float[4,3,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12},
        int64[2] s = {1,-1}, float[4] k = {1,2,3,4}> {
        c = Conv<pads = [0,0,0,0], strides = [1,1], auto_pad = "NOTSET">(x, w)  n = BatchNormalization<epsilon = 0.01>(c, k, k, k, k)
        r = Clip(n, lo, hi)  p = MaxPool<kernel_shape = [2,2], strides = [2,2]>(r)  y = Reshape(p, s) }""",
    """g (float[1,n,8] x, float[8,8] w) => (float[a,b,c] y) {
        s = Shape(x)  i = Constant<value_int = 1>()  d = Gather(s, i)  one = Constant<value_ints = [1]>()  u = Unsqueeze(d, one0)
        m = MatMul(x, w)  f = Softmax<axis = -1>(m)  t = Transpose<perm = [0,2,1]>(f)  q = MatMul(m, t)
        e = Expand(q, big)  y = Identity(e) }""",
    """g (float[2,4] x, bool c) => (float[a,b] y) {
        y = If(c) < then_branch = t () => (float[2,4] p) { p = Relu(x) }, else_branch = e () => (float[2,4] q) { q = Neg(x) } > }""",
    """g (float[2] x, int64 n, bool c) => (float[2] y) {
        y = Loop(n, c, x) < body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) { k2 = Identity(k)  w = Relu(v) } > }""",
    """g (float[3,2] x, float[2] h) => (float[2] y, float[3,2] z) {
        y, z = Scan(h, x) < num_scan_inputs = 1,
        body = b (float[2] s, float[2] e) => (float[2] t, float[2] o) { t = Add(s, e)  o = Relu(t) } > }""",
    """g (float[1,4] x) => (float[a,b] y) <float sc = {0.1}, uint8 z = {128},
        int8[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float ws = {0.02}> {
        q = QuantizeLinear(x, sc, z)  d = DequantizeLinear(q, sc, z)  v = DequantizeLinear(w, ws)  m = MatMul(d, v)
        a, b, c = DynamicQuantizeLinear(m)  f = Cast<to = 1>(a)  g = Mul(f, b)  y = Relu(g) }""",
    """g (float[1,2,6,6] x) => (float[a,b,c,d] y) <float[4] sc = {1,1,2,2}, int64[8] p = {0,0,1,1,0,0,1,1}, int64[1] k = {2}> {
        r = Resize<mode = "linear">(x, roi, sc)  q = Pad(r, p)  v, i = TopK<axis = -1>(q, k)  s = Slice(v, st, en)  t = Tile(s, rep)
        y = ReduceMean<keepdims = 1>(t) }""",
    """g (float[5,1,3] x) => (float[a,b,c,d] y) <float[1,8,3] w = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1},
        float[1,8,2] r = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}> { y = LSTM<hidden_size = 2>(x, w, r) }""",
)  # fmt: skip
_FILLED = {
    "lo": np.float32(0), "hi": np.float32(6), "one0": np.array([0]), "big": np.array([1, 1, 1]), "st": np.array([0]), "en": np.array([1]),
    "rep": np.array([1, 1, 1, 2]),
}  # fmt: skip


def onnx_seeds() -> Iterator[Case]:
    """Convolutions, shape chains, control flow, quantization, resizing, an LSTM, a local function, external data."""
    import onnx

    for text in _ONNX:
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>\n{text}')
        used = {i for n in model.graph.node for i in n.input}
        model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in _FILLED.items() if k in used)
        yield Case("m.onnx", {"m.onnx": model.SerializeToString()})
    text = """<ir_version: 9, opset_import: ["" : 18, "own" : 1]>
    g (float[2,2] x) => (float[a,b] y) { y = own.f(x) }
    <opset_import: ["" : 18], domain: "own"> f (a) => (b) { c = Relu(a)  b = Add(a, c) }"""
    yield Case("m.onnx", {"m.onnx": onnx.parser.parse_model(text).SerializeToString()})
    yield Case("m.onnx", {"m.onnx": external(), "w.bin": bytes(4096), "link": b"-> ../secret.bin"})


def external(location: str = "w.bin", offset: str = "0", length: str = "4096") -> bytes:
    """A product with a weight of 4096 bytes at ``location``."""
    from onnx import TensorProto, helper

    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[32, 32], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 32]) for n in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def beside(path: Path, name: str) -> ModuleType:
    """A module of another folder of tests."""
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def tflite_seeds() -> Iterator[Case]:
    """Those of the tests of the format: a small net, and one with variables."""
    written = beside(TESTS / "frontends" / "test_tflite_format.py", "fuzz_tflite_format")
    for make in (written.small, written.variables):
        yield Case("m.tflite", {"m.tflite": make()})


def gguf(metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]], kind: int = 2) -> bytes:
    """A header: matrices of type ``kind`` (Q4_0), vectors float32; rows that do not fill blocks are float32 too."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += _gguf_text(key) + _gguf_value(value)
    offset = 0
    for name, shape in tensors.items():
        number = kind if len(shape) > 1 and shape[-1] % 32 == 0 else 0
        out += _gguf_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), number, offset)
        offset += 1 << 16
    return out + bytes(-len(out) % 32)


def _gguf_text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _gguf_value(value: Any) -> bytes:
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_gguf_text, value))
    if isinstance(value, str):
        return struct.pack("<I", 8) + _gguf_text(value)
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)


def gguf_seeds() -> Iterator[Case]:
    """A small decoder of every family."""
    small = beside(TESTS / "frontends" / "small_decoders.py", "fuzz_small_decoders")
    for family in ("llama", "qwen2", "gemma3", "phi2", "phi3", "mixtral", "mamba"):
        metadata, shapes = small.family_model(family)
        yield Case("m.gguf", {"m.gguf": gguf({**metadata, "tokenizer.ggml.tokens": ["a", "b"]}, shapes)})


_DECODER = {
    "vocab_size": 60, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu",
}  # fmt: skip
_CONFIGS: tuple[dict[str, Any], ...] = (
    {"model_type": "llama", **_DECODER, "rope_scaling": {"type": "linear", "factor": 2.0}},
    {"model_type": "mixtral", **_DECODER, "num_local_experts": 4, "num_experts_per_tok": 2},
    {"model_type": "gemma2", **_DECODER, "head_dim": 8, "sliding_window": 4, "hidden_activation": "gelu_pytorch_tanh"},
    {"model_type": "phi", **_DECODER, "tie_word_embeddings": False, "partial_rotary_factor": 0.5, "hidden_act": "gelu_new"},
    {"model_type": "mamba", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "conv_kernel": 4,
     "time_step_rank": 2,
     "intermediate_size": 64},
    {"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
     "max_position_embeddings": 64, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12},
    {"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
     "image_size": 32, "patch_size": 16, "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-12},
    {"model_type": "whisper", "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
     "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "num_mel_bins": 8,
     "max_source_positions": 16, "max_target_positions": 16, "vocab_size": 60, "activation_function": "gelu"},
)  # fmt: skip


def hf_seeds() -> Iterator[Case]:
    """A configuration of every family; a llama with its weights, and one with its weights in two files and an index."""
    for config in _CONFIGS:
        yield Case("config.json", {"config.json": json.dumps(config).encode()})
    config = json.dumps({"model_type": "llama", **_DECODER}).encode()
    shapes = _llama_shapes()
    yield Case("config.json", {"config.json": config, "model.safetensors": safetensors(shapes)})
    halves = dict(list(shapes.items())[:5]), dict(list(shapes.items())[5:])
    index = {"weight_map": {name: f"model-{i}.safetensors" for i, half in enumerate(halves) for name in half}}
    files = {f"model-{i}.safetensors": safetensors(half) for i, half in enumerate(halves)}
    yield Case("config.json", {"config.json": config, "model.safetensors.index.json": json.dumps(index).encode(), **files})


def _llama_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (60, 32), "model.norm.weight": (32,)}
    layer = {
        "self_attn.q_proj": (32, 32), "self_attn.k_proj": (16, 32), "self_attn.v_proj": (16, 32), "self_attn.o_proj": (32, 32),
        "mlp.gate_proj": (40, 32), "mlp.up_proj": (40, 32), "mlp.down_proj": (32, 40), "input_layernorm": (32,),
        "post_attention_layernorm": (32,),
    }  # fmt: skip
    return shapes | {f"model.layers.{i}.{k}.weight": v for i in range(2) for k, v in layer.items()}


def safetensors(shapes: Mapping[str, tuple[int, ...]], kind: str = "F16") -> bytes:
    """The header alone, as published files are when only their headers are fetched."""
    entries, offset = {}, 0
    for name, shape in shapes.items():
        nbytes = 2 * int(np.prod(shape))
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [offset, offset + nbytes]}
        offset += nbytes
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def golden_seeds(suffix: str, entry: str) -> Iterator[Case]:
    """Files that other tests keep."""
    for path in sorted(p for p in TESTS.rglob(f"*{suffix}") if p.is_file() and "fuzz" not in p.parts):
        if path.stat().st_size <= _GOLDEN_BYTES:
            yield Case(entry, {entry: path.read_bytes()})


def ranges_seeds() -> Iterator[Case]:
    """Ranges of two tensors of a model, and ranges per channel."""
    for granularity, second in (("tensor", {"min": 0.0, "max": 6.0}), ("channel", {"axis": 1, "min": [0.0, -1.0], "max": [6.0, 1.0]})):
        content = {
            "model": {"name": "m.onnx", "sha256": "0" * 64, "dims": {"n": 1}}, "method": "minmax", "granularity": granularity,
            "symmetric": False, "samples": 8, "ranges": {"x": {"min": -1.0, "max": 1.0}, "y": second},
        }  # fmt: skip
        yield Case(_RANGES, {_RANGES: json.dumps(content).encode()})


_RANGES = "m.ranges.json"

SEEDS: Mapping[str, Callable[[], Iterator[Case]]] = {
    "onnx": onnx_seeds,
    "tflite": tflite_seeds,
    "gguf": gguf_seeds,
    "hf": hf_seeds,
    "pt2": lambda: golden_seeds(".pt2", "m.pt2"),
    "mlmodel": lambda: golden_seeds(".mlmodel", "m.mlmodel"),
    "ranges": ranges_seeds,
}
