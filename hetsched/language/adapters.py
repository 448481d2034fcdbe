"""Low-rank adapters (LoRA) of a model's products: what they add, read from the files that they come in.

A product with a weight W becomes ``W x + scale · B (A x)``; W is neither changed nor copied. A folder or ``safetensors`` file as PEFT
writes it, or a GGUF file of an adapter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.gguf_reader import read_header
from hetsched.frontends.hf_names import naming
from hetsched.frontends.safetensors_header import parse_json, read_safetensors
from hetsched.graph import Graph, Tensor
from hetsched.reference.gguf_types import constant_value

Array = npt.NDArray[Any]
_PEFT = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
_GGUF = re.compile(r"(.+)\.lora_([ab])")
_LAYER = re.compile(r"blk\.\d+\..+\.weight")


@dataclass(frozen=True, eq=False)
class Adapter:
    """What an adapter adds.

    Attributes:
        path: where it was read from.
        low: float32 [rank, in], by the name of the weight that it goes along with.
        high: float32 [out, rank], with its scale.
    """

    path: Path
    low: Mapping[str, Array] = field(repr=False)
    high: Mapping[str, Array] = field(repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of its matrices."""
        return sum(a.nbytes for a in (*self.low.values(), *self.high.values()))


def read_adapter(path: str | Path, graph: Graph) -> Adapter:
    """The adapter at ``path`` for the model ``graph``.

    Raises:
        ModelError: it is damaged, or does not fit the model.
        UnsupportedModelError: it is more than a plain low-rank adapter.
    """
    path = Path(path)
    tensors, scale, pattern = _gguf(path) if path.suffix == ".gguf" else _peft(path)
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        match = pattern.fullmatch(name)
        if match is None:
            raise UnsupportedModelError(f"{path.name} has {name!r}, which is no part of a plain low-rank adapter (A or B of a product)")
        parts.setdefault(match[1], {})[match[2].upper()] = tensor
    weights, low, high = _weights(graph), {}, {}
    for module, both in sorted(parts.items()):
        name = weights.get(module.removesuffix(".weight") + ".weight", "")
        if not name or set(both) != {"A", "B"}:
            raise ModelError(f"{path.name} adapts {module!r}, which is no product of {graph.name!r}, or lacks its A or B")
        a, b = (_matrix(both[k], path) for k in "AB")
        out, into = graph.tensors[name].shape
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != into or b.shape[0] != out or a.shape[0] != b.shape[1]:
            raise ModelError(
                f"{path.name} adapts {module!r} with {a.shape} and {b.shape}, and its weight is {(out, into)}: another model's?"
            )
        low[name] = a
        high[name] = _in_file_order(graph, name, module, b) * np.float32(scale / a.shape[0] if scale > 0 else -scale)
    return Adapter(path, low, high)


def _matrix(tensor: Tensor, path: Path) -> Array:
    if tensor.data is None or not tensor.data.is_present:
        raise ModelError(f"the weights of {path.name} are absent (the first is {tensor.name!r})")
    return np.ascontiguousarray(constant_value(tensor), np.float32)


def _weights(graph: Graph) -> dict[str, str]:
    """Names that an adapter may call the weights of products by: as the model's file does, or as checkpoints do."""
    own = [op.inputs[1] for op in graph.ops if op.type == "Gemm"]
    out = {name: name for name in own}
    names = naming("")
    for name in own:
        if _LAYER.fullmatch(name):
            out |= dict.fromkeys(names(name), name)
    return out


def _in_file_order(graph: Graph, name: str, module: str, b: Array) -> Array:
    """Rows of B in the order of the weight's rows: GGUF files pair neighbours of a head where checkpoints pair its halves."""
    if module.removesuffix(".weight") + ".weight" == name:
        return b
    product = next(op for op in graph.ops if op.type == "Gemm" and op.inputs[1] == name)
    same = {op.outputs[0]: op.inputs[0] for op in graph.ops if op.type in ("Reshape", "Identity")}
    for op in graph.ops:
        if op.type == "RotaryEmbedding" and op.attr_int("interleaved", 0):
            source = op.inputs[0]
            while source in same:
                source = same[source]
            if source == product.outputs[0]:
                heads = op.attr_int("num_heads", 1)
                return np.ascontiguousarray(b.reshape(heads, 2, -1, b.shape[1]).swapaxes(1, 2).reshape(b.shape))
    return b


def _peft(path: Path) -> tuple[Mapping[str, Tensor], float, re.Pattern[str]]:
    """Weights, scale times rank (or the negated scale), and how the weights are called."""
    folder = path if path.is_dir() else path.parent
    about, file = folder / "adapter_config.json", path / "adapter_model.safetensors" if path.is_dir() else path
    if not about.is_file() or not file.is_file():
        raise ModelError(f"{path} is no adapter: adapter_config.json and adapter_model.safetensors belong side by side")
    config = parse_json(about.read_bytes(), str(about))
    alpha, rank = config.get("lora_alpha"), config.get("r")
    if not isinstance(alpha, int | float) or not isinstance(rank, int) or rank < 1:
        raise ModelError(f"{about} says no rank (r) and lora_alpha: the adapter is damaged")
    more = next((k for k in ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save") if config.get(k)), None)
    if more is not None:
        raise UnsupportedModelError(f"{about} asks for {more}: only plain low-rank adapters can be attached")
    tensors, _ = read_safetensors(file)
    return tensors, -alpha / rank**0.5 if config.get("use_rslora") else float(alpha), _PEFT


def _gguf(path: Path) -> tuple[Mapping[str, Tensor], float, re.Pattern[str]]:
    header = read_header(path)
    alpha = header.metadata.get("adapter.lora.alpha")
    if header.metadata.get("adapter.type") != "lora" or not isinstance(alpha, int | float):
        raise ModelError(f"{path.name} is no low-rank adapter: adapter.type is {header.metadata.get('adapter.type')!r}")
    return header.tensors, float(alpha), _GGUF
