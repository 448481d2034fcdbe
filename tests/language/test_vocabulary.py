"""Text to tokens and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.language.byte_pairs import byte_characters
from hetsched.language.chat_template import render
from hetsched.language.gguf_vocabulary import read_vocabulary
from hetsched.language.pretokenizers import split_words
from hetsched.language.vocabulary import Vocabulary

MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"
needs_model = pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is absent: run 'make models'")
BYTES = Vocabulary("gpt2", "smollm", byte_characters())
PIECES = Vocabulary(
    "llama", "", ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "\u2581", "a", "b", "\u2581a", "ab", "\u2581ab"],
    [2, 3, 3, *[6] * 256, *[1] * 6], scores=[0.0, 0.0, 0.0, *[0.0] * 256, -9.0, -8.0, -7.0, -3.0, -2.0, -1.0], begin=1, end=2, unknown=0,
    adds_begin=True,
)  # fmt: skip


@pytest.mark.real_models
@needs_model
def test_tokens_are_those_of_hugging_face_s_tokenizers() -> None:
    golden = json.loads((Path(__file__).parent / "data" / "smollm2_tokens.json").read_text())
    vocabulary = read_vocabulary(MODEL)
    for case in golden["cases"]:
        assert vocabulary.encode(case["text"]) == case["ids"], case["text"]
        assert vocabulary.decode(case["ids"]) == case["text"]


@pytest.mark.real_models
@needs_model
def test_the_prompt_of_the_golden_answer() -> None:
    vocabulary = read_vocabulary(MODEL)
    text = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    assert vocabulary.encode(text) == [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
    assert vocabulary.ends == {0, 2}
    assert 1 not in vocabulary.encode(text, special=False)
    said = render(vocabulary.template, [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])
    assert said == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"


@given(st.text())
def test_bytes_can_write_any_text(text: str) -> None:
    ids = BYTES.encode(text)
    assert b"".join(BYTES.bytes_of(i) for i in ids) == text.encode("utf-8", "surrogatepass")


@given(st.text(), st.sampled_from(["gpt-2", "smollm", "llama-bpe", "qwen2"]))
def test_words_joined_are_the_text(text: str, family: str) -> None:
    assert "".join(split_words(text, family)) == text


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("gpt-2", ["It", "'s", " 12345", "  ", " x", "\n\n"]),
        ("smollm", ["It", "'s", " ", "1", "2", "3", "4", "5", "  ", " x", "\n\n"]),
        ("llama-bpe", ["It", "'s", " ", "123", "45", "  ", " x", "\n\n"]),
        ("qwen2", ["It", "'s", " ", "1", "2", "3", "4", "5", "  ", " x", "\n\n"]),
    ],
)
def test_families_cut_numbers_their_own_way(family: str, words: list[str]) -> None:
    assert split_words("It's 12345   x\n\n", family) == words
    with pytest.raises(UnsupportedModelError, match="cuts text as 'other' does, which is not known"):
        split_words("x", "other")


def test_pieces_are_joined_by_score_and_bytes_are_the_last_resort() -> None:
    assert [PIECES.tokens[i] for i in PIECES.encode("ab ab")] == ["\u2581ab", "\u2581ab"]
    assert PIECES.encode("a", begin=True) == [1, PIECES.ids["\u2581a"]]
    assert [PIECES.tokens[i] for i in PIECES.encode("é")] == ["\u2581", "<0xC3>", "<0xA9>"]
    assert PIECES.decode(PIECES.encode("ab é")) == " ab é"
    assert PIECES.decode([1, 2]) == "" and PIECES.decode([1, 2], special=True) == "<s></s>"


def test_what_a_vocabulary_may_not_be() -> None:
    with pytest.raises(UnsupportedModelError, match="of the kind 'bert'"):
        Vocabulary("bert", "", ["a"])
    with pytest.raises(ModelError, match="2 tokens and 1 types"):
        Vocabulary("gpt2", "", ["a", "b"], [1])
    with pytest.raises(ModelError, match="the end token is 7, and the vocabulary has 1 tokens"):
        Vocabulary("gpt2", "", ["a"], end=7)
    with pytest.raises(UnsupportedModelError, match="no token for 'z'"):
        Vocabulary("gpt2", "smollm", ["a"]).encode("z")


def test_a_file_without_a_vocabulary(write_decoder: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match="has no vocabulary"):
        read_vocabulary(write_decoder())


def test_templates_run_in_a_sandbox() -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(ModelError, match="cannot be rendered"):
        render("{{ ''.__class__.__mro__[1].__subclasses__() }}", messages)
    with pytest.raises(ModelError, match="cannot be rendered"):
        render("{% for %}", messages)
    with pytest.raises(OptionError, match="refuses these messages: no system"):
        render("{{ raise_exception('no system') }}", messages)
    with pytest.raises(ModelError, match="more than"):
        render("{% for i in range(99999) %}{{ 'x' * 999999 }}{% endfor %}", messages)
    assert render("{{ bos_token }}{{ messages[0].content | tojson }}{{ eos_token }}", messages, begin="<s>", end="</s>") == '<s>"hi"</s>'
