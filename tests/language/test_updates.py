"""Updates of weights: made, applied over a mapped base, and refused."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.app.updating import delta
from hetsched.errors import InputError, ModelError, OptionError
from hetsched.language.decode_graph import decode_graph
from hetsched.language.session import LanguageModel
from hetsched.language.update_file import ENTRY, read_update
from hetsched.versions import version_header

DATA = Path(__file__).parent / "data"
IDS = [5, 7, 11, 13, 17]
Versions = tuple[Path, Path, Path]


@pytest.fixture
def versions(tmp_path: Path, small_llama: Any, write_model: Callable[..., Path]) -> Versions:
    """Three versions of a model in blocks: a matrix and a norm changed, then rows of the embedding, too."""
    metadata, arrays = small_llama
    out = []
    for n in range(3):
        changed = {name: a.copy() for name, a in arrays.items()}
        if n:
            changed["blk.0.attn_q.weight"] += 0.3 * np.sin(np.arange(changed["blk.0.attn_q.weight"].size)).reshape(
                arrays["blk.0.attn_q.weight"].shape
            )
            changed["output_norm.weight"] *= 1.5
        if n > 1:
            changed["token_embd.weight"][[7, 11]] *= 2.0
        fields = metadata | {"general.name": f"version {n}"}
        out.append(write_model(tmp_path / f"v{n}.gguf", fields, changed, "Q8_0"))
    return out[0], out[1], out[2]


def scores(path: Path, *updates: Path, **options: Any) -> np.ndarray[Any, Any]:
    with LanguageModel(path, context=32, updates=updates, **options) as model:
        return model.compute(IDS, model.sequence(), scored=len(IDS)).copy()


def test_an_update_makes_the_new_version(versions: Versions, tmp_path: Path) -> None:
    old, new, _ = versions
    made = delta(old, new, tmp_path / "update.hsdelta")
    assert made.changed == 2 and made.nbytes < made.whole_bytes / 2
    assert made.nbytes == made.path.stat().st_size
    before, want = scores(old), scores(new)
    assert not np.array_equal(before, want)
    np.testing.assert_array_equal(scores(old, made.path), want)
    np.testing.assert_array_equal(scores(old, made.path), want)  # with what the first process kept
    np.testing.assert_array_equal(scores(old), before)


def test_unchanged_weights_stay_mapped_from_the_base_and_changed_ones_from_the_update(versions: Versions, tmp_path: Path) -> None:
    old, new, _ = versions
    update = delta(old, new, tmp_path / "update.hsdelta").path
    tensors = decode_graph(old, 32, [update]).tensors
    assert {n for n, t in tensors.items() if t.data is not None and t.data.path == update} == {"blk.0.attn_q.weight", "output_norm.weight"}
    assert tensors["blk.0.attn_k.weight"].data.path == old  # type: ignore[union-attr]


def test_updates_follow_each_other(versions: Versions, tmp_path: Path) -> None:
    first, second, third = versions
    one, two = delta(first, second, tmp_path / "one.hsdelta"), delta(second, third, tmp_path / "two.hsdelta")
    assert two.changed == 1 and two.nbytes < 2048  # two rows
    np.testing.assert_array_equal(scores(first, one.path, two.path), scores(third))
    with pytest.raises(ModelError, match=f"belongs to weights with the hash {two.base[:16]}, and those of .* have {one.base[:16]}"):
        decode_graph(first, 32, [two.path])
    with pytest.raises(ModelError, match="belongs to weights with the hash"):
        decode_graph(first, 32, [one.path, one.path])


def test_folders_are_updated_too(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(DATA / "llama", old)
    shutil.copytree(DATA / "llama", new)
    raw = bytearray((new / "model.safetensors").read_bytes())
    raw[-1000:] = raw[-2000:-1000]
    (new / "model.safetensors").write_bytes(raw)
    made = delta(old, new / "config.json", tmp_path / "update.hsdelta")
    np.testing.assert_array_equal(scores(old, made.path), scores(new))
    np.testing.assert_array_equal(scores(old, made.path, weight_bits=8), scores(new, weight_bits=8))


def test_an_update_is_replaced_by_an_update_and_nothing_else(versions: Versions, tmp_path: Path) -> None:
    path = delta(*versions[:2], tmp_path / "update.hsdelta").path
    assert delta(versions[1], versions[2], path).changed == 1
    with pytest.raises(OptionError, match="would replace"):
        delta(versions[0], versions[1], versions[1])


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (
            lambda m, a: m.update({"llama.rope.freq_base": 5.0}),
            "differ in 'llama.rope.freq_base', and an update holds values of weights only",
        ),
        (lambda m, a: m.update({"extra.words": ["a", "b"]}), "differ in 'extra.words'"),
        (lambda m, a: a.update({"output.weight": a["output.weight"][:32]}), r"'output.weight' is gguf:Q8_0 .* and gguf:Q8_0 .* in "),
        (lambda m, a: a.pop("output.weight"), "'output.weight' is gguf:Q8_0 .* and absent in "),
        (lambda m, a: None, "have the same weights: there is nothing to send"),
    ],
)
def test_what_an_update_cannot_say(
    edit: Callable[[dict[str, Any], dict[str, Any]], Any], match: str, tmp_path: Path, small_llama: Any, write_model: Callable[..., Path]
) -> None:  # fmt: skip
    metadata, arrays = small_llama
    old = write_model(tmp_path / "old.gguf", metadata, arrays, "Q8_0")
    fields, changed = dict(metadata), dict(arrays)
    edit(fields, changed)
    new = write_model(tmp_path / "new.gguf", fields, changed, "Q8_0")
    with pytest.raises(OptionError, match=match):
        delta(old, new, tmp_path / "update.hsdelta")
    assert not (tmp_path / "update.hsdelta").exists()
    with pytest.raises(OptionError, match="differ in "):
        delta(old, DATA / "llama", tmp_path / "update.hsdelta")


def rewrite(path: Path, edit: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Path:
    """An update with another header: what it says, and the arrays."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    said = json.loads(header["__metadata__"][ENTRY])
    edit(said, header)
    header["__metadata__"][ENTRY] = json.dumps(said)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
    return path


