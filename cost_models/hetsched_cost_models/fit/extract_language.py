"""Makes the data of the language fits: ``python -m hetsched_cost_models.fit.extract_language [MEASUREMENTS]``.

From ``llm.csv`` the rows whose model, chip and engine are known, each once. Bits are those of a stored weight with its scales, on average
over the layers and the head, which engines store in more bits. A prompt of unknown length has that of its time and rate. Left out
are the rates of runs of minutes, whose phones throttle (the same model and engine decode 28.6 tokens a second cold and 16.5 in such a
run; their joules a token are kept), of prompts that run no faster than decoding (they are fed token by token) or faster than their
weights can be read, and of clocks that were held down. So are Genie's row that does not say how its weights are stored, and those whose
activations are floats, which no plan has. A row without bits has those of the first row of its source with this model, device and engine.
The prefill of AI Hub's rows is that of the 128 tokens whose time to the first token they state.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hetsched.soc_files import load_soc
from hetsched_cost_models.fit.language_data import FIELDS, MODEL_FIELDS, MODELS_FILE, ROWS_FILE
from hetsched_cost_models.fit.rows_file import write_rows
from hetsched_cost_models.parameters import head_bits

MEASUREMENTS = Path("../shared/measurements")
#: Part of a chip's name, first match wins. The M4 Max, the X2 Elite and others have no SoC file.
_CHIPS = (
    ("8 elite gen 5", "snapdragon-8-elite-gen-5"), ("sm8850", "snapdragon-8-elite-gen-5"), ("x2", ""), ("m4 max", ""),
    ("8 elite", "snapdragon-8-elite"), ("8-elite", "snapdragon-8-elite"),
    ("8 gen 3", "snapdragon-8-gen-3"), ("8gen3", "snapdragon-8-gen-3"),
    ("8 gen 2", "snapdragon-8-gen-2"), ("8 gen 1", "snapdragon-8-gen-1"),
    ("x elite", "snapdragon-x-elite"), ("x-elite", "snapdragon-x-elite"),
    ("tensor g1", "tensor-g1"), ("tensor g5", "tensor-g5"), ("a19 pro", "apple-a19-pro"), ("a18 pro", "apple-a18-pro"),
    ("a17 pro", "apple-a17-pro"), ("a16", "apple-a16"), ("a15", "apple-a15"), ("m3", "apple-m3"), ("m5", "apple-m5"),
    ("9000", "dimensity-9000"), ("9400", "dimensity-9400"), ("9500", "dimensity-9500"),
)  # fmt: skip
#: Of a weight of the layers; those of k-quants are llama.cpp's mixtures, from its file sizes of 7B models (from memory).
_BITS = (
    ("q2_k", 3.28), ("q3_k_m", 3.86), ("q4_k_s", 4.54), ("q4_k_m", 4.81), ("q4_0", 4.5), ("q4_1", 5.0), ("q5_k_m", 5.67), ("q6_k", 6.56),
    ("q8", 8.5), ("bf16", 16.0), ("fp16", 16.0), ("f16", 16.0), ("fp32", 32.0),
    ("w8a8", 8.0), ("int8 palett", 8.0), ("int4/int8", 6.0), ("w2", 2.2), ("2-bit", 2.6), ("int8 / 4", 4.5), ("int8", 8.0), ("8-bit", 8.5),
    ("4", 4.5),
)  # fmt: skip
_ENGINES = (
    ("executorch", "executorch"), ("t-mac", "t-mac"), ("llama", "llama.cpp"), ("cactus", "llama.cpp"), ("smallthinker", "llama.cpp"),
    ("mediapipe", "litert"), ("litert", "litert"), ("tflite", "litert"), ("mnn", "mnn"), ("mlx", "mlx"),
    ("core", "coreml"), ("ane", "coreml"),
    ("gpu", "coreml"), ("mlc", "mlc"), ("genie", "qnn"), ("qnn", "qnn"), ("hetero", "qnn"),
)  # fmt: skip
_DEFAULT_BITS = 4.5
#: Genie's 4-bit weights have one scale a channel, not one a block.
_QNN_BITS = 4.0
#: ExecuTorch's 4-bit models whose head has bits of its own: groups of 32, as the README of its Llama example says.
_GROUPS = ("8da4w", "spinquant", "qat+lora")
#: Tokens that no run makes in less than minutes.
_SUSTAINED = 4096
#: A prompt that runs less than this much faster than decoding is fed token by token.
_BATCHED = 1.1
#: Tokens of the shortest prompt whose time to the first token AI Hub states.
_AIHUB, _AIHUB_PROMPT = "qai_hub_models/", 128


def _first(pairs: Sequence[tuple[str, object]], text: str) -> object | None:
    return next((value for part, value in pairs if part in text), None)


def _unit(processor: str, engine: str) -> str:
    p, e = processor.lower(), engine.lower()
    if "npu" in p or "ane" in p or e == "ane":
        return "npu"
    if "gpu" in p or e in ("mlx", "gpu", "mlx-swift") or "opencl" in e or (not p and "litert" in e):
        return "gpu"
    return "cpu"


def _leading(text: str) -> str:
    found = re.match(r"\d+", text)
    return found.group() if found else "0"


def _bits(quant: str, engine: object, head: float) -> tuple[float, float]:
    """Of a stored weight on average, and the share of weights in k-quants; ``head``: share of the weights that are the head's."""
    name = quant.lower()
    body = float(str(_first(_BITS, name) or _DEFAULT_BITS))
    if engine == "qnn" and body == _DEFAULT_BITS:
        return _QNN_BITS, 0.0
    own = head_bits(str(engine)) if engine == "llama.cpp" or any(group in name for group in _GROUPS) else None
    average = body if own is None or body >= own else round((1.0 - head) * body + head * own, 2)
    if engine != "llama.cpp" or (own is not None and body > own):
        return average, 0.0
    return average, 1.0 if "_k" in name else round(head, 3)


