"""The vocabulary of a Hugging Face folder: ``tokenizer.json``, and what the small files beside it say of its tokens and turns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetsched.errors import ModelError
from hetsched.frontends.hf_files import bytes_beside, fields_beside
from hetsched.language.json_vocabulary import MAX_BYTES, MAX_TOKENS, JsonVocabulary, read_json_vocabulary

_VOCABULARY, _TEMPLATE = "tokenizer.json", "chat_template.jinja"


def read_folder_vocabulary(folder: Path) -> JsonVocabulary:
    """The vocabulary and the chat template of the folder.

    ``tokenizer.json`` has tokens and merges; ``tokenizer_config.json`` (before it ``special_tokens_map.json``) names the tokens that begin
    and end a text; ``generation_config.json`` and ``config.json`` say which end an answer; the template is ``chat_template.jinja``, or in
    ``chat_template.json`` or ``tokenizer_config.json``.

    Raises:
        ModelError: a file is absent or damaged.
        UnsupportedModelError: the vocabulary does something that is not read.
    """
    raw = bytes_beside(folder, _VOCABULARY, MAX_BYTES)
    if raw is None:
        raise ModelError(f"{str(folder)!r} has no {_VOCABULARY}, so that text cannot be made into tokens: fetch it, too")
    config, generation, settings = (fields_beside(folder, n) for n in ("config.json", "generation_config.json", "tokenizer_config.json"))
    settings = fields_beside(folder, "special_tokens_map.json") | settings
    text = config.get("text_config")
    size = next((c["vocab_size"] for c in (text, config) if isinstance(c, Mapping) and "vocab_size" in c), None)
    if type(size) is not int or not 1 <= size <= MAX_TOKENS:
        raise ModelError(f"the configuration of {str(folder)!r} has the vocab_size {size!r}: it must be from 1 to {MAX_TOKENS}")
    stops = _numbers(generation.get("eos_token_id")) or _numbers(config.get("eos_token_id"))
    begin, end = _text(settings.get("bos_token")), _text(settings.get("eos_token"))
    return read_json_vocabulary(
        raw, f"the vocabulary {str(folder / _VOCABULARY)!r}", size, begin=begin, end=end, stops=stops, template=_template(folder, settings),
        adds_begin=bool(settings.get("add_bos_token", False)),
    )  # fmt: skip


def _text(token: object) -> str:
    """A token's text, which some files describe at length."""
    found = token.get("content") if isinstance(token, Mapping) else token
    return found if isinstance(found, str) else ""


def _numbers(value: object) -> tuple[int, ...]:
    """One id, or several."""
    return tuple(v for v in (value if isinstance(value, list) else [value]) if type(v) is int)


def _template(folder: Path, settings: Mapping[str, Any]) -> str:
    """The chat template; of several that of the name ``default``."""
    raw = bytes_beside(folder, _TEMPLATE)
    if raw is not None:
        return raw.decode("utf-8", "replace")
    found = fields_beside(folder, "chat_template.json").get("chat_template", settings.get("chat_template", ""))
    if isinstance(found, list):
        found = {str(t.get("name")): t.get("template") for t in found if isinstance(t, Mapping)}.get("default", "")
    return found if isinstance(found, str) else ""
