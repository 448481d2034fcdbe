"""Adapters against weights that they were added to by hand, swapped at run time, from both kinds of files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.app.generating import assistant
from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.language.generation import Answer
from hetsched.language.session import LanguageModel

Array = np.ndarray[Any, Any]
WriteDecoder = Callable[..., Path]
SmallLlama = tuple[dict[str, Any], dict[str, Array]]
IDS = np.random.default_rng(4).integers(3, 60, 40).tolist()
RANK, ALPHA = 4, 6.0
NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def write_peft(folder: Path, parts: Mapping[str, tuple[Array, Array]], **config: Any) -> Path:
    """A folder as PEFT writes it."""
    folder.mkdir(exist_ok=True)
    header, data = {}, b""
    for module, both in parts.items():
        for letter, array in zip("AB", both, strict=True):
            raw = array.astype("<f4").tobytes()
            place = [len(data), len(data) + len(raw)]
            header[f"base_model.model.{module}.lora_{letter}.weight"] = {"dtype": "F32", "shape": array.shape, "data_offsets": place}
            data += raw
    said = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(said).to_bytes(8, "little") + said + data)
    (folder / "adapter_config.json").write_text(json.dumps({"r": RANK, "lora_alpha": ALPHA} | config))
    return folder


def low_rank(arrays: Mapping[str, Array], modules: tuple[str, ...], seed: int) -> dict[str, tuple[Array, Array]]:
    """A and B for weights, by GGUF's names, in checkpoints' order."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, w in arrays.items():
        if name.startswith("blk.") and name.split(".")[2] in modules and name.endswith(".weight"):
            a, b = rng.standard_normal((RANK, w.shape[1])), rng.standard_normal((w.shape[0], RANK))
            out[name] = ((a / w.shape[1] ** 0.5).astype(np.float32), (0.2 * b).astype(np.float32))
    return out


