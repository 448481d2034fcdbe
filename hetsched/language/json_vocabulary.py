"""The vocabulary in a ``tokenizer.json``: byte pairs, on bytes or (as sentencepiece models are exported) on characters.

It is read here rather than by the ``tokenizers`` library, which would bring a client for downloads along and would run patterns of an
untrusted file: the cutting and merging are those of GGUF vocabularies, and answers need the bytes of each token in either case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.safetensors_header import parse_json
from hetsched.language import byte_pairs, scored_pieces
from hetsched.language.tokenizer_steps import EACH, Steps, flat, read_steps
from hetsched.language.vocabulary import BYTE, CONTROL, USER_DEFINED, Vocabulary

#: Longest file in bytes, and most tokens.
MAX_BYTES, MAX_TOKENS = 1 << 26, 1 << 22


@dataclass(frozen=True)
class JsonVocabulary(Vocabulary):
    """A :class:`Vocabulary` whose merges are of pieces rather than by score.

    Attributes:
        steps: what happens to a text before.
        pairs: merges in order of rank.
        whole_words: a word that is a token is not merged.
        before: added tokens that take the white space before them along.
        after: those that take the white space after them along.
        stops: tokens that end an answer; empty: those whose texts are known to.
    """

    steps: Steps = field(default_factory=Steps)
    pairs: Sequence[tuple[str, str]] = field(default=(), repr=False)
    whole_words: bool = False
    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    stops: frozenset[int] = frozenset()

    @cached_property
    def ends(self) -> frozenset[int]:
        """Tokens after which nothing is generated."""
        return self.stops or super().ends

    @cached_property
    def _ranks(self) -> Mapping[tuple[str, str], int]:
        return {p: i for i, p in reversed(list(enumerate(self.pairs)))}

    def _parts(self, text: str, *, special: bool) -> list[str]:
        parts = super()._parts(text, special=special)
        for n in range(1, len(parts), 2):
            if parts[n] in self.before:
                parts[n - 1] = parts[n - 1].rstrip()
            if parts[n] in self.after:
                parts[n + 1] = parts[n + 1].lstrip()
        return parts

    def _plain(self, text: str, *, first: bool) -> list[int]:
        out: list[int] = []
        for word in self.steps.cut(text, first=first):
            if not self.steps.family and not self.steps.words:
                return self._tokens_of(word)
            if word not in self._words:
                self._words[word] = tuple(self._tokens_of(word))
            out += self._words[word]
        return out

    def _tokens_of(self, word: str) -> list[int]:
        characters = byte_pairs.written(word) if self.steps.family else word
        if self.whole_words and characters in self.ids:
            return [self.ids[characters]]
        merged = byte_pairs.merged if self.steps.family else scored_pieces.merged_by_rank
        return [i for p in merged(characters, self._ranks) for i in self._piece(p)]


def read_json_vocabulary(raw: bytes, where: str, size: int, **said: Any) -> JsonVocabulary:
    """The vocabulary that a file describes.

    Args:
        raw: contents of a ``tokenizer.json``.
        where: the file, for messages.
        size: tokens that the model has scores for; further ones do not exist for it.
        said: what other files say: ``begin`` and ``end`` as texts, ``template``, ``stops``, ``adds_begin`` (where this one does not).

    Raises:
        ModelError: it is damaged.
        UnsupportedModelError: it does something that is not read.
    """
    whole = parse_json(raw, where)
    model = whole.get("model")
    if not isinstance(model, Mapping) or not isinstance(model.get("vocab"), Mapping):
        kind = model.get("type", "of no type") if isinstance(model, Mapping) else "absent"
        raise UnsupportedModelError(f"{where} has the model {str(kind)[:40]!r}: byte pairs (BPE) are read, use a GGUF file of it")
    steps = read_steps(whole.get("normalizer"), whole.get("pre_tokenizer"), where)
    _check_model(model, steps, where)
    added = _added(whole.get("added_tokens"), steps, where)
    tokens, types = _tokens(model["vocab"], added, size, not steps.family, where)
    ids = {t: i for i, t in reversed(list(enumerate(tokens)))}
    begin, end, unknown = (
        ids.get(str(said.get(n) or model.get(other) or "")) for n, other in (("begin", ""), ("end", ""), ("", "unk_token"))
    )
    first, adds = _begin(whole.get("post_processor"), ids, where)
    return JsonVocabulary(
        "gpt2" if steps.family else "llama", steps.family, tokens, types, begin=begin if first is None else first, end=end, unknown=unknown,
        adds_begin=bool(said.get("adds_begin", False)) if adds is None else adds, adds_space=steps.lead != "never",
        template=str(said.get("template", "")), steps=steps, pairs=_pairs(model.get("merges"), where),
        whole_words=bool(model.get("ignore_merges", False)), before=frozenset(t for t, a in added.items() if a.get("lstrip")),
        after=frozenset(t for t, a in added.items() if a.get("rstrip")), stops=frozenset(said.get("stops", ())) & set(range(len(tokens))),
    )  # fmt: skip


def _check_model(model: Mapping[str, Any], steps: Steps, where: str) -> None:
    """Refuse what other byte-pair models do."""
    if model.get("type", "BPE") != "BPE":
        raise UnsupportedModelError(f"{where} has the model {str(model['type'])[:40]!r}: byte pairs (BPE) are read, use a GGUF file of it")
    strange = next((k for k in ("dropout", "continuing_subword_prefix", "end_of_word_suffix") if model.get(k)), None)
    if strange is not None:
        raise UnsupportedModelError(f"{where} has a {strange} ({str(model[strange])[:40]!r}), which is not read")
    if not steps.family and not model.get("byte_fallback"):
        raise UnsupportedModelError(f"{where} has pieces without bytes as a last resort (byte_fallback), which is not read")


def _added(described: object, steps: Steps, where: str) -> dict[str, Mapping[str, Any]]:
    """Added tokens by their text."""
    out: dict[str, Mapping[str, Any]] = {}
    for one in described if isinstance(described, list) else []:
        text, number = (one.get("content"), one.get("id")) if isinstance(one, Mapping) else (None, None)
        if not isinstance(text, str) or type(number) is not int or not text:
            raise ModelError(f"{where} has an added token without a text or an id: it is damaged")
        if one.get("single_word"):
            raise UnsupportedModelError(f"{where} has the added token {text[:40]!r}, which counts as a word only: this is not read")
        if one.get("normalized") and (steps.lead == EACH or (steps.composed and not text.isascii())):
            raise UnsupportedModelError(
                f"{where} looks for the added token {text[:40]!r} in text that was changed before: this is not read"
            )
        out[text] = one
    return out


def _tokens(
    vocab: Mapping[str, Any], added: Mapping[str, Mapping[str, Any]], size: int, pieces: bool, where: str
) -> tuple[list[str], list[int]]:  # fmt: skip
    """Text and type of every token that the model has."""
    numbers = dict(vocab) | {t: a["id"] for t, a in added.items()}
    if not all(type(n) is int and 0 <= n < MAX_TOKENS for n in numbers.values()):
        raise ModelError(f"{where} has a token whose id is not from 0 to {MAX_TOKENS - 1}: it is damaged")
    tokens, types = [""] * size, [1] * size
    for text, number in numbers.items():
        if number < size:
            tokens[number] = text
            types[number] = BYTE if pieces and len(text) == 6 and text.startswith("<0x") else 1
    for text, one in added.items():
        if one["id"] < size:
            tokens[one["id"]], types[one["id"]] = text, CONTROL if one.get("special") else USER_DEFINED
    return tokens, types


def _pairs(merges: object, where: str) -> list[tuple[str, str]]:
    """Merges, which older files write as one text each."""
    out = []
    for one in merges if isinstance(merges, list) else [None]:
        pair = one.split(" ") if isinstance(one, str) else one
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(p, str) for p in pair):
            raise ModelError(f"{where} has the merge {str(one)[:40]!r}, which is no pair: it is damaged")
        out.append((pair[0], pair[1]))
    return out


def _begin(described: object, ids: Mapping[str, int], where: str) -> tuple[int | None, bool | None]:
    """The token that is put before texts, and whether one is; None where the file does not say."""
    steps = flat(described, "processors", where)
    strange = next((s for s in steps if s["type"] not in ("ByteLevel", "TemplateProcessing")), None)
    if strange is not None:
        raise UnsupportedModelError(f"{where} has the post-processor {strange['type'][:40]!r}, which is not read")
    template = next((s for s in steps if s["type"] == "TemplateProcessing"), None)
    if template is None:
        return None, None
    single = template.get("single")
    names = [next(iter(part), "") for part in single] if isinstance(single, list) and all(isinstance(p, dict) for p in single) else []
    if names == ["Sequence"]:
        return None, False
    token = single[0]["SpecialToken"] if isinstance(single, list) and names == ["SpecialToken", "Sequence"] else None
    text = token.get("id") if isinstance(token, Mapping) else None
    if not isinstance(text, str) or text not in ids:
        raise UnsupportedModelError(f"{where} puts more around a text than one token before it ({names}): this is not read")
    return ids[text], True
