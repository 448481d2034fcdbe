"""Files that are hostile on purpose, one for each thing that a reader must not trust, and what the refusal says.

The name is ``FORMAT:WHAT``; None instead of a text: the file may load or be refused, as long as it does no harm.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from amplifying import AMPLIFYING
from cases import Case
from grow import varint
from seeds import external, gguf, safetensors

HOSTILE: dict[str, tuple[Callable[[], Case], str | None]] = dict(AMPLIFYING)


def _case(name: str, says: str | None) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    def register(make: Callable[[], Case]) -> Callable[[], Case]:
        HOSTILE[name] = (make, says)
        return make

    return register


def _onnx(text: str) -> Case:
    import onnx

    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    return Case("m.onnx", {"m.onnx": model.SerializeToString()})


def _texts(name: str, says: str | None, text: str) -> None:
    HOSTILE[f"onnx:{name}"] = (lambda: _onnx(text), says)


_texts("cycle", "cycle", "g (float[2] x) => (float[2] y) { a = Add(x, b)  b = Relu(a)  y = Relu(b) }")
_texts("two writers", "both write 'a'", "g (float[2] x) => (float[2] y) { a = Relu(x)  a = Neg(x)  y = Relu(a) }")
_texts("writes an input", "which is an input or a constant", "g (float[2] x) => (float[2] y) { x = Relu(x)  y = Relu(x) }")
_texts("unknown tensor", "nothing in the model writes", "g (float[2] x) => (float[2] y) { y = Add(x, nothing) }")
_texts("output of nobody", "written by no", "g (float[2] x) => (float[2] z) { y = Relu(x) }")
_texts("huge dims", "2\\^40", "g (float[1099511627776,1099511627776] x) => (float[a,b] y) { y = Relu(x) }")
_texts("huge product", None, "g (float[1048576,1] x, float[1,1048576] z) => (float[a,b] y) { y = MatMul(x, z) }")
_texts("huge broadcast", None, "g (float[1048576,1] x, float[1,1048576] z) => (float[a,b] y) { y = Add(x, z) }")
_texts("empty tensors", None, "g (float[0,3] x, float[3,0] z) => (float[a,b] y) { m = MatMul(x, z)  y = Softmax(m) }")
_texts("empty convolution", None, "g (float[1,0,8,8] x, float[4,0,3,3] w) => (float[a,b,c,d] y) { y = Conv(x, w) }")
_texts("wrong attribute", None, "g (float[2,3] x) => (float[a,b] y) { y = Transpose<perm = [0, 7]>(x) }")
_texts("attribute of another kind", None, 'g (float[2,3] x) => (float[a,b] y) { y = Transpose<perm = "left">(x) }')
_texts("no attribute", None, "g (float[1,3,8,8] x) => (float[a,b,c,d] y) { y = MaxPool(x) }")
_texts("no input", None, "g (float[2] x) => (float[a] y) { y = Add(x) }")
_texts("stride of zero", None, "g (float[1,3,8,8] x, float[3,3,1,1] w) => (float[a,b,c,d] y) { y = Conv<strides = [0,0]>(x, w) }")
_texts("group of zero", None, "g (float[1,3,8,8] x, float[3,3,1,1] w) => (float[a,b,c,d] y) { y = Conv<group = 0>(x, w) }")
_texts("kernel beyond", None, "g (float[1,3,8,8] x) => (float[a,b,c,d] y) { y = MaxPool<kernel_shape = [99,99]>(x) }")
_texts(
    "huge range",
    None,
    """g (float[1] x)
    => (float[a] y) <int64 a = {0}, int64 b = {9000000000}, int64 c = {1}>
    { r = Range(a, b, c)  f = Cast<to = 1>(r)  y = Mul(x, f) }""",
)
_texts(
    "huge fill",
    None,
    "g (float[1] x) => (float[a] y) <int64[3] s = {100000,100000,100}> { r = ConstantOfShape(s)  m = ReduceSum(r)  y = Mul(x, m) }",
)
_texts(
    "huge tile",
    None,
    "g (float[1] x) => (float[a] y) <float[2] v = {1,2}, int64[1] r = {4000000000}> { t = Tile(v, r)  m = ReduceMax(t)  y = Mul(x, m) }",
)
_texts(
    "huge pad",
    None,
    "g (float[1] x) => (float[a] y) <float[2] v = {1,2}, int64[2] r = {4000000000, 0}> { t = Pad(v, r)  m = ReduceMax(t)  y = Mul(x, m) }",
)
_texts(
    "huge one-hot",
    None,
    """g (float[1] x)
    => (float[a,b] y) <int64[2] i = {1,2}, int64 d = {3000000000}, float[2] v = {0,1}>
    { t = OneHot(i, d, v)  y = Mul(x, t) }""",
)
_texts(
    "negative steps",
    None,
    """g (float[4] x)
    => (float[a] y) <int64[1] s = {9223372036854775807}, int64[1] e = {-9223372036854775808},
    int64[1] t = {-9223372036854775808}, int64[1] z = {0}>
    { y = Slice(x, s, e, z, t) }""",
)
_texts(
    "endless loop",
    None,
    """g (float[2] x, bool c)
    => (float[2] y) <int64 n = {9223372036854775807}>
    { y = Loop(n, c, x)
    < body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) { k2 = Identity(k)  w = Relu(v) } > }""",
)
_texts(
    "loop over constants",
    None,
    """g (float[2] x)
    => (float[2] y) <int64 n = {100000000}, bool c = {1}>
    { y = Loop(n, c, x)
    < body = b (int64 i, bool k, float[2] v) => (bool k2, float[2] w) { k2 = Identity(k)  w = Relu(v) } > }""",
)


@_case("onnx:unknown type", None)
def unknown_type() -> Case:
    """An input of an element type that does not exist."""
    import onnx

    model = onnx.ModelProto.FromString(_onnx("g (float[2] x) => (float[2] y) { y = Relu(x) }").files["m.onnx"])
    model.graph.input[0].type.tensor_type.elem_type = 99
    return Case("m.onnx", {"m.onnx": model.SerializeToString()})


def _weight(**changes: Any) -> Case:
    import onnx

    model = onnx.ModelProto.FromString(
        _onnx("g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1,2,3,4}> { y = MatMul(x, w) }").files["m.onnx"]
    )
    weight = model.graph.initializer[0]
    for name, value in changes.items():
        if isinstance(value, list):
            getattr(weight, name)[:] = value
        else:
            setattr(weight, name, value)
    return Case("m.onnx", {"m.onnx": model.SerializeToString()})


HOSTILE |= {
    "onnx:negative dims": (lambda: _weight(dims=[-2, -2]), "negative shape"),
    "onnx:overflow of a product": (lambda: _weight(dims=[1 << 32, 1 << 32, 4]), "2\\^40"),
    "onnx:truncated weight": (lambda: _weight(dims=[1000, 1000]), "damaged|elements"),
    "onnx:weight of a strange type": (lambda: _weight(data_type=77), "type"),
    "onnx:names twice": (lambda: _twice(), "twice"),
    "onnx:absolute path": (lambda: _external("/etc/hostname"), "outside the model's folder"),
    "onnx:parent folder": (lambda: _external("../secret.bin"), "outside the model's folder"),
    "onnx:windows path": (lambda: _external("..\\secret.bin"), "outside the model's folder"),
    "onnx:link out of the folder": (lambda: _external("link", link="../secret.bin"), "outside the model's folder"),
    "onnx:path of a long name": (lambda: _external("w" * 300), "names the file|absent|outside"),
    "onnx:weights beyond the file": (lambda: _external("w.bin", offset="4000"), "too short"),
    "onnx:negative offset": (lambda: _external("w.bin", offset="-4096"), "damaged|needs"),
    "onnx:offset of digits": (lambda: _external("w.bin", offset="9" * 5000), None),
    "onnx:nested branches": (lambda: _nested(60), None),
    "onnx:nested very deep": (lambda: _nested(3000), None),
    "onnx:functions that call themselves": (lambda: _recursive(), None),
    "onnx:functions that double": (lambda: _doubling(40), None),
    "onnx:many outputs": (lambda: _many_outputs(4000), None),
    "onnx:einsum": (lambda: _einsum("ab,bc" * 400), None),
}


def _twice() -> Case:
    import onnx

    case = _weight()
    model = onnx.ModelProto.FromString(case.files["m.onnx"])
    model.graph.initializer.append(model.graph.initializer[0])
    return case.with_bytes(model.SerializeToString())


def _external(location: str, offset: str = "0", link: str = "") -> Case:
    files = {"m.onnx": external(location, offset), "w.bin": bytes(4096)}
    return Case("m.onnx", files | ({"link": f"-> {link}".encode()} if link else {}))


def _nested(depth: int) -> Case:
    """``If`` in ``If``, written field by field: protobuf's own classes stop at a depth of 100."""
    inner = _message(1, _message(1, b"x") + _message(2, b"t") + _message(4, b"Relu")) + _message(12, _message(1, b"t"))
    for k in range(depth):
        branch = _message(5, _message(1, b"then_branch") + _message(6, inner) + b"\xa0\x01\x05")
        node = (
            _message(1, b"c") + _message(2, b"t%d" % k) + _message(4, b"If") + branch + branch.replace(b"then_branch", b"else_branch") * 0
        )
        inner = _message(1, node) + _message(12, _message(1, b"t%d" % k))
    info = _message(2, _message(1, b"\x08\x01" + _message(2, _message(1, b"\x08\x02"))))
    graph = inner + _message(2, b"g") + _message(11, _message(1, b"x") + info) + _message(11, _message(1, b"c") + info)
    return Case("m.onnx", {"m.onnx": b"\x08\x09" + _message(7, graph) + _message(8, b"\x10\x12")})


