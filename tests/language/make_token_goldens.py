"""Makes ``data/smollm2_tokens.json``: what Hugging Face's ``tokenizers`` makes of texts, with the vocabulary of a GGUF file.

Run once with ``tokenizers`` installed, which the tests do not need: ``python make_token_goldens.py MODEL.gguf``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TEXTS = [
    "The capital of France is Paris.", "It's 1234.5 and they'll say \"we've\" — won't they?", "Grüße aus Köln, naïve café, Ωmega.",
    "日本語のテスト 🙂👍🏽 и русский текст", "x² + ½ = Ⅷ ٣٤ १२", "tabs\tand\n\nnew lines   \n  with   spaces  ", "  leading",
    "a\u00a0b\u2003c\u3000d", "def f(x):\n    return x**2  # 100%\n", "http://example.org/a?b=c&d=e_f-g", "'S 'T 'LL can'T",
    "\r\n\r\nCRLF\r\n", "0", " ", "e\u0301 \u200b \ufeff",
]  # fmt: skip


def main(model: Path) -> None:
    import tokenizers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from hetsched.language.gguf_vocabulary import read_vocabulary

    v = read_vocabulary(model)
    pairs = [tuple(m.split(" ")) for m in v.merges]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(v.tokens)}, pairs))
    digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    tokenizer.decoder = decoders.ByteLevel()
    cases = [{"text": t, "ids": tokenizer.encode(t).ids} for t in TEXTS]
    about = f"tokenizers {tokenizers.__version__}: BPE with the tokens and merges of {model.name}, Digits(individual), ByteLevel"
    out = {"made_by": about, "cases": cases}
    Path(__file__).with_name("data").joinpath("smollm2_tokens.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
