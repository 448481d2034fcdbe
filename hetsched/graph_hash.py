"""A name for what a network *is*: the hash of its structure, the same whatever its file, tensors and nodes are called.

It is taken after the standard passes (:func:`hetsched.passes.standard`) and covers, for every operator, its kind, its
attributes, the shape of what it writes and, through the hashes of its producers, all that leads to it. Names, weights and
the order of independent operators do not count, nor does how an exporter spells the same thing:

- dims of 1 are left out of shapes, and operators that only change the shape are looked through;
- normalisation of an input (elementwise with constants, same shape) is looked through: some exports have it inside, some not;
- chains that the passes fused of elementwise operators count as their parts;
- attributes that have their default value are left out, and so is what the shapes say already (``kernel_shape``);
- ``ReduceMean`` over all positions is ``GlobalAveragePool``, ``Gemm`` is ``MatMul``, a fused operator is its main part with an
  activation;
- of constants only the size of the largest counts: a batch normalisation that was folded leaves the same weights.

So 32-bit and 16-bit float exports agree; another input size, width or depth does not. Integer (QDQ) models have a hash of
their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from hetsched.graph import AttrValue, DType, Graph, Op

_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Cast"})
_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "And", "Or", "Equal"})
_SAME_AS = {"Gemm": "MatMul", "FusedMatMul": "MatMul", "FusedConv": "Conv", "GlobalAveragePool": "ReduceMean"}
#: Said by shapes or by weights, or only of interest to the passes.
_IGNORED = frozenset(
    {"kernel_shape", "batch_norm", "transA", "transB", "alpha", "beta", "auto_pad", "keepdims", "noop_with_empty_axes", "axes",
     "storage_order", "output_shape", "allowzero", "epsilon"}
)  # fmt: skip
_DEFAULTS: dict[str, AttrValue] = {
    "group": 1, "ceil_mode": 0, "count_include_pad": 0, "activation": "", "activation_alpha": 0.0, "activation_beta": 0.0,
    "fmod": 0, "stash_type": 1, "axis": -1,
}  # fmt: skip
_FILLED = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
_FLOATS = frozenset({DType.F16, DType.F32, DType.F64, DType.BF16})


def graph_hash(graph: Graph) -> str:
    """32 hex digits of the structure of ``graph``, a graph after the standard passes.

    Examples:
        >>> from hetsched.app import load
        >>> graph_hash(load("a.onnx")) == graph_hash(load("renamed.onnx"))  # doctest: +SKIP
        True
    """
    known: dict[str, str] = {n: _digest("input", _kind(graph, n), _shape(graph, n)) for n in graph.inputs}
    raw = set(graph.inputs)
    found: list[str] = []
    ops = [part for op in graph.ops for part in (op.body if op.type == "FusedElementwise" else (op,))]
    graph = graph if len(ops) == len(graph.ops) else _with_parts(graph, ops)
    for op in ops:
        sources = [n for n in op.inputs if n and not graph.tensors[n].is_constant]
        seen = _seen_through(graph, op, sources, raw)
        if seen is not None:
            known[op.outputs[0]] = known[seen]
            raw |= {op.outputs[0]} if seen in raw else set()
            continue
        mark = _operator(graph, op, [known[n] for n in sources])
        found.append(mark)
        known |= {o: _digest(mark, str(slot)) for slot, o in enumerate(op.outputs) if o}
    ends = sorted(known[o] for o in graph.outputs if o in known)
    return _digest(*sorted(known[n] for n in graph.inputs), *sorted(found), *ends)


def _with_parts(graph: Graph, ops: Sequence[Op]) -> Graph:
    """The graph with the tensors inside fused chains; what the passes dropped has the shape and type of the chain's output."""
    tensors = dict(graph.tensors)
    for op in graph.ops:
        for part in op.body if op.type == "FusedElementwise" else ():
            for name in part.outputs:
                if name and name not in tensors:
                    tensors[name] = replace(graph.tensors[op.outputs[0]], name=name)
    return graph.replace(tensors=tensors, ops=tuple(ops))


def _seen_through(graph: Graph, op: Op, sources: list[str], raw: set[str]) -> str | None:
    """The tensor that stands for the output of ``op``: its only input, if the op changes nothing that counts; else None."""
    if len(sources) != 1 or len(op.outputs) != 1:
        return None
    same = graph.tensors[sources[0]].shape == graph.tensors[op.outputs[0]].shape
    normalises = op.type in _ELEMENTWISE and same and sources[0] in raw and _is_float(graph, op.outputs[0])
    mean_of_mean = op.type == "ReduceMean" and _producer_type(graph, sources[0]) == "ReduceMean"
    return sources[0] if op.type in _VIEWS or normalises or mean_of_mean else None


def _producer_type(graph: Graph, name: str) -> str:
    index = graph.producer.get(name)
    return "" if index is None else graph.ops[index].type


def _operator(graph: Graph, op: Op, sources: list[str]) -> str:
    """Digest of one operator and of all that it reads."""
    kind = _SAME_AS.get(op.type, op.type)
    outputs = "" if _is_mean(op) else ";".join(_shape(graph, o) for o in op.outputs if o)
    sizes = [graph.tensors[n].elements for n in graph.constants(op)]
    weight = max((s for s in sizes if s > 1), default=0) if kind in ("Conv", "MatMul", "ConvTranspose", "Gather") else 0
    order = sorted(sources) if kind in _COMMUTATIVE else sources
    return _digest(kind, op.domain, _attributes(op, kind), outputs, str(weight), *order)


def _is_mean(op: Op) -> bool:
    """A mean over some axes: what remains is said by its consumers, and chains of means are one."""
    return op.type in ("ReduceMean", "GlobalAveragePool")


def _attributes(op: Op, kind: str) -> str:
    if op.type in ("ReduceMean", "GlobalAveragePool") or kind == "Concat":
        return ""  # the shapes say it
    kept = []
    for name in sorted(op.attrs):
        value = op.attrs[name]
        if name in _IGNORED or "scale" in name or "zero_point" in name or isinstance(value, np.ndarray):
            continue
        if value == _DEFAULTS.get(name) or (name in _FILLED and not _differs(value, _FILLED[name])):
            continue
        kept.append(f"{name}={_text(value)}")
    return ";".join(kept)


def _differs(value: AttrValue, fill: int) -> bool:
    return isinstance(value, tuple | list) and any(v != fill for v in value)


def _text(value: AttrValue) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return f"{value:.4g}"
    return ",".join(map(_text, value)) if isinstance(value, tuple | list) else str(value)


def _shape(graph: Graph, name: str) -> str:
    return "x".join(str(d) for d in graph.tensors[name].shape if d != 1)


def _kind(graph: Graph, name: str) -> str:
    dtype = graph.tensors[name].dtype
    return "float" if dtype in _FLOATS else "index" if dtype in (DType.I32, DType.I64) else dtype.value


def _is_float(graph: Graph, name: str) -> bool:
    return graph.tensors[name].dtype in _FLOATS


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(_lines(parts)).encode(errors="backslashreplace")).hexdigest()[:32]


def _lines(parts: Iterable[str]) -> Iterable[str]:
    return (p.replace("\x1f", " ") for p in parts)
