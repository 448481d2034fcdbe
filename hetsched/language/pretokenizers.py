"""Cutting text into words before byte-pair merges: the patterns that GGUF files name in ``tokenizer.ggml.pre``.

Python's ``re`` has no classes of Unicode categories. A text in ASCII needs none; for others the ranges of letters and numbers
are listed once from ``unicodedata``. Patterns: those of the models' published tokenizers (GPT-2, Llama 3, Qwen 2, SmolLM).
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache

from hetsched.errors import UnsupportedModelError

#: White space as Unicode has it (``\\s`` of Python has four separators more).
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?[{L}]+| ?[{N}]+| ?[^{S}{L}{N}]+|[{S}]+(?![^{S}])|[{S}]+"
_LLAMA3 = (
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n{L}{N}]?[{L}]+|[{N}]{{1,{digits}}}"
    r"| ?[^{S}{L}{N}]+[\r\n]*|[{S}]*[\r\n]+|[{S}]+(?![^{S}])|[{S}]+"
)
_DIGITS = r"[{N}]|[^{N}]+"
#: Patterns of each family, applied one within the pieces of the other.
_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (_DIGITS, _GPT2),
    "llama-bpe": (_LLAMA3.replace("{digits}", "3"),),
    "qwen2": (_LLAMA3.replace("{digits}", "1"),),
}
_SAME: Mapping[str, str] = {
    "default": "gpt-2", "gpt2": "gpt-2", "phi-2": "gpt-2", "olmo": "gpt-2", "jais": "gpt-2", "llama3": "llama-bpe", "llama-v3": "llama-bpe",
    "smaug-bpe": "llama-bpe", "starcoder": "smollm", "refact": "smollm", "command-r": "smollm", "codeshell": "smollm", "stablelm2": "qwen2",
    "deepseek-r1-qwen": "qwen2", "qwen35": "qwen2",
}  # fmt: skip


def split_words(text: str, family: str) -> list[str]:
    """The words of a text; joined they are the text.

    Args:
        text: any text.
        family: ``tokenizer.ggml.pre``.

    Raises:
        UnsupportedModelError: the family's pattern is not known.

    Examples:
        >>> split_words("It's 12 o'clock", "smollm")
        ['It', "'s", ' ', '1', '2', ' o', "'", 'clock']
    """
    name = _SAME.get(family, family)
    if name not in _PATTERNS:
        known = ", ".join(sorted({*_PATTERNS, *_SAME}))
        raise UnsupportedModelError(f"the vocabulary cuts text as {family!r} does, which is not known; known are {known}")
    words = [text]
    for pattern in _compiled(name, text.isascii()):
        words = [found for word in words for found in pattern.findall(word)]
    return words


@cache
def _compiled(name: str, ascii_only: bool) -> tuple[re.Pattern[str], ...]:
    letters, numbers = ("A-Za-z", "0-9") if ascii_only else (_ranges("L"), _ranges("N"))
    return tuple(re.compile(p.format(L=letters, N=numbers, S=_SPACE)) for p in _PATTERNS[name])


@cache
def _ranges(category: str) -> str:
    """A character class's contents: all characters whose category begins so."""
    return "".join(chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in _runs(category))


def _runs(category: str) -> Iterator[tuple[int, int]]:
    begin = -1
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == category
        if inside and begin < 0:
            begin = code
        elif not inside and begin >= 0:
            yield begin, code - 1
            begin = -1