def _sustained(r: Mapping[str, str]) -> bool:
    """Whether a row is a run of minutes, or repeats the rate of one: the iPhone table gives those without the runs that it counts."""
    return int(_leading(r["gen_tokens"])) >= _SUSTAINED or r["note"].strip() == "runs_ok="


def _prefill(r: Mapping[str, str], weight_bytes: float, chip: str) -> str:
    """Tokens a second of a prompt; empty: not measured, or not what it says."""
    if r["source"].startswith(_AIHUB) and r["ttft_ms"]:
        return f"{_AIHUB_PROMPT * 1e3 / float(r['ttft_ms']):.5g}"
    rate, decode, prompt = r["prefill_tok_s"], r["decode_tok_s"], int(_prompt(r))
    fed = rate and decode and float(rate) < _BATCHED * float(decode)
    cached = rate and prompt and prompt / float(rate) < weight_bytes / load_soc(chip).memory.peak_bytes_s.value
    return "" if fed or cached else rate


def _prompt(r: Mapping[str, str]) -> str:
    """Tokens of the prompt: as stated, or what its rate makes of the time to the first token; 0: neither is said."""
    stated = _leading(r["prompt_tokens"])
    if stated != "0" or not (r["ttft_ms"] and r["prefill_tok_s"]):
        return stated
    return str(round(float(r["ttft_ms"]) * float(r["prefill_tok_s"]) / 1e3))


def _context(r: Mapping[str, str]) -> int:
    """Tokens in the cache, or for which it was made; 0: not said."""
    depth = re.search(r"depth (\d+)", r["engine"])
    stated = next((n for n in (_leading(r["context"]), _prompt(r)) if n != "0"), "0")
    return int(stated) + (int(depth.group(1)) if depth else 0)


def _stated_bits(rows: Sequence[Mapping[str, str]]) -> dict[tuple[str, ...], str]:
    """What rows that say nothing of it are stored in: by source, model, device and engine."""
    found: dict[tuple[str, ...], str] = {}
    for r in rows:
        if r["quant"]:
            found.setdefault(_kin(r), r["quant"])
    return found


def _kin(r: Mapping[str, str]) -> tuple[str, ...]:
    return (r["source"].partition("@")[0], r["model"], r["device"], r["engine"])


def _left_out(r: Mapping[str, str], engine: object) -> bool:
    """Whether nothing of a row is used."""
    float_activations = engine == "qnn" and r["quant"] in ("", "w4")
    held_down = "GHz" in r["processor"]
    return float_activations or held_down or (_sustained(r) and not r["j_per_token"])


def main(arguments: Sequence[str]) -> int:
    """Write the file."""
    folder = Path(arguments[0]) if arguments else MEASUREMENTS
    with MODELS_FILE.open(encoding="utf-8", newline="") as f:
        models = list(csv.DictReader(line for line in f if not line.startswith("#")))
    with (folder / "llm.csv").open(encoding="utf-8", newline="") as f:
        measured = list(csv.DictReader(f))
    rows, known, stated = [], set(), _stated_bits(measured)
    for r in measured:
        model = next((m for m in models if re.search(m["pattern"], r["model"].lower())), None)
        chip, engine = str(_first(_CHIPS, r["soc"].lower()) or ""), _first(_ENGINES, r["engine"].lower())
        same = tuple(v for k, v in r.items() if k != "source")
        if model is None or not chip or engine is None or same in known or _left_out(r, engine):
            continue
        known.add(same)
        harness = "app" if "react-native" in r["source"] else "bench"
        threads = re.search(r"CPU (\d) thr", r["processor"])
        head = float(model["head_gparams"]) / float(model["gparams"])
        bits, k_quants = _bits(r["quant"] or stated.get(_kin(r), ""), engine, head)
        weight_bytes = 1e9 * float(model["gparams"]) * bits / 8.0
        prefill, decode = ("", "") if _sustained(r) else (_prefill(r, weight_bytes, chip), r["decode_tok_s"])
        values = (r["model"], *(model[n] for n in MODEL_FIELDS), str(bits), str(k_quants), chip,
                  _unit(r["processor"], r["engine"]), engine, harness, threads.group(1) if threads else "0", str(_context(r)),
                  _prompt(r), prefill, decode, r["j_per_token"], r["source"])  # fmt: skip
        rows.append(dict(zip(FIELDS, values, strict=True)))
    write_rows(ROWS_FILE, FIELDS, rows)
    print(f"{len(rows)} of {len(measured)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