def added(name: str, a: Array, b: Array, metadata: Mapping[str, Any]) -> Array:
    """What the adapter adds to a weight in a GGUF file, whose query and key heads have neighbours paired."""
    delta = ALPHA / RANK * (b @ a)
    module = name.split(".")[2]
    if module in ("attn_q", "attn_k"):
        heads = metadata["llama.attention.head_count" + ("_kv" if module == "attn_k" else "")]
        delta = np.concatenate([h[[i // 2 + (i % 2) * len(h) // 2 for i in range(len(h))]] for h in np.split(delta, heads)])
    return delta


def peft_names(parts: Mapping[str, tuple[Array, Array]]) -> dict[str, tuple[Array, Array]]:
    return {f"model.layers.{n.split('.')[1]}.{NAMES[n.split('.')[2]]}": v for n, v in parts.items()}


def write_gguf_adapter(write_model: WriteDecoder, path: Path, parts: Mapping[str, tuple[Array, Array]], **fields: Any) -> Path:
    """A GGUF file of an adapter; B in the file's order."""
    tensors = {f"{n}.lora_{x}": a for n, both in parts.items() for x, a in zip("ab", both, strict=True)}
    metadata = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": ALPHA} | fields
    return write_model(path, metadata, tensors, "")


def correlation(a: Array, b: Array) -> float:
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def scores(model: LanguageModel) -> Array:
    few, many = model.sequence(), model.sequence()
    by_few = model.compute(IDS, few, scored=len(IDS)).copy()
    at_once = model.compute(IDS, many)[0].copy()
    np.testing.assert_allclose(at_once, by_few[-1], atol=4e-3 * np.abs(by_few).max())
    few.cut(0)
    many.cut(0)
    return by_few


@pytest.mark.parametrize("modules", [("attn_q", "attn_v"), tuple(NAMES)])
def test_an_adapter_is_what_it_adds_to_the_weights(
    tmp_path: Path, write_model: WriteDecoder, small_llama: SmallLlama, modules: tuple[str, ...]
) -> None:  # fmt: skip
    metadata, arrays = small_llama
    parts = low_rank(arrays, modules, seed=1)
    merged = {n: w + added(n, *parts[n], metadata) if n in parts else w for n, w in arrays.items()}
    base, whole = (write_model(tmp_path / f"{n}.gguf", metadata, x, "") for n, x in (("base", arrays), ("merged", merged)))
    quantized = write_model(tmp_path / "q8.gguf", metadata, arrays, "Q8_0")
    folder = write_peft(tmp_path / "adapter", peft_names(parts))
    in_order = {n: (a, added(n, np.eye(RANK), b, metadata) * RANK / ALPHA) for n, (a, b) in parts.items()}
    gguf = write_gguf_adapter(write_model, tmp_path / "adapter.gguf", in_order)
    with LanguageModel(whole, context=48) as model:
        want = scores(model)
    with LanguageModel(base, context=48) as model:
        plain = scores(model)
        assert np.abs(plain - want).max() > 0.1 * np.abs(want).max()
        for name, path in (("peft", folder), ("gguf", gguf)):
            model.attach(name, path)
            model.adapt(name)
            np.testing.assert_allclose(scores(model), want, atol=4e-3 * np.abs(want).max())
        model.adapt()
        np.testing.assert_array_equal(scores(model), plain)
    with LanguageModel(quantized, context=48, precision="w4a16") as model:
        held = model.weight_bytes
        model.attach("peft", folder)
        model.adapt("peft")
        got = scores(model)
        assert correlation(got, want) > 0.995 > 0.98 > correlation(plain, want)  # the rest is lost in eight bits
        assert model.weight_bytes >= held and model.adapters["peft"].nbytes == sum(a.nbytes for v in parts.values() for a in v)


def test_a_checkpoint_with_an_adapter(tmp_path: Path) -> None:
    """Ranks with a scale of alpha / sqrt(rank); two adapters in turn on one model, whose matrices they share."""
    folder = Path(__file__).parent / "data" / "llama"
    rng = np.random.default_rng(0)
    parts = {"model.layers.1.self_attn.q_proj": (rng.standard_normal((RANK, 96)), rng.standard_normal((96, RANK)))}
    halves = {n: (a, b * 2 / RANK**0.5) for n, (a, b) in parts.items()}
    with LanguageModel(folder, context=48) as model:
        plain = scores(model)
        model.attach("stable", write_peft(tmp_path / "a", halves, use_rslora=True))
        model.attach("plain", write_peft(tmp_path / "b", {n: (a, b * 2) for n, (a, b) in parts.items()}))
        found = []
        for name in ("stable", "plain", "", "stable"):
            model.adapt(name)
            found.append(scores(model))
        np.testing.assert_allclose(found[0], found[1], atol=2e-3 * np.abs(plain).max())
        np.testing.assert_array_equal(found[2], plain)
        np.testing.assert_array_equal(found[3], found[0])
        assert np.abs(found[0] - plain).max() > 0.1


def test_conversations_share_nothing_between_adapters(
    write_decoder: WriteDecoder, small_llama: SmallLlama, tmp_path: Path
) -> None:  # fmt: skip
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    folder = write_peft(tmp_path / "adapter", peft_names(low_rank(small_llama[1], tuple(NAMES), seed=2)))
    with assistant(path, context=128, cores=(0,)) as opened:
        want = [t.id for t in opened.conversation().say("the cat", most=8)]
    with assistant(path, context=128, cores=(0,), adapter=folder) as opened:
        first = opened.conversation()
        adapted = [t.id for t in first.say("the cat", most=8)]
        again = opened.conversation()
        assert [t.id for t in again.say("the cat", most=8)] == adapted != want and again.answer.reused_tokens > 0
        assert opened.summary(Answer())["adapter"] == folder.name
        opened.model.adapt()
        plain = opened.conversation()
        assert [t.id for t in plain.say("the cat", most=8)] == want and plain.answer.reused_tokens == 0


def test_what_is_refused(write_model: WriteDecoder, tmp_path: Path) -> None:
    a, b = np.zeros((RANK, 96)), np.zeros((96, RANK))
    q = "model.layers.0.self_attn.q_proj"
    with LanguageModel(Path(__file__).parent / "data" / "llama", context=16) as model:
        with pytest.raises(ModelError, match=r"adapts 'model\.layers\.9\.self_attn\.q_proj', which is no product"):
            model.attach("x", write_peft(tmp_path / "a", {"model.layers.9.self_attn.q_proj": (a, b)}))
        with pytest.raises(ModelError, match=r"with \(4, 96\) and \(90, 4\), and its weight is \(96, 96\)"):
            model.attach("x", write_peft(tmp_path / "a", {q: (a, b[:90])}))
        with pytest.raises(UnsupportedModelError, match="asks for use_dora"):
            model.attach("x", write_peft(tmp_path / "a", {q: (a, b)}, use_dora=True))
        with pytest.raises(ModelError, match="says no rank"):
            model.attach("x", write_peft(tmp_path / "a", {q: (a, b)}, r=0))
        with pytest.raises(ModelError, match="is no adapter: adapter_config"):
            model.attach("x", tmp_path)
        with pytest.raises(ModelError, match="is no low-rank adapter"):
            model.attach(
                "x", write_gguf_adapter(write_model, tmp_path / "x.gguf", {"blk.0.attn_q.weight": (a, b)}, **{"adapter.type": "other"})
            )
        model.attach("x", write_peft(tmp_path / "a", {q: (a, b)}))
        with pytest.raises(OptionError, match="cannot be called 'x'"):
            model.attach("x", tmp_path / "a")
        with pytest.raises(OptionError, match="no adapter 'y' is attached: there is x"):
            model.adapt("y")