def _message(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def _functions(definitions: dict[str, str], call: str) -> Case:
    import onnx

    parts = "".join(
        f'<opset_import: ["" : 18, "own" : 1], domain: "own"> {name} (a) => (b) {{ {body} }}\n' for name, body in definitions.items()
    )
    text = f'<ir_version: 9, opset_import: ["" : 18, "own" : 1]> g (float[2] x) => (float[2] y) {{ y = own.{call}(x) }}\n{parts}'
    return Case("m.onnx", {"m.onnx": onnx.parser.parse_model(text).SerializeToString()})


def _recursive() -> Case:
    return _functions({"f": "b = own.h(a)", "h": "b = own.f(a)"}, "f")


def _doubling(levels: int) -> Case:
    """Each function calls the next one twice: 2^levels operators from a file of a few kilobytes."""
    calls = {f"f{k}": f"c = own.f{k + 1}(a)  b = own.f{k + 1}(c)" for k in range(levels)}
    return _functions({**calls, f"f{levels}": "b = Relu(a)"}, "f0")


def _many_outputs(count: int) -> Case:
    """Each output is a copy of a result: renaming must not look at every node for each."""
    from onnx import helper

    nodes = [helper.make_node("Relu", ["x"], [f"r{i}"]) for i in range(count)]
    nodes += [helper.make_node("Identity", [f"r{i}"], [f"y{i}"]) for i in range(count)]
    outputs = [helper.make_tensor_value_info(f"y{i}", 1, [2]) for i in range(count)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [2])], outputs)
    return Case(
        "m.onnx", {"m.onnx": helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()}
    )


