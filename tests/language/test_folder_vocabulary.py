"""Vocabularies of Hugging Face folders against what transformers makes of texts (``make_tokenizers.py``), and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.language.chat_template import render
from hetsched.language.folder_vocabulary import read_folder_vocabulary

DATA = Path(__file__).parent / "data"
FOLDERS = ("llama", "qwen2", "gemma3", "mixtral", "mamba", "tokenizers/smollm2", "tokenizers/llama2", "tokenizers/phi3")
Edit = Callable[[str, Callable[[dict[str, Any]], Any]], Path]


@pytest.fixture
def folder_of(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a folder's small files, with a configuration."""

    def copied(name: str) -> Path:
        out = tmp_path / name.replace("/", "-")
        out.mkdir()
        for file in (DATA / name).iterdir():
            if file.suffix in (".json", ".jinja"):
                shutil.copy(file, out)
        if not (out / "config.json").is_file():
            (out / "config.json").write_text(json.dumps({"vocab_size": 320}))
        return out

    return copied


@pytest.fixture
def edited(folder_of: Callable[[str], Path]) -> Callable[..., Path]:
    """A copy of a folder in which something was changed in ``tokenizer.json``."""

    def change(name: str, edit: Callable[[dict[str, Any]], Any], file: str = "tokenizer.json") -> Path:
        folder = folder_of(name)
        fields = json.loads((folder / file).read_text(encoding="utf-8"))
        edit(fields)
        (folder / file).write_text(json.dumps(fields), encoding="utf-8")
        return folder

    return change


@pytest.mark.parametrize("name", FOLDERS)
def test_tokens_are_those_of_transformers(name: str, folder_of: Callable[[str], Path]) -> None:
    golden = json.loads((DATA / name / "tokens.json").read_text(encoding="utf-8"))
    vocabulary = read_folder_vocabulary(folder_of(name))
    assert len(golden["cases"]) >= 15
    for case in golden["cases"]:
        assert vocabulary.encode(case["text"]) == case["ids"], case["text"]
        assert vocabulary.encode(case["text"], begin=True) == case["begun"], case["text"]
        decoded = vocabulary.decode(case["ids"], special=True)
        assert decoded in (case["decoded"], " " + case["decoded"]), case["text"]  # the library takes a space in front away


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3", "mixtral"])
def test_turns_are_those_of_transformers(name: str) -> None:
    chat = json.loads((DATA / name / "tokens.json").read_text(encoding="utf-8"))["chat"]
    vocabulary = read_folder_vocabulary(DATA / name)
    begin, end = (vocabulary.tokens[t] if t is not None else "" for t in (vocabulary.begin, vocabulary.end))
    text = render(vocabulary.template, chat["messages"], begin=begin, end=end)
    assert text == chat["text"]
    assert vocabulary.encode(text) == chat["ids"]


def test_tokens_that_end_an_answer(edited: Callable[..., Path]) -> None:
    assert read_folder_vocabulary(DATA / "llama").ends == {0, 2}  # generation_config.json
    assert read_folder_vocabulary(DATA / "gemma3").ends == {2}  # config.json

    def silent(fields: dict[str, Any]) -> None:
        fields.pop("eos_token_id")

    assert read_folder_vocabulary(edited("qwen2", silent, "config.json")).ends == {0, 2}  # known texts


def test_a_model_may_have_more_or_fewer_scores_than_tokens(edited: Callable[..., Path]) -> None:
    more = read_folder_vocabulary(edited("llama", lambda c: c.update(vocab_size=384), "config.json"))
    assert len(more) == 384
    assert more.decode([319, 380]) == more.decode([319])
    assert more.encode("the") == read_folder_vocabulary(DATA / "llama").encode("the")


def test_tokens_beyond_the_scores_do_not_exist(edited: Callable[..., Path]) -> None:
    folder = edited("gemma3", lambda t: t["added_tokens"].append(dict(t["added_tokens"][0], id=320, content="<image>")))
    vocabulary = read_folder_vocabulary(folder)
    assert len(vocabulary) == 320
    assert max(vocabulary.encode("<image>")) < 320


