"""Steps that are kept between processes: what comes back computes the same, and a warm start loads no compiler."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.language.session import LanguageModel
from hetsched.runtime import executable_cache as cache
from hetsched_kernels.native import usable

pytestmark = pytest.mark.skipif(not usable(), reason="machine code is kept on x86-64 Linux")
WriteDecoder = Callable[..., Path]
IDS = np.random.default_rng(6).integers(0, 60, 40).tolist()
LOWER = "hetsched.language.step_lowering.lower"


def scores(path: Path, **options: Any) -> list[Any]:
    """Of a prompt, of some tokens at once, and of one that follows."""
    with LanguageModel(path, context=64, **options) as model:
        table = model.sequence()
        found = [model.compute(IDS, table).copy(), model.compute(IDS[:5], table, scored=3).copy()]
        table.cut(40)
        return [*found, model.compute(IDS[:1], table).copy(), np.array(model.weight_bytes)]


def refuse(*args: Any, **options: Any) -> None:
    raise AssertionError("it is lowered again")


@pytest.fixture(autouse=True)
def unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that tests have just written count as settled."""
    monkeypatch.setattr(cache, "SETTLED_NS", -(1 << 62))


@pytest.mark.parametrize(
    ("family", "blocks", "options"),
    [
        ("llama", "Q4_1", {"precision": "w4a8"}),
        ("llama", "Q4_1", {"precision": "w4a16", "kv": ("int8", "int4"), "cores": (0, 1)}),
        ("qwen3", "Q8_0", {"kv": ("fp8", "fp8")}),
        ("gemma2", "Q8_0", {}),
        ("mamba", "Q8_0", {}),
    ],
)
def test_a_kept_step_computes_the_same(
    write_decoder: WriteDecoder, monkeypatch: pytest.MonkeyPatch, family: str, blocks: str, options: dict[str, Any]
) -> None:
    path = write_decoder(family, blocks)
    want = scores(path, **options)
    monkeypatch.setattr(LOWER, refuse)
    for one, two in zip(scores(path, **options), want, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("other", [{"precision": "w4a16"}, {"kv": ("int8", "int8")}, {"pool_tokens": 128}, {"protect": ("*down*",)}])
def test_another_setting_is_another_step(write_decoder: WriteDecoder, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]) -> None:
    path = write_decoder("llama", "Q4_1")
    scores(path)
    monkeypatch.setattr(LOWER, refuse)
    with pytest.raises(AssertionError, match="lowered again"):
        scores(path, **other)


def test_another_model_at_the_same_place_is_lowered(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q4_1")
    before = scores(path)
    changed = bytearray(path.read_bytes())
    changed[-4000:] = changed[-8000:-4000]
    path.write_bytes(changed)
    assert any((a != b).any() for a, b in zip(scores(path), before, strict=True))


def test_damaged_packed_weights_are_packed_again(write_decoder: WriteDecoder, tmp_path: Path) -> None:
    path = write_decoder("llama", "Q4_1")
    want = scores(path)
    (packed,) = (tmp_path / "cache" / "weights").iterdir()
    packed.write_bytes(packed.read_bytes()[:100])
    for one, two in zip(scores(path), want, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_cache_that_shrinks_computes_the_same_with_kept_steps(write_decoder: WriteDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def shrunk() -> Any:
        with LanguageModel(path, context=64) as model:
            table = model.sequence()
            model.compute(IDS, table)
            model.pool.rewrite("int8", "int8")
            return model.compute(IDS[:3], table).copy()

    path = write_decoder("llama", "Q8_0")
    want = shrunk()
    monkeypatch.setattr(LOWER, refuse)
    np.testing.assert_array_equal(shrunk(), want)


def test_a_warm_answer_needs_no_compiler(write_decoder: WriteDecoder, tmp_path: Path) -> None:
    path = write_decoder("llama", "Q4_1", vocabulary=True)
    script = f"""
import sys
from pathlib import Path
from hetsched.runtime import executable_cache
executable_cache.folder, executable_cache.SETTLED_NS = (lambda: Path({str(cache.folder())!r})), -(1 << 62)
import hetsched.language.weights
hetsched.language.weights.weights_folder = lambda: Path({str(tmp_path / "weights")!r})
from hetsched.cli.commands import app
app(["run", {str(path)!r}, "--prompt", "the", "--generate", "3", "--context", "64", "--json"], standalone_mode=False)
heavy = {{"numba", "llvmlite", "onnx", "networkx", "rich", "scipy", "ortools", "yaml"}} & set(sys.modules)
print(sorted(heavy), file=sys.stderr)
"""
    cold, warm = (subprocess.run([sys.executable, "-c", script], check=True, timeout=120, capture_output=True, text=True) for _ in range(2))
    assert "numba" in cold.stderr
    assert warm.stderr.strip() == "[]"
    assert json.loads(warm.stdout)["token_ids"] == json.loads(cold.stdout)["token_ids"]
