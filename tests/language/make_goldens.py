"""Make the goldens of the language tests, once, with PyTorch and transformers, which the tests do not need.

    python tests/language/make_goldens.py models/smollm2-135m-q4_1.gguf tests/language/data

The committed files were written with PyTorch 2.14.1 and transformers 5.24.0 on Linux, in float32 on one thread.

``smollm2.npz``: SmolLM2-135M-Instruct, its Q4_1 weights dequantized by transformers itself. For eight prompts (below): ``ids_N`` (the
prompt in the model's chat form), ``logits_N`` (float32 rounded to float16, after the last token), ``greedy_N`` (32 tokens). Then
``text_ids`` and ``text_nll``: ``text.txt``, in windows of 512 tokens, and the mean negative log-likelihood in nats of the tokens
1 ... of every window.

``NAME.safetensors`` and ``NAME.json``: small models of other families with seeded random weights (float16), their
configuration, and what transformers makes of 24 tokens: ``ids``, ``logits`` after every token and 16 ``greedy`` tokens. The tokens
are the first seeded ones after which no greedy token is a near tie, so that rounding does not decide it.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

PROMPTS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "List three prime numbers.",
    "Explain what a compiler does.",
    "Translate to French: good morning.",
    "Why is the sky blue?",
    "Give a short recipe for pancakes.",
    "Who wrote Romeo and Juliet?",
)
WINDOW = 512
#: The best token of a small model's answer is so much better than the next, in standard deviations of the scores.
CLEAR = 0.02
FAMILIES = ("llama", "qwen2", "gemma3", "mixtral", "mamba")


def greedy(model: Any, ids: list[int], most: int) -> list[int]:
    """``most`` greedy tokens after ``ids``, each from a whole forward pass: no cache that could be wrong."""
    import torch

    ids = list(ids)
    start = len(ids)
    with torch.no_grad():
        for _ in range(most):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[start:]


def smollm2(path: Path, out: Path) -> None:
    """The goldens of the real model."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32).eval()
    arrays: dict[str, Any] = {}
    for n, prompt in enumerate(PROMPTS):
        ids = tokenizer(f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        arrays |= {f"ids_{n}": np.array(ids, np.int32), f"logits_{n}": logits.numpy().astype(np.float16)}
        arrays[f"greedy_{n}"] = np.array(greedy(model, ids, 32), np.int32)
        print(n, repr(tokenizer.decode(arrays[f"greedy_{n}"])), flush=True)
    ids = tokenizer((out / "text.txt").read_text(encoding="utf-8"))["input_ids"]
    losses: list[float] = []
    with torch.no_grad():
        for begin in range(0, len(ids) - 1, WINDOW):
            window = torch.tensor([ids[begin : begin + WINDOW]])
            if window.shape[1] > 1:
                rows = torch.log_softmax(model(window).logits[0, :-1].double(), -1)
                losses += (-rows.gather(1, window[0, 1:, None])).flatten().tolist()
    arrays |= {"text_ids": np.array(ids, np.int32), "text_nll": np.array(np.mean(losses))}
    print("tokens", len(ids), "perplexity", float(np.exp(np.mean(losses))))
    np.savez_compressed(out / "smollm2.npz", **arrays)


def configuration(family: str) -> Any:
    """A small configuration of a family: odd counts of heads and layers, so that nothing fits by chance."""
    import transformers as t

    common = {"vocab_size": 320, "hidden_size": 96, "num_hidden_layers": 3, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 160, "max_position_embeddings": 512}
    if family == "llama":
        return t.LlamaConfig(**common, **heads, rope_theta=10000.0, tie_word_embeddings=False)
    if family == "qwen2":
        return t.Qwen2Config(**common, **heads, rope_theta=1000000.0, tie_word_embeddings=True)
    if family == "gemma3":
        return t.Gemma3TextConfig(**common, **heads, head_dim=32, sliding_window=16, query_pre_attn_scalar=32)
    if family == "mixtral":
        return t.MixtralConfig(**common, **heads, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)
    return t.MambaConfig(**common, state_size=16, expand=2, conv_kernel=4, time_step_rank=6)


def small(family: str, out: Path) -> None:
    """The golden of one small model, whose weights are what float16 holds."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    torch.manual_seed(7)
    config = configuration(family)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.dim() > 1 and "A_log" not in name:
                parameter.copy_(noise * (1.5 / parameter.shape[-1]) ** 0.5)
            elif name.endswith("bias") or "norm" in name:
                parameter.add_(noise * 0.1)
            parameter.copy_(parameter.half().float())
    tied = bool(config.tie_word_embeddings)
    weights = {n: p.half().contiguous() for n, p in model.state_dict().items() if not (tied and n == "lm_head.weight")}
    (folder := out / family).mkdir(exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads(config.to_json_string(use_diff=False))
    settings["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")
    for seed in count(3):
        ids = np.random.default_rng(seed).integers(3, config.vocab_size, 24).tolist()
        answer = greedy(model, ids, 16)
        with torch.no_grad():
            logits = model(torch.tensor([ids + answer])).logits[0]
        best, next_best = logits[len(ids) - 1 : -1].topk(2).values.T
        if float((best - next_best).min()) >= CLEAR * float(logits.std()):
            break
    logits = logits[: len(ids)].numpy()
    np.savez_compressed(folder / "golden.npz", ids=np.array(ids, np.int32), logits=logits, greedy=np.array(answer, np.int32))
    print(family, sum(p.numel() for p in weights.values()), "parameters", "seed", seed, answer, float(logits.std()))


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for each in FAMILIES:
        small(each, Path(sys.argv[2]))
    smollm2(Path(sys.argv[1]), Path(sys.argv[2]))
