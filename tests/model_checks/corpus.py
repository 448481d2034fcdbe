"""The shared corpus of models: which files there are, what their lists say of them, and how open dims are bound."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import Graph

#: Where the corpus lies beside a checkout.
CORPUS = Path("../shared/models")
_SUFFIXES = frozenset({".onnx", ".tflite", ".gguf", ".safetensors"})
#: Values of the dims that a file leaves open, by a part of its name: PP-OCRv4 and Silero at the sizes that ``real.csv`` counts.
_DIMS = {"PP-OCRv4": 320, "silero_vad_16k_op15": 512, "silero_vad_half": 512, "silero": 512}
_OTHER_DIMS = 64


@dataclass(frozen=True, slots=True)
class Listed:
    """What the corpus says of a model; None where it says nothing. ``use`` is the list: graphs, aihub or real."""

    macs: int | None
    params: int | None
    use: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A model that does not load, and why."""

    reason: str


def files(root: Path) -> list[Path]:
    """Every model of the corpus: ONNX, TFLite, GGUF and safetensors files, and the folders with a ``config.json``."""
    found = [p for folder in ("real", "graphs", "graphs/hard", "aihub", "gguf") for p in sorted((root / folder).glob("*"))]
    return [p for p in found if p.suffix in _SUFFIXES] + sorted(p.parent for p in (root / "hf").glob("*/config.json"))


def name_of(path: Path, root: Path) -> str:
    """The path below the corpus' folder."""
    return path.relative_to(root).as_posix()


def listed(root: Path) -> dict[str, Listed]:
    """Model (its path below ``root``) -> what ``graphs.csv``, ``aihub/graphs.csv`` or ``real.csv`` says of it."""
    out: dict[str, Listed] = {}
    for use, name, prefix in (("graphs", "graphs.csv", ""), ("aihub", "aihub/graphs.csv", "aihub/"), ("real", "real.csv", "")):
        if not (root / name).is_file():
            continue
        with (root / name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                out[prefix + row["file"]] = Listed(_number(row["macs"]), _number(row["params"]), use)
    return out


def _number(text: str) -> int | None:
    return int(text) if text else None


@lru_cache(maxsize=8)
def load_any(path: Path) -> Graph | Refusal:
    """The graph, with a fixed value for every dim that the file leaves open, or the reason why there is none."""
    try:
        return load_with(path, {})
    except UnsupportedModelError as error:
        return Refusal(str(error))
    except ModelError as error:
        names = re.findall(r"--dim (\S+)=N", str(error))
        if not names or "NAME" in names:
            return Refusal(str(error))
    value = next((n for part, n in _DIMS.items() if part in path.name), _OTHER_DIMS)
    try:
        return load_with(path, dict.fromkeys(names, value))
    except ModelError as error:
        return Refusal(str(error))


def load_with(path: Path, dims: Mapping[str, int]) -> Graph:
    """The graph with these dims."""
    return load(path, dims)