def _einsum(equation: str) -> Case:
    from onnx import helper

    values = [helper.make_tensor_value_info(n, 1, [2, 2]) for n in ("x", "z", "y")]
    graph = helper.make_graph([helper.make_node("Einsum", ["x", "z"], ["y"], equation=equation)], "g", values[:2], values[2:])
    return Case(
        "m.onnx", {"m.onnx": helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()}
    )


_LLAMA = {
    "general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 32, "llama.context_length": 64,
    "llama.feed_forward_length": 64, "llama.attention.head_count": 4, "llama.attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip


def _gguf_file(content: bytes) -> Case:
    return Case("m.gguf", {"m.gguf": content})


def _metadata(**changes: Any) -> Case:
    keys = {k.rsplit(".", 1)[-1]: k for k in _LLAMA}
    return _gguf_file(gguf({**_LLAMA, **{keys[k]: v for k, v in changes.items()}}, {"token_embd.weight": (64, 32)}))


def _array(kind: int, count: int, depth: int = 0) -> Case:
    """One metadata value: an array that says it has ``count`` elements, ``depth`` arrays deep."""
    value = struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) * max(0, depth - 1) + struct.pack("<IQ", kind, count)
    if depth == 0:
        value = struct.pack("<IIQ", 9, kind, count)
    return _gguf_file(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + value + bytes(64))


