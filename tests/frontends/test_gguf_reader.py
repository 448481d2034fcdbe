"""GGUF headers: what is read, and that hostile bytes are refused before they cost anything."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.frontends.gguf_reader import GgufArray, read_header

WriteGguf = Callable[..., Path]
TINY: dict[str, Any] = {
    "general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 64, "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.tokens": ["a", "b", "c"], "tokenizer.ggml.scores": list(range(5000)),
}  # fmt: skip
WEIGHTS: dict[str, Any] = {
    "token_embd.weight": ((48, 64), "Q8_0"), "output_norm.weight": ((64,), "F32"), "blk.0.attn_norm.weight": ((64,), "F32"),
    "blk.0.attn_q.weight": ((64, 64), "Q4_0"), "blk.0.attn_k.weight": ((32, 64), "Q4_0"), "blk.0.attn_v.weight": ((32, 64), "F16"),
    "blk.0.attn_output.weight": ((64, 64), "BF16"), "blk.0.ffn_norm.weight": ((64,), "F32"), "blk.0.ffn_gate.weight": ((96, 64), "Q5_1"),
    "blk.0.ffn_up.weight": ((96, 64), "Q4_1"), "blk.0.ffn_down.weight": ((64, 96), "Q8_0"),
}  # fmt: skip


@pytest.fixture
def tiny(write_gguf: WriteGguf) -> Path:
    return write_gguf(TINY, WEIGHTS)


def test_reads_metadata_and_tensors(tiny: Path, write_gguf: WriteGguf) -> None:
    header = read_header(tiny)
    assert header.metadata["llama.block_count"] == 1
    assert isinstance(header.metadata["tokenizer.ggml.tokens"], GgufArray) and header.metadata["tokenizer.ggml.tokens"].count == 3
    assert isinstance(header.metadata["tokenizer.ggml.scores"], GgufArray)
    q = header.tensors["blk.0.attn_q.weight"]
    assert q.shape == (64, 64) and q.nbytes == 64 * 2 * 18 and q.quantization is not None and q.quantization.scheme == "gguf:Q4_0"
    assert q.data is not None and not q.data.is_present
    with pytest.raises(ModelError, match=r"too short for the weights of 'blk\.0\.attn_q\.weight'"):
        q.numpy()
    whole = read_header(write_gguf(TINY, WEIGHTS, "whole", sparse=True)).tensors["blk.0.attn_q.weight"]
    assert whole.data is not None and whole.data.is_present and not whole.numpy().any()


def test_version_2_is_the_same(tiny: Path, write_gguf: WriteGguf) -> None:
    assert dict(read_header(write_gguf(TINY, WEIGHTS, "older", version=2)).metadata) == dict(read_header(tiny).metadata)


@pytest.mark.parametrize(("version", "message"), [(1, "version 1"), (3 << 24, "big-endian"), (4, "version 4"), (0, "version 0")])
def test_other_versions(write_gguf: WriteGguf, version: int, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        load(write_gguf(TINY, WEIGHTS, version=version))


def test_every_truncation_is_refused(write_gguf: WriteGguf, tmp_path: Path) -> None:
    metadata = {k: v for k, v in TINY.items() if k != "tokenizer.ggml.scores"}
    raw = write_gguf(metadata, WEIGHTS).read_bytes()
    path = tmp_path / "cut.gguf"
    for end in range(4, len(raw)):
        path.write_bytes(raw[:end])
        with pytest.raises(ModelError):
            load(path)
    path.write_bytes(raw)
    assert load(path).ops


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.alignment": 0}, "general.alignment is 0"), ({"general.alignment": 7}, "general.alignment is 7"),
        ({"general.architecture": "rwkv"}, "architecture 'rwkv'"), ({"llama.block_count": 1025}, "from 1 to 1024"),
        ({"llama.block_count": 2}, r"no weight 'blk\.1\.attn_norm\.weight'"), ({"llama.embedding_length": 0}, "embedding_length"),
        ({"llama.embedding_length": 65}, "has the shape"), ({"llama.attention.head_count_kv": 3}, "4 query heads cannot share 3"),
        ({"llama.attention.layer_norm_rms_epsilon": math.nan}, "finite number"), ({"llama.block_count": "many"}, "whole number"),
        ({"llama.rope.dimension_count": 33}, "33 rotated elements"), ({"llama.rope.scaling.type": "odd"}, "scaling 'odd'"),
        ({"llama.attention.value_length": 8}, "another length"),
        ({"llama.attention.key_length": 1 << 15}, "heads of 32768"),
        ({"llama.expert_count": 5000}, "expert_count"),
        ({"llama.attention.head_count_kv": [2, 1]}, "differs between layers"),
    ],
)  # fmt: skip
def test_descriptions_that_make_no_sense(write_gguf: WriteGguf, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(write_gguf({**TINY, **change}, WEIGHTS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blk.0.attn_q.weight": ((64, 80), "Q4_0")}, "not whole blocks"),
        ({"blk.0.attn_q.weight": ((64, 64, 1, 1, 1), "F32")}, "at most 4"),
        ({"blk.0.attn_q.weight": ((0, 64), "F32")}, "has the shape"), ({"blk.0.attn_q.weight": ((1 << 30, 1 << 30), "F32")}, r"2\^40"),
        ({"blk.0.attn_q.weight": ((1 << 60, 64), "F32")}, "has the shape"), ({"blk.0.attn_q.weight": ((64, 32), "F32")}, "expected"),
    ],
)  # fmt: skip
def test_tensors_that_make_no_sense(write_gguf: WriteGguf, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(write_gguf(TINY, {**WEIGHTS, **change}))


def _with(raw: bytes, at: int, code: str, value: int) -> bytes:
    return raw[:at] + struct.pack(code, value) + raw[at + struct.calcsize(code) :]


@pytest.mark.parametrize("at", [8, 16, 24])
@pytest.mark.parametrize("value", [1 << 63, (1 << 64) - 1, 1 << 40, 1 << 31])
def test_huge_counts_cost_nothing(tiny: Path, at: int, value: int) -> None:
    """The number of tensors, of metadata entries, and the length of the first key."""
    tiny.write_bytes(_with(tiny.read_bytes(), at, "<Q", value))
    tracemalloc.start()
    with pytest.raises(ModelError):
        load(tiny)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_names_that_occur_twice(tiny: Path) -> None:
    raw = tiny.read_bytes()
    tiny.write_bytes(raw.replace(b"blk.0.attn_k.weight", b"blk.0.attn_q.weight"))
    with pytest.raises(ModelError, match=r"'blk\.0\.attn_q\.weight' is there twice"):
        load(tiny)
    tiny.write_bytes(raw.replace(b"llama.block_count", b"llama.block_count".replace(b"block_count", b"block_cound")))
    with pytest.raises(ModelError, match="no 'block_count'"):
        load(tiny)


def test_unknown_tensor_types_are_named(tiny: Path) -> None:
    raw = tiny.read_bytes()
    at = raw.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 16
    tiny.write_bytes(_with(raw, at, "<I", 77))
    with pytest.raises(UnsupportedModelError, match=r"'token_embd\.weight' .* has the type 77"):
        load(tiny)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutated_bytes_load_or_are_refused(tiny: Path, data: st.DataObject) -> None:
    raw = bytearray(MUTABLE.setdefault(tiny.name, tiny.read_bytes()))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(raw) - 1))
        piece = data.draw(st.sampled_from([b"\xff" * 8, bytes(8), b"\xff" * 7 + b"\x7f"]) | st.binary(min_size=1, max_size=8))
        raw[at : at + len(piece)] = piece
    path = tiny.with_name("mutated.gguf")
    path.write_bytes(bytes(raw))
    try:
        graph = load(path)
    except ModelError:
        return
    assert graph.ops


MUTABLE: dict[str, bytes] = {}


def seven_b(write_gguf: WriteGguf, sparse: bool = True) -> Path:
    """A sparse file with the shapes and a vocabulary of a 7B model in Q4_K (Llama 2)."""
    hidden, ffn, layers, vocab = 4096, 11008, 32, 32000
    metadata = {
        "general.architecture": "llama", "llama.block_count": layers, "llama.embedding_length": hidden, "llama.context_length": 4096,
        "llama.feed_forward_length": ffn, "llama.attention.head_count": 32, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.tokens": [f"token{i}" for i in range(vocab)], "tokenizer.ggml.token_type": [1] * vocab,
    }  # fmt: skip
    tensors: dict[str, Any] = {"token_embd.weight": ((vocab, hidden), "Q4_K"), "output.weight": ((vocab, hidden), "Q6_K")}
    tensors["output_norm.weight"] = ((hidden,), "F32")
    for i in range(layers):
        for role in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors[f"blk.{i}.{role}.weight"] = ((hidden, hidden), "Q4_K")
        for role, shape in (("ffn_gate", (ffn, hidden)), ("ffn_up", (ffn, hidden)), ("ffn_down", (hidden, ffn))):
            tensors[f"blk.{i}.{role}.weight"] = (shape, "Q4_K")
        tensors |= {f"blk.{i}.{role}.weight": ((hidden,), "F32") for role in ("attn_norm", "ffn_norm")}
    return write_gguf(metadata, tensors, "seven_b", sparse)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory of a process from /proc")
def test_seven_billion_weights_take_megabytes(write_gguf: WriteGguf) -> None:
    path = seven_b(write_gguf)
    assert path.stat().st_size > 3.7e9 and path.stat().st_blocks * 512 < 16 << 20
    code = (
        "import sys; from hetsched.frontends import load; "
        "from hetsched.states import kv_bytes_per_token; g = load(sys.argv[1], {'tokens': 128}); "
        "stored = sum(t.elements for t in g.tensors.values() if t.data is not None and t.data.array is None); "
        "print(stored, kv_bytes_per_token(g), open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout.split()
    assert int(out[0]) == 6_738_415_616
    assert int(out[1]) == 524_288
    assert int(out[2]) * 1024 < 300e6  # not ru_maxrss: a forked child starts with its parent's
