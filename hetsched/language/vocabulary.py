"""The vocabulary of a model: text to token ids and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.language import byte_pairs, scored_pieces
from hetsched.language.pretokenizers import split_words

#: ``tokenizer.ggml.token_type``: control, user-defined and byte tokens; the others are normal, unknown or unused.
CONTROL, USER_DEFINED, BYTE = 3, 4, 6
#: Texts of end tokens that files do not always name as such.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eom_id|>")
#: Longest prompt in characters.
MAX_TEXT = 1 << 24
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens and how text is cut into them.

    Attributes:
        kind: ``gpt2`` (byte pairs) or ``llama`` (pieces with scores).
        pre: how ``gpt2`` cuts text into words.
        tokens: text of each token, as the file has it.
        types: of each token, as ``tokenizer.ggml.token_type``; empty where all are normal.
        merges: pairs in order of rank (``gpt2``).
        scores: of each token (``llama``).
        begin: the token that begins a text, or None.
        end: the token that ends one, or None.
        unknown: the token for what cannot be written, or None.
        adds_begin: a plain prompt begins with ``begin``.
        adds_space: a plain prompt begins with a space (``llama``).
        template: the chat template (Jinja), or empty.
    """

    kind: str
    pre: str
    tokens: Sequence[str]
    types: Sequence[int] = ()
    merges: Sequence[str] = ()
    scores: Sequence[float] = ()
    begin: int | None = None
    end: int | None = None
    unknown: int | None = None
    adds_begin: bool = False
    adds_space: bool = True
    template: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.kind not in ("gpt2", "llama"):
            raise UnsupportedModelError(f"the vocabulary is of the kind {self.kind!r}, which is not supported: gpt2 and llama are")
        count = len(self.tokens)
        for name, values in (("types", self.types), ("scores", self.scores)):
            if values and len(values) != count:
                raise ModelError(f"the vocabulary has {count} tokens and {len(values)} {name}: the file is damaged")
        for name, token in (("begin", self.begin), ("end", self.end), ("unknown", self.unknown)):
            if token is not None and not 0 <= token < count:
                raise ModelError(f"the {name} token is {token}, and the vocabulary has {count} tokens: the file is damaged")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ends(self) -> frozenset[int]:
        """Tokens after which nothing is generated."""
        known = {self.ids[t] for t in _ENDS if t in self.ids and self._type(self.ids[t]) in (CONTROL, USER_DEFINED)}
        return frozenset(known | ({self.end} if self.end is not None else set()))

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each token's text."""
        return {t: i for i, t in reversed(list(enumerate(self.tokens)))}

    def encode(self, text: str, *, special: bool = True, begin: bool = False) -> list[int]:
        """Token ids of a text.

        Args:
            text: the text.
            special: texts of control tokens (``<|im_start|>``) become these tokens; otherwise they are plain text.
            begin: put the token in front that begins a text, if the vocabulary wants that.

        Raises:
            OptionError: the text is too long.
            UnsupportedModelError: a character has no token.
        """
        if len(text) > MAX_TEXT:
            raise OptionError(f"the prompt has {len(text)} characters, and at most {MAX_TEXT} are read: shorten it")
        out = [self.begin] if begin and self.adds_begin and self.begin is not None else []
        for n, piece in enumerate(self._parts(text, special=special)):
            if n % 2:
                out.append(self.ids[piece])
            elif piece:
                out += self._plain(piece, first=n == 0)
        return out

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of token ids; control tokens only where ``special``."""
        return b"".join(self.bytes_of(i, special=special) for i in ids).decode("utf-8", "replace")

    def bytes_of(self, token: int, *, special: bool = False) -> bytes:
        """What a token writes, in UTF-8 (a character may come in several tokens)."""
        text, kind = self.tokens[token], self._type(token)
        if kind == CONTROL:
            return text.encode() if special else b""
        if kind == USER_DEFINED:
            return text.encode()
        if self.kind == "gpt2":
            return byte_pairs.read(text)
        if found := _BYTE_TOKEN.fullmatch(text):
            return bytes([int(found[1], 16)])
        return text.replace(scored_pieces.SPACE, " ").encode()

    def _type(self, token: int) -> int:
        return self.types[token] if self.types else 1

    def _parts(self, text: str, *, special: bool) -> list[str]:
        """Plain text and the texts of control and user-defined tokens in turns."""
        return self._marks.split(text) if special and self._marks is not None else [text]

    @cached_property
    def _marks(self) -> re.Pattern[str] | None:
        """Texts of control and user-defined tokens, longest first."""
        texts = {t for t, kind in zip(self.tokens, self.types, strict=False) if kind in (CONTROL, USER_DEFINED) and t}
        if not texts:
            return None
        return re.compile("(" + "|".join(re.escape(t) for t in sorted(texts, key=lambda t: (-len(t), t))) + ")")

    @cached_property
    def _ranks(self) -> Mapping[tuple[str, str], int]:
        pairs = [tuple(m.split(" ", 1)) for m in self.merges]
        return {p: i for i, p in reversed(list(enumerate(pairs))) if len(p) == 2}

    @cached_property
    def _scored(self) -> Mapping[str, float]:
        return dict(zip(self.tokens, self.scores, strict=False))

    @cached_property
    def _words(self) -> dict[str, tuple[int, ...]]:
        """Words that were cut before."""
        return {}

    def _plain(self, text: str, *, first: bool) -> list[int]:
        if self.kind == "llama":
            lead = " " if first and self.adds_space else ""
            pieces = scored_pieces.merged((lead + text).replace(" ", scored_pieces.SPACE), self._scored)
            return [i for p in pieces for i in self._piece(p)]
        out: list[int] = []
        for word in split_words(text, self.pre):
            if word not in self._words:
                characters = byte_pairs.written(word)
                whole = [characters] if characters in self.ids else byte_pairs.merged(characters, self._ranks)
                self._words[word] = tuple(i for p in whole for i in self._piece(p))
            out += self._words[word]
        return out

    def _piece(self, piece: str) -> list[int]:
        if piece in self.ids:
            return [self.ids[piece]]
        if self.kind == "llama":
            found = [self.ids.get(f"<0x{b:02X}>") for b in piece.encode()]
            if None not in found:
                return found  # type: ignore[return-value]
        if self.unknown is None:
            raise UnsupportedModelError(f"the vocabulary has no token for {piece!r} and none for what is unknown")
        return [self.unknown]
