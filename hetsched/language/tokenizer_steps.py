"""What ``tokenizer.json`` does with a text before it looks for tokens: its normalizer and pre-tokenizer.

Those of byte-level vocabularies (GPT-2, SmolLM2, Llama 3, Qwen 2, GPT-NeoX) and of exported sentencepiece models (Llama 2, Mistral,
Gemma) are read; every other step is refused by its name, since a text that is cut otherwise gives other tokens than the model was
trained on. Patterns are compared with the published ones, never run as they come: the file is not trusted.

Format: the ``tokenizers`` library of Hugging Face (https://huggingface.co/docs/tokenizers/components).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.language.pretokenizers import split_words
from hetsched.language.scored_pieces import SPACE

_NUMBERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
#: Patterns that text is cut by, and how :mod:`hetsched.language.pretokenizers` calls them.
_FAMILIES: Mapping[str, str] = {
    _NUMBERS % "{1,3}": "llama-bpe", _NUMBERS % "": "qwen2",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt-2",
}  # fmt: skip
_WORDS = re.compile(f"{SPACE}[^{SPACE}]*|[^{SPACE}]+")
#: When a space is put in front: at the beginning of a text, of every piece between special tokens, or of those even if they begin with one.
NEVER, FIRST, ALWAYS, EACH = "never", "first", "always", "each"


@dataclass(frozen=True, slots=True)
class Steps:
    """What happens to a text.

    Attributes:
        family: how text is cut into words that are written as bytes; empty: spaces become U+2581 instead.
        lead: when a space is put in front of such a text.
        composed: characters are composed first (NFC).
        words: such a text is cut before its spaces.
    """

    family: str = ""
    lead: str = NEVER
    composed: bool = False
    words: bool = False

    def cut(self, text: str, *, first: bool) -> Iterator[str]:
        """The words of a text that is not empty; ``first``: it begins the whole."""
        if self.composed:
            text = unicodedata.normalize("NFC", text)
        if self.family:
            yield from split_words(text, self.family)
            return
        text = text.replace(" ", SPACE)
        if self.lead == EACH or (not text.startswith(SPACE) and (self.lead == ALWAYS or (self.lead == FIRST and first))):
            text = SPACE + text
        yield from _WORDS.findall(text) if self.words else (text,)


def read_steps(normalizer: object, pre_tokenizer: object, where: str) -> Steps:
    """The steps that two parts of a ``tokenizer.json`` describe.

    Raises:
        ModelError: one of them is damaged.
        UnsupportedModelError: one of them is not known here.
    """
    steps, replaced = Steps(), False
    for one in flat(normalizer, "normalizers", where):
        kind = one.get("type")
        if kind == "NFC":
            steps = replace(steps, composed=True)
        elif kind == "Prepend" and one.get("prepend") == SPACE:
            steps = replace(steps, lead=EACH)
        elif kind == "Replace" and one.get("pattern") == {"String": " "} and one.get("content") == SPACE:
            replaced = True
        else:
            raise _unknown(where, "normalizer", one)
    before = flat(pre_tokenizer, "pretokenizers", where)
    if before and before[-1].get("type") == "ByteLevel":
        if replaced or steps.lead != NEVER:
            raise UnsupportedModelError(f"{where} both replaces spaces and writes bytes as characters: this is not read")
        return replace(steps, family=_family(before, where))
    return _pieces(steps, before, replaced, where)


def _family(before: Sequence[Mapping[str, Any]], where: str) -> str:
    """How text is cut before its bytes are written as characters."""
    *first, level = before
    if level.get("add_prefix_space", True):
        raise _unknown(where, "pre-tokenizer", level)
    own = level.get("use_regex", True)
    if not first and own:
        return "gpt-2"
    if len(first) == 1 and own and first[0].get("type") == "Digits" and first[0].get("individual_digits") is True:
        return "smollm"
    if len(first) == 1 and not own and first[0].get("type") == "Split":
        one, pattern = first[0], first[0].get("pattern")
        text = pattern.get("Regex") if isinstance(pattern, Mapping) else None
        if isinstance(text, str) and text in _FAMILIES and str(one.get("behavior")).lower() == "isolated" and not one.get("invert"):
            return _FAMILIES[text]
    raise _unknown(where, "pre-tokenizer", first[0] if first else level)


def _pieces(steps: Steps, before: Sequence[Mapping[str, Any]], replaced: bool, where: str) -> Steps:
    """What happens where spaces become U+2581."""
    for one in before:
        kind = one.get("type")
        if kind == "Metaspace" and not replaced and len(before) == 1 and one.get("replacement") == SPACE:
            lead = one.get("prepend_scheme", ALWAYS if one.get("add_prefix_space", True) else NEVER)
            if lead not in (NEVER, FIRST, ALWAYS):
                raise _unknown(where, "pre-tokenizer", one)
            return replace(steps, lead=lead, words=bool(one.get("split", True)))
        if not (kind == "Split" and replaced and one.get("pattern") == {"String": " "} and not one.get("invert")):
            raise _unknown(where, "pre-tokenizer", one)
    if not replaced:
        raise UnsupportedModelError(f"{where} neither writes bytes as characters nor replaces spaces: such vocabularies are not read")
    return steps


def flat(part: object, key: str, where: str) -> list[Mapping[str, Any]]:
    """The steps of a part, those of a sequence one by one; none where it is null.

    Raises:
        ModelError: it is no description of a step.
    """
    if part is None:
        return []
    found: Any = part.get(key) if isinstance(part, Mapping) and part.get("type") == "Sequence" else [part]
    steps: list[Any] = found if isinstance(found, list) else [None]
    for one in steps:
        if not isinstance(one, Mapping) or not isinstance(one.get("type"), str):
            raise ModelError(f"{where} has {str(one)[:40]!r} where a step with a type belongs: it is damaged")
    return steps


def _unknown(where: str, part: str, one: Mapping[str, Any]) -> UnsupportedModelError:
    about = ", ".join(f"{k} {str(v)[:60]!r}" for k, v in one.items() if k != "type")
    return UnsupportedModelError(
        f"{where} has the {part} {str(one.get('type'))[:40]!r} ({about}), which is not read: use a GGUF file of it"
    )