def _shape(said: dict[str, Any], header: dict[str, Any]) -> None:
    said["weights"]["output_norm.weight"]["shape"] = [7]


def _flat(said: dict[str, Any], header: dict[str, Any]) -> None:
    header["bytes/output_norm.weight"]["shape"] = header["bytes/output_norm.weight"]["shape"][::-1]


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda s, h: s.update(minimum_runtime="99.0"), "needs hetsched 99.0 or newer"),
        (lambda s, h: s.update(quantization_schema=2), "has quantization schema 2 and this version reads 1"),
        (lambda s, h: s.update(operator_set="x"), "has operator set 'x'"),
        (lambda s, h: s.pop("minimum_runtime"), "which is no version"),
        (lambda s, h: s.update(base="0" * 64), "belongs to weights with the hash 0000000000000000, and those of"),
        (lambda s, h: s.update(result="0" * 64), "does not give the weights that it was made of"),
        (lambda s, h: s.update(weights={}), "says no base, result or weights"),
        (lambda s, h: s["weights"].update(other={"type": "f32", "shape": [1]}), "no whole description of 'other'"),
        (lambda s, h: s["weights"].pop("output_norm.weight"), "does not give the weights that it was made of"),
        (_shape, r"has 'output_norm.weight' as f32 \[7\], and the base has f32"),
        (_flat, "has rows of 'output_norm.weight' that do not fit its shape"),
        (lambda s, h: h.update(__metadata__={ENTRY: 1}) or h["__metadata__"].pop(ENTRY), "but of something else"),
    ],
)
def test_another_version_or_damage_is_one_clear_sentence(
    edit: Callable[[dict[str, Any], dict[str, Any]], Any], match: str, versions: Versions, tmp_path: Path
) -> None:  # fmt: skip
    path = delta(*versions[:2], tmp_path / "update.hsdelta").path
    if "something else" in match:
        shutil.copy(DATA / "llama" / "model.safetensors", path)
    else:
        rewrite(path, edit)
    with pytest.raises(ModelError, match=match):
        decode_graph(versions[0], 32, [path])


def test_any_other_value_is_refused(versions: Versions, tmp_path: Path) -> None:
    """Nothing but errors of the model, whatever stands where."""
    path = delta(versions[1], versions[2], tmp_path / "update.hsdelta").path
    whole = path.read_bytes()

    def put(value: Any, *keys: str) -> Callable[[dict[str, Any], dict[str, Any]], Any]:
        def edit(said: dict[str, Any], header: dict[str, Any]) -> None:
            holder = said if keys[0] == "said" else header
            for key in keys[1:-1]:
                holder = holder[key]
            holder[keys[-1]] = value

        return edit

    name = "token_embd.weight"
    places = [("said", k) for k in (*version_header(), "base", "result", "weights")]
    places += [("said", "weights", name), ("said", "weights", name, "type"), ("said", "weights", name, "shape")]
    places += [("header", f"{kind}/{name}", k) for kind in ("bytes", "rows") for k in ("dtype", "shape", "data_offsets")]
    for place in places:
        for junk in (None, True, -1, 1 << 40, "x", [], {}, [1], [-1, 2], {"a": 1}, [[1]], [1 << 50, 1 << 50]):
            path.write_bytes(whole)
            rewrite(path, put(junk, *place))
            with pytest.raises(ModelError):
                decode_graph(versions[1], 32, [path])


def test_rows_that_are_not_there(versions: Versions, tmp_path: Path) -> None:
    path = delta(versions[1], versions[2], tmp_path / "update.hsdelta").path
    change = read_update(path).changes["token_embd.weight"]
    assert change.rows is not None and change.rows.tolist() == [7, 11]
    raw = path.read_bytes()
    for rows, match in (
        ([7, 1 << 40], "do not fit its shape"),
        ([11, 7], "does not say which rows"),
        ([7, 12], "does not give the weights"),
    ):
        path.write_bytes(raw.replace(np.array([7, 11], "<i8").tobytes(), np.array(rows, "<i8").tobytes()))
        with pytest.raises(ModelError, match=match):
            decode_graph(versions[1], 32, [path])


def test_files_that_are_no_updates(versions: Versions, tmp_path: Path) -> None:
    path = delta(*versions[:2], tmp_path / "update.hsdelta").path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ModelError, match="ends before the rows"):
        read_update(path)
    path.write_bytes(whole[:100])
    with pytest.raises(ModelError, match="is truncated"):
        read_update(path)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ModelError, match="does not give the weights that it was made of: it is damaged, fetch it again"):
        decode_graph(versions[0], 32, [path])
    with pytest.raises(ModelError, match="is no update of weights"):
        read_update(versions[0])
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_update(tmp_path / "absent")
    with pytest.raises(InputError, match="cannot be read"):
        read_update(tmp_path)


def test_an_update_says_what_it_needs(versions: Versions, tmp_path: Path) -> None:
    path = delta(*versions[:2], tmp_path / "update.hsdelta").path
    header = json.loads(path.read_bytes()[8 : 8 + int.from_bytes(path.read_bytes()[:8], "little")])
    said = json.loads(header["__metadata__"][ENTRY])
    assert said.items() >= version_header().items()