HOSTILE |= {
    "gguf:array of 2^60": (lambda: _array(4, 1 << 60), "more|damaged|truncated|holds"),
    "gguf:tokens of 2^40": (lambda: _array(8, 1 << 40), "more|damaged|truncated|holds"),
    "gguf:arrays in arrays": (lambda: _array(4, 1, 5000), None),
    "gguf:counts of 2^63": (lambda: _gguf_file(b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 1 << 63) + bytes(64)), None),
    "gguf:alignment of 0": (lambda: _gguf_file(gguf({**_LLAMA, "general.alignment": 0}, {"token_embd.weight": (64, 32)})), None),
    "gguf:alignment of 3": (lambda: _gguf_file(gguf({**_LLAMA, "general.alignment": 3}, {"token_embd.weight": (64, 32)})), None),
    "gguf:a billion layers": (lambda: _metadata(block_count=1 << 30), None),
    "gguf:no heads": (lambda: _metadata(head_count=0), None),
    "gguf:huge width": (lambda: _metadata(embedding_length=1 << 31), None),
    "gguf:huge tensor": (lambda: _gguf_file(gguf(_LLAMA, {"token_embd.weight": (1 << 62, 1 << 5)})), None),
    "gguf:tensors twice": (lambda: _tensors_twice(), None),
    "gguf:unknown type": (lambda: _gguf_file(gguf(_LLAMA, {"token_embd.weight": (64, 32)}, kind=999)), None),
}


def _tensors_twice() -> Case:
    once = gguf(_LLAMA, {"token_embd.weight": (64, 32)})
    entry = once[once.index(struct.pack("<Q", 17) + b"token_embd.weight") :].rstrip(b"\0")
    return _gguf_file(once[:8] + struct.pack("<Q", 2) + once[16:].rstrip(b"\0") + entry + bytes(128))


