#!/usr/bin/env python3
"""Perplexity of a shipped text for each format of the cache and precision (``make bench-perplexity``).

    python tests/bench_perplexity.py [--model MODEL.gguf] [--golden FILE.npz] [--windows N] [--json]

The text is cut into windows of 512 tokens, each computed from an empty cache; the mean is over the tokens 1 ... of every window.
Formats of the cache are compared with float16 at the same precision of activations, that one with transformers in float32 on the
dequantized weights (``tests/language/make_goldens.py``).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.language.session import LanguageModel

HERE = Path(__file__).parent
WINDOW = 512
#: (precision, keys, values): most relative change of the perplexity that is allowed, None: only reported. ``w4a8`` protects what it
#: does by default, ``bare`` nothing.
SETTINGS: dict[tuple[str, str, str], float | None] = {
    ("w4a16", "fp16", "fp16"): 0.001, ("w4a16", "int8", "int8"): 0.01, ("w4a16", "int8", "int4"): 0.03, ("w4a16", "fp8", "fp8"): None,
    ("w4a8", "fp16", "fp16"): None, ("w4a8", "int8", "int8"): 0.01, ("w4a8", "int8", "int4"): 0.03, ("bare", "fp16", "fp16"): None,
}  # fmt: skip


def losses(model: LanguageModel, ids: list[int]) -> list[float]:
    """Negative log-likelihoods, in nats, of the tokens 1 ... of a window."""
    table = model.sequence()
    scores = model.compute(ids[:-1], table, scored=len(ids) - 1).astype(np.float64)
    table.cut(0)
    largest = scores.max(1)
    total = largest + np.log(np.exp(scores - largest[:, None]).sum(1))
    return [float(loss) for loss in total - scores[np.arange(len(scores)), ids[1:]]]


def mean_loss(path: Path, ids: list[int], precision: str, kv: tuple[str, str], windows: int | None = None) -> float:
    """Mean loss of the first windows of a text (None: of all)."""
    cut = [ids[at : at + WINDOW] for at in range(0, len(ids) - 1, WINDOW)][:windows]
    how: dict[str, Any] = {"precision": "w4a8", "protect": ()} if precision == "bare" else {"precision": precision}
    with LanguageModel(path, context=WINDOW, kv=kv, **how) as model:
        return float(np.mean([loss for window in cut if len(window) > 1 for loss in losses(model, window)]))


def main() -> int:
    """Print a table and one summary line; 1 if something falls short."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, default=HERE.parent / "models" / "smollm2-135m-q4_1.gguf")
    parser.add_argument("--golden", type=Path, default=HERE / "language" / "data" / "smollm2.npz")
    parser.add_argument("--windows", type=int, default=None)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    golden = np.load(args.golden)
    ids, found, rows = golden["text_ids"].tolist(), {}, []
    for (precision, keys, values), goal in SETTINGS.items():
        found[precision, keys, values] = loss = mean_loss(args.model, ids, precision, (keys, values), args.windows)
        plain = (keys, values) == ("fp16", "fp16")
        against = float(golden["text_nll"]) if plain and args.windows is None else found[precision, "fp16", "fp16"]
        change = math.exp(loss - against) - 1
        row: dict[str, Any] = {"precision": precision, "kv": f"{keys}/{values}", "perplexity": math.exp(loss), "change": change}
        rows.append(row | {"goal": goal, "ok": goal is None or abs(change) <= goal})
        if not args.json:
            limit = "        " if goal is None else f"<= {goal:5.1%}"
            what = f"{precision:6} {row['kv']:10} perplexity {math.exp(loss):9.3f}"
            print(f"{what}  {change:+8.3%}  goal {limit}  {rows[-1]['ok']}", flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))
    short = [f"{r['precision']} {r['kv']}" for r in rows if not r["ok"]]
    print(f"{len(rows) - len(short)} of {len(rows)} keep their goals{': short are ' + ', '.join(short) if short else ''}", file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
