"""Make the small tokenizers of the language tests and what transformers makes of texts with them, once; the tests need neither.

    python tests/language/make_tokenizers.py tests/language/data

The committed files were written with transformers 5.24.0 and tokenizers on Linux. Each tokenizer is trained on ``text.txt`` with the
pipeline (normalizer, pre-tokenizer, model, decoder, post-processor) of a published family, and 320 tokens, as many as the small models
of :mod:`make_goldens` have. ``tokens.json`` has, for every text, the ids without and with the token that begins a text, what they decode
to, and the ids of a short conversation in the chat template.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SIZE = 320
SPACE = "\u2581"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
SPECIAL = {
    "llama": ("<|pad|>", "<|begin|>", "<|end|>", "<|turn|>"), "qwen2": ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|tool|>"),
    "gemma3": ("<pad>", "<bos>", "<eos>", "<unk>", "<turn>"), "mixtral": ("<unk>", "<s>", "</s>", "[INST]", "[/INST]"),
    "mamba": ("<|endoftext|>", "<|padding|>", "<|stop|>"), "smollm2": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "llama2": ("<unk>", "<s>", "</s>"), "phi3": ("<unk>", "<s>", "</s>", "<|end|>"),
}  # fmt: skip
TEXTS = (
    "The capital of France is Paris.", "It's 12345 o'clock, and they'LL see 3,141.59!", "  two  spaces,\ttabs\n\n  and lines \r\n ",
    "def f(x):\n    return x ** 2  # square\n", "naïve café — 日本語 и русский ελληνικά", "👩‍👩‍👧 🚀 flags 🇫🇷",
    "e\u0301 vs \u00e9, \ufb01 and \u2460 and Ⅷ and ½",
    "", " ", "a", " leading and trailing ", "{0} in the middle{1}of a text{2}\n next", "{0}{1}", "\u00a0nbsp\u2003em\u3000wide", "x" * 70,
)  # fmt: skip
CHAT = [{"role": "user", "content": "Name a city."}, {"role": "assistant", "content": "Paris"}, {"role": "user", "content": "Another?"}]
TURNS = (
    "{{ bos_token }}{% for m in messages %}MARK{{ m['role'] }}\n{{ m['content'] | trim }}END\n{% endfor %}"
    "{% if add_generation_prompt %}MARKassistant\n{% endif %}"
)


def bytes_tokenizer(family: str) -> Tokenizer:
    """Byte pairs on bytes."""
    out = Tokenizer(models.BPE(ignore_merges=family == "llama"))
    whole = family in ("mamba", "smollm2")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=whole)
    before: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if family == "smollm2" else []
    if not whole:
        before = [pre_tokenizers.Split(Regex(LLAMA3 if family == "llama" else QWEN2), "isolated", invert=False)]
    out.pre_tokenizer = pre_tokenizers.Sequence([*before, level]) if before else level
    if family in ("qwen2", "mamba"):
        out.normalizer = normalizers.NFC()
    out.decoder = decoders.ByteLevel()
    out.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    train(out, trainers.BpeTrainer(vocab_size=SIZE, special_tokens=list(SPECIAL[family]), initial_alphabet=alphabet, show_progress=False))
    return out


def pieces_tokenizer(family: str) -> Tokenizer:
    """Byte pairs on characters, with bytes as a last resort: what sentencepiece models are exported as."""
    out = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    replace = normalizers.Replace(" ", SPACE)
    ends: list[Any] = []
    if family == "gemma3":
        out.normalizer, out.pre_tokenizer = replace, pre_tokenizers.Split(" ", "merged_with_previous")
    elif family == "mixtral":
        out.pre_tokenizer, ends = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False), [decoders.Strip(" ", 1, 0)]
    else:
        out.normalizer, ends = normalizers.Sequence([normalizers.Prepend(SPACE), replace]), [decoders.Strip(" ", 1, 0)]
    out.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *ends])
    every = [*SPECIAL[family], *(f"<0x{b:02X}>" for b in range(256))]
    kept, out.pre_tokenizer = out.pre_tokenizer, pre_tokenizers.Metaspace(SPACE)  # words, so that pieces stay within them
    train(out, trainers.BpeTrainer(vocab_size=SIZE, special_tokens=every, limit_alphabet=30, show_progress=False))
    out.pre_tokenizer = kept
    return out


def train(tokenizer: Tokenizer, trainer: Any) -> None:
    text = (Path(sys.argv[1]) / "text.txt").read_text(encoding="utf-8")
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)


def begin_with(tokenizer: Tokenizer, token: str) -> None:
    """Let texts begin with a token."""
    template = processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B:1", special_tokens=[(token, tokenizer.token_to_id(token))]
    )
    level = isinstance(tokenizer.post_processor, processors.ByteLevel)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template]) if level else template


def write(family: str, folder: Path) -> None:
    """The files of one family."""
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    special = SPECIAL[family]
    pieces = "<unk>" in special
    tokenizer = pieces_tokenizer(family) if pieces else bytes_tokenizer(family)
    begin = {"qwen2": None, "mamba": None, "smollm2": None}.get(family, special[1])
    if begin:
        begin_with(tokenizer, begin)
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = [t for t in described["added_tokens"] if t["content"] in special]
    for token in described["added_tokens"]:
        token["rstrip"] = family == "phi3" and token["content"] == "<|end|>"
        token["special"] = token["content"] not in ("<|tool|>", "[INST]", "[/INST]")
    (folder / "tokenizer.json").write_text(json.dumps(described, ensure_ascii=False, indent=None) + "\n", encoding="utf-8")
    end = special[2]
    mark, last = {"gemma3": ("<turn>", "<eos>"), "mixtral": ("[INST]", "[/INST]"), "llama": ("<|turn|>", "<|end|>")}.get(
        family, special[1:3]
    )
    template = TURNS.replace("MARK", mark).replace("END", last)
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": begin, "eos_token": end, "model_max_length": 512}
    if family == "llama":
        settings |= {"chat_template": template, "eos_token": {"__type": "AddedToken", "content": end, "lstrip": False, "special": True}}
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}) + "\n")
    elif family == "mixtral":
        settings["chat_template"] = [{"name": "default", "template": template}, {"name": "tool_use", "template": "none"}]
    elif family in ("qwen2", "gemma3"):
        (folder / "chat_template.jinja").write_text(template)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    plain = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), bos_token=begin, eos_token=end)
    cases = []
    for text in TEXTS:
        said = text.replace("{0}", special[1]).replace("{1}", special[-1]).replace("{2}", special[2])
        ids = plain.encode(said, add_special_tokens=False)
        decoded = plain.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        cases.append({"text": said, "ids": ids, "begun": plain.encode(said), "decoded": decoded})
    rendered = plain.apply_chat_template(CHAT, chat_template=template, add_generation_prompt=True, tokenize=False)
    chat = {"messages": CHAT, "text": rendered, "ids": plain.encode(rendered, add_special_tokens=False)}
    golden = {"cases": cases, "chat": chat if family in ("llama", "qwen2", "gemma3", "mixtral") else None}
    (folder / "tokens.json").write_text(json.dumps(golden, ensure_ascii=False, indent=None) + "\n", encoding="utf-8")
    print(family, len(described["model"]["vocab"]), len(described["model"]["merges"]), sum(len(c["ids"]) for c in cases))


if __name__ == "__main__":
    for each in SPECIAL:
        home = Path(sys.argv[1])
        write(each, home / each if (home / each / "config.json").is_file() else home / "tokenizers" / each)
