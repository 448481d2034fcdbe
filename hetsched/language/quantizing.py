"""Matrices that a file stores as plain floats, quantized as the model is opened: 8 or 4 bits in groups of 32.

They become blocks as GGUF files have them (Q8_0; Q4_1, with a minimum), so that all that follows computes on them as on any others.
Embeddings stay as they are: rows of them are decoded as tokens come. The weights that are protected at ``w4a8`` get 8 bits,
and those that choose experts or drive a state stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import OptionError
from hetsched.graph import Graph, Op, Tensor, WeightRef
from hetsched.language.precision import precision_of
from hetsched.reference.gguf_types import BY_NAME, constant_value

Array = npt.NDArray[Any]
#: Bits -> layout.
LAYOUTS: Mapping[int, str] = {8: "Q8_0", 4: "Q4_1"}
_GROUP = 32
#: Rows that are quantized at once.
_ROWS = 1 << 12
_PRODUCTS = ("Gemm", "MoE")
_VIEWS, _DECIDING = ("Reshape", "Identity", "Split"), ("Router", "SelectiveScan")


def quantized(graph: Graph, bits: int, protect: Sequence[str] | None = None) -> Graph:
    """A graph whose products have weights of so many bits, where they are plain floats whose rows are whole groups.

    Nothing is computed before a weight is asked for.

    Args:
        graph: a decode step.
        bits: 8 or 4.
        protect: patterns of weights that get 8 bits in either case; None: the sensitive ones.

    Raises:
        OptionError: there is no layout of so many bits.
    """
    if bits not in LAYOUTS:
        raise OptionError(f"weights cannot be quantized to {bits} bits as a model is opened: use {' or '.join(map(str, LAYOUTS))}")
    products = [op.inputs[1] for op in graph.ops if op.type == "Gemm"]
    sensitive = precision_of("w4a8", products, protect).protected
    tensors, names = dict(graph.tensors), dict[str, str]()
    for op in graph.ops:
        weights = _weights(op)
        if not all(_is_plain(graph.tensors[n]) for n in weights) or _decides(graph, op.outputs[0]):
            continue
        for name in weights:
            tensor = graph.tensors[name]
            if name not in names:
                layout = LAYOUTS[8 if any(fnmatchcase(name, p) for p in sensitive) else bits]
                names[name] = f"{name} ({layout})" if _read_otherwise(graph, name) else name
                tensors[names[name]] = _in_blocks(tensor, names[name], layout)
    ops = tuple(_renamed(op, names) if op.type in _PRODUCTS else op for op in graph.ops)
    stored = [f"{old} {tensors[new].quantization}" for old, new in names.items()]
    mark = hashlib.sha256("\n".join([graph.sha256, *stored]).encode()).hexdigest()
    return graph.replace(tensors=tensors, ops=ops, sha256=mark)


def _weights(op: Op) -> tuple[str, ...]:
    """The matrices of a product."""
    return op.inputs[1:2] if op.type == "Gemm" else op.inputs[3:] if op.type == "MoE" else ()


def _is_plain(tensor: Tensor) -> bool:
    is_float = tensor.dtype.is_float and tensor.quantization is None and tensor.is_constant
    return is_float and len(tensor.shape) > 1 and tensor.shape[-1] % _GROUP == 0 and tensor.shape[-1] > 0


def _decides(graph: Graph, name: str) -> bool:
    """Whether a result says which experts work, or how a state goes on: few weights, on which much depends."""
    readers = [graph.ops[i] for i in graph.consumers.get(name, ())]
    views = [o for r in readers if r.type in _VIEWS for o in r.outputs]
    return any(r.type in _DECIDING for r in readers) or any(_decides(graph, o) for o in views)


def _read_otherwise(graph: Graph, name: str) -> bool:
    """Whether something reads it that is no product: an embedding that is the head, too."""
    return any(name in op.inputs and name not in _weights(op) for op in graph.ops)


def _renamed(op: Op, names: Mapping[str, str]) -> Op:
    return replace(op, inputs=tuple(names.get(n, n) for n in op.inputs))


def _in_blocks(tensor: Tensor, name: str, layout: str) -> Tensor:
    kind = BY_NAME[layout]
    return replace(
        tensor, name=name, dtype=kind.dtype, quantization=kind.quantization, data=WeightRef(compute=_Blocks(tensor, _QUANTIZERS[layout]))
    )


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The blocks of a matrix, made when they are asked for."""

    tensor: Tensor
    quantize: Callable[[Array], Array]

    def __call__(self) -> npt.NDArray[np.uint8]:
        rows = constant_value(self.tensor).reshape(-1, self.tensor.shape[-1])
        parts = [self.quantize(rows[at : at + _ROWS].astype(np.float32).reshape(-1, _GROUP)) for at in range(0, len(rows), _ROWS)]
        return np.concatenate(parts).reshape(-1)


def q8_0(x: Array) -> npt.NDArray[np.uint8]:
    """Groups [groups, 32] as blocks of Q8_0: a float16 scale, and integers that the largest value is 127 of."""
    scales = (np.abs(x).max(1, keepdims=True) / 127).astype(np.float16)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.nan_to_num(np.clip(np.rint(x / scales.astype(np.float32)), -127, 127)).astype(np.int8)
    return np.concatenate([scales.view(np.uint8), codes.view(np.uint8)], 1)


def q4_1(x: Array) -> npt.NDArray[np.uint8]:
    """Groups [groups, 32] as blocks of Q4_1: a float16 scale and minimum, and four bits each, sixteen low halves first."""
    low = x.min(1, keepdims=True).astype(np.float16)
    scales = ((x.max(1, keepdims=True) - low.astype(np.float32)) / 15).astype(np.float16)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.nan_to_num(np.clip(np.rint((x - low.astype(np.float32)) / scales.astype(np.float32)), 0, 15)).astype(np.uint8)
    return np.concatenate([scales.view(np.uint8), low.view(np.uint8), codes[:, :16] | codes[:, 16:] << 4], 1)


_QUANTIZERS: Mapping[str, Callable[[Array], Array]] = {"Q8_0": q8_0, "Q4_1": q4_1}
