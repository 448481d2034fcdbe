"""Rows of the language fits, as they lie in ``data/``."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_DATA = Path(__file__).parent.parent / "data"
ROWS_FILE, MODELS_FILE = _DATA / "language_rates.csv", _DATA / "language_models.csv"
#: Of a model.
MODEL_FIELDS = ("gparams", "kv_bytes_per_token", "layers", "head_gparams", "width")
FIELDS = (
    "model", *MODEL_FIELDS, "bits", "k_quants", "chip", "unit", "engine", "harness", "threads", "context", "prompt",
    "prefill_tok_s", "decode_tok_s", "j_per_token", "source",
)  # fmt: skip
#: No measured cache is longer; what a source calls its context may be a limit.
_LONGEST = 8000


@dataclass(frozen=True, slots=True)
class Rate:
    """One measured language model: parameters read a token, cache bytes a token, and tokens a second (0: not measured).

    ``head``: parameters of the products that make scores, of which a prompt needs those of its last token; ``width``: of all query heads;
    ``bits``: of a stored weight on average; ``k_quants``: share of the weights that llama.cpp stores in them.
    """

    model: str
    params: float
    kv_bytes: float
    layers: int
    head: float
    width: int
    bits: float
    k_quants: float
    chip: str
    unit: str
    engine: str
    app: bool
    threads: int
    context: int
    prompt: int
    prefill: float
    decode: float
    j_per_token: float
    source: str

    @property
    def group(self) -> str:
        """What is left out together: model x chip (models of one architecture count as one)."""
        return f"{self.params:g}:{self.kv_bytes:g}:{self.chip}"


@lru_cache(maxsize=1)
def rates() -> tuple[Rate, ...]:
    """All rows, in the file's order."""
    with ROWS_FILE.open(encoding="utf-8", newline="") as f:
        return tuple(
            Rate(
                r["model"], 1e9 * float(r["gparams"]), float(r["kv_bytes_per_token"]), int(r["layers"]),
                1e9 * float(r["head_gparams"]), int(r["width"]), float(r["bits"]), float(r["k_quants"]), r["chip"],
                r["unit"], r["engine"], r["harness"] == "app", int(r["threads"]), min(int(r["context"]), _LONGEST), int(r["prompt"]),
                float(r["prefill_tok_s"] or 0), float(r["decode_tok_s"] or 0), float(r["j_per_token"] or 0), r["source"],
            )
            for r in csv.DictReader(f)
        )  # fmt: skip