def _step(part: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda t: t.update({part: value})


def _model(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda t: t["model"].update(changes)


@pytest.mark.parametrize(
    ("name", "edit", "match"),
    [
        ("llama", _step("normalizer", {"type": "Lowercase"}), "the normalizer 'Lowercase'"),
        ("llama", _step("pre_tokenizer", {"type": "BertPreTokenizer"}), "neither writes bytes as characters|pre-tokenizer 'BertPre"),
        ("llama", lambda t: t["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex="(a+)+$"), r"pre-tokenizer 'Split' .*\(a\+\)\+"),
        ("llama", lambda t: t["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True), "pre-tokenizer 'ByteLevel'"),
        ("llama", _step("post_processor", {"type": "BertProcessing"}), "post-processor 'BertProcessing'"),
        (
            "llama",
            lambda t: t["post_processor"]["processors"][1]["single"].append({"SpecialToken": {"id": "<|end|>"}}),
            "more around a text",
        ),
        ("llama", _model(type="Unigram"), "the model 'Unigram'"),
        ("llama", _model(vocab=[["a", -1.0]]), "byte pairs .BPE. are read"),
        ("llama", _model(end_of_word_suffix="</w>"), "has a end_of_word_suffix"),
        ("gemma3", _model(byte_fallback=False), "without bytes as a last resort"),
        ("gemma3", _step("normalizer", None), "pre-tokenizer 'Split'"),
        ("mixtral", _step("pre_tokenizer", None), "neither writes bytes as characters nor replaces spaces"),
        ("llama", lambda t: t["added_tokens"][0].update(single_word=True), "counts as a word only"),
        ("tokenizers/llama2", lambda t: t["added_tokens"][0].update(normalized=True), "in text that was changed before"),
    ],
)
def test_what_is_not_read_is_refused_by_name(name: str, edit: Any, match: str, edited: Callable[..., Path]) -> None:
    with pytest.raises(UnsupportedModelError, match=match):
        read_folder_vocabulary(edited(name, edit))


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (_model(merges=[["a", "b", "c"]]), "which is no pair"),
        (_model(merges=None), "which is no pair"),
        (lambda t: t["model"]["vocab"].update(a=-1), "whose id is not from 0"),
        (lambda t: t["model"]["vocab"].update(a="1"), "whose id is not from 0"),
        (lambda t: t["added_tokens"].append({"id": "x"}), "without a text or an id"),
    ],
)
def test_damage_is_named(edit: Any, match: str, edited: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match=match):
        read_folder_vocabulary(edited("llama", edit))


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a description, but only the first of the tokens and merges."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [path, *(p for k in keys[: 2 if len(keys) > 20 else None] for p in _places(value[k], (*path, k)))]


@pytest.mark.parametrize("name", ["llama", "gemma3", "mixtral"])
@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_any_other_value_is_read_or_refused(name: str, file: str, folder_of: Callable[[str], Path]) -> None:
    """Nothing but errors of the model, whatever stands where."""
    folder = folder_of(name)
    text = (folder / file).read_text(encoding="utf-8")
    refused = 0
    for place in _places(json.loads(text))[1:]:
        for junk in (None, True, -1, 1 << 40, "x", [], {}, [1], ["a", "b"], {"type": "x"}, [{}], {"a": 1}):
            whole = json.loads(text)
            holder = whole
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = junk
            (folder / file).write_text(json.dumps(whole), encoding="utf-8")
            try:
                read_folder_vocabulary(folder).encode("a <s> b")
            except ModelError:
                refused += 1
    assert refused or file != "tokenizer.json"


def test_a_truncated_or_absent_file(folder_of: Callable[[str], Path], edited: Callable[..., Path], tmp_path: Path) -> None:
    folder = folder_of("llama")
    whole = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(whole[:-200])
    with pytest.raises(ModelError, match="is not valid JSON"):
        read_folder_vocabulary(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        read_folder_vocabulary(folder)
    (tmp_path / "other.json").write_bytes(whole)
    (folder / "tokenizer.json").symlink_to(tmp_path / "other.json")
    with pytest.raises(ModelError, match="leads outside the model's folder"):
        read_folder_vocabulary(folder)
    with pytest.raises(ModelError, match="vocab_size 'many'"):
        read_folder_vocabulary(edited("qwen2", lambda c: c.update(vocab_size="many"), "config.json"))


def test_long_texts_are_cut_in_time_that_grows_with_them() -> None:
    """A whole prompt is one word of a vocabulary of pieces."""
    text = (DATA / "text.txt").read_text(encoding="utf-8")
    vocabulary = read_folder_vocabulary(DATA / "gemma3")
    assert vocabulary.decode(vocabulary.encode(text)) == text