_CONFIG = {
    "model_type": "llama", "vocab_size": 60, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip


def _config(text: str | None = None, weights: bytes | None = None, **changes: Any) -> Case:
    content = json.dumps({**_CONFIG, **changes}) if text is None else text
    files = {"config.json": content.encode()}
    return Case("config.json", files | ({} if weights is None else {"model.safetensors": weights}))


def _header(text: str, length: int | None = None) -> Case:
    content = text.encode()
    return _config(weights=struct.pack("<Q", len(content) if length is None else length) + content)


def _span(*spans: tuple[int, int]) -> Case:
    """Tensors of the first llama weights with these offsets."""
    names = ("model.embed_tokens.weight", "model.norm.weight")
    shapes = ([60, 32], [32])
    entries = {n: {"dtype": "F16", "shape": s, "data_offsets": list(o)} for n, s, o in zip(names, shapes, spans, strict=True)}
    return _header(json.dumps(entries))


HOSTILE |= {
    "hf:depth": (lambda: _config("[" * 100_000), None),
    "hf:depth in a value": (lambda: _config('{"model_type": "llama", "x": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}"), None),
    "hf:huge number": (lambda: _config(json.dumps(_CONFIG)[:-1] + ', "hidden_size": ' + "9" * 5000 + "}"), None),
    "hf:not a number": (lambda: _config(json.dumps(_CONFIG)[:-1] + ', "rms_norm_eps": NaN}'), None),
    "hf:keys twice": (lambda: _config(json.dumps(_CONFIG)[:-1] + ', "hidden_size": 64}'), None),
    "hf:a billion layers": (lambda: _config(num_hidden_layers=10**9), None),
    "hf:a billion experts": (lambda: _config(model_type="mixtral", num_local_experts=10**9, num_experts_per_tok=2), None),
    "hf:no heads": (lambda: _config(num_attention_heads=0), None),
    "hf:negative width": (lambda: _config(hidden_size=-32), None),
    "hf:a list for a number": (lambda: _config(hidden_size=[32]), None),
    "hf:not utf-8": (lambda: Case("config.json", {"config.json": b'{"model_type": "\xff\xfe"}'}), None),
    "hf:overlapping spans": (lambda: _span((0, 3840), (0, 64)), None),
    "hf:backward span": (lambda: _span((3840, 0), (3840, 3904)), None),
    "hf:negative span": (lambda: _span((-3840, 0), (0, 64)), None),
    "hf:span of 2^63": (lambda: _span((1 << 63, (1 << 63) + 3840), (0, 64)), None),
    "hf:header of 2^63": (lambda: _header("{}", 1 << 63), None),
    "hf:header of depth": (lambda: _header("[" * 50_000), None),
    "hf:strange header": (lambda: _header('{"model.embed_tokens.weight": 3}'), None),
    "hf:shard outside": (lambda: _index("../secret.bin"), None),
    "hf:shard of a long name": (lambda: _index("s" * 5000 + ".safetensors"), "names the file"),
    "hf:shard that is a link": (lambda: _index("link.safetensors", "../secret.bin"), None),
    "hf:weights that are a link": (
        lambda: Case("config.json", {"config.json": json.dumps(_CONFIG).encode(), "model.safetensors": b"-> ../secret.bin"}),
        None,
    ),
    "hf:configuration alone is a link": (lambda: Case("config.json", {"config.json": b"-> ../secret.bin"}), None),
    "hf:shape of 2^62": (
        lambda: _header(json.dumps({"model.embed_tokens.weight": {"dtype": "F16", "shape": [1 << 62, 4], "data_offsets": [0, 8]}})),
        None,
    ),
    "hf:safetensors of no shapes": (lambda: _config(weights=safetensors({})), None),
}


def _index(shard: str, link: str = "") -> Case:
    index = {"weight_map": {"model.embed_tokens.weight": shard}}
    files = {"config.json": json.dumps(_CONFIG).encode(), "model.safetensors.index.json": json.dumps(index).encode()}
    return Case("config.json", files | ({shard: f"-> {link}".encode()} if link else {}))


def _ranges(text: str) -> Case:
    return Case("m.ranges.json", {"m.ranges.json": text.encode()})


HOSTILE |= {
    "ranges:depth": (lambda: _ranges("[" * 100_000), None),
    "ranges:not a number": (lambda: _ranges('{"model": NaN}'), None),
    "ranges:huge": (lambda: _ranges('{"samples": ' + "9" * 5000 + "}"), None),
}


def _tflite(content: bytes) -> Case:
    return Case("m.tflite", {"m.tflite": content})


HOSTILE |= {
    "tflite:root beyond": (lambda: _tflite(struct.pack("<I4s", 1 << 31, b"TFL3") + bytes(64)), None),
    "tflite:nothing but a head": (lambda: _tflite(b"\x08\0\0\0TFL3"), None),
    "tflite:vtable of itself": (lambda: _tflite(struct.pack("<I4siHH", 8, b"TFL3", 0, 4, 4) + bytes(64)), None),
    "tflite:ones": (lambda: _tflite(struct.pack("<I4s", 8, b"TFL3") + bytes(np.full(256, 255, np.uint8))), None),
}
