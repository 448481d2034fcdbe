"""Operators on tensors whose axes are in another order: which can be, and what of them changes.

A permutation is as in ONNX's Transpose: axis ``i`` of the result is axis ``perm[i]`` of what is transposed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.graph import LINEAR_QUANTIZATION, Graph, Op, Tensor, WeightRef
from hetsched.passes.rewriting import inline, small_value

Perm: TypeAlias = tuple[int, ...]

#: Each element of the result depends on the elements at its place (with broadcasting).
POINTWISE = frozenset(
    {
        "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu",
        "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Less", "LessOrEqual", "Log",
        "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round",
        "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor",
    }
)  # fmt: skip
_AXIS = {"Softmax": -1, "LogSoftmax": -1, "Concat": 0, "Split": 0}
_REDUCE = frozenset({f"Reduce{k}" for k in ("Max", "Min", "Mean", "Sum", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")})


def compose(first: Perm, second: Perm) -> Perm:
    """One transposition that does two in turn.

    Examples:
        >>> compose((0, 2, 3, 1), (0, 3, 1, 2))
        (0, 1, 2, 3)
    """
    return tuple(first[i] for i in second)


def inverse(perm: Perm) -> Perm:
    """The transposition that undoes ``perm``.

    Examples:
        >>> inverse((0, 2, 3, 1))
        (0, 3, 1, 2)
    """
    return tuple(perm.index(i) for i in range(len(perm)))


def shape_of(shape: tuple[int, ...], perm: Perm) -> tuple[int, ...]:
    """A shape after transposition."""
    return tuple(shape[i] for i in perm)


def is_trivial(shape: tuple[int, ...], perm: Perm) -> bool:
    """Whether a transposition moves no element: the axes longer than 1 keep their order."""
    long = [i for i in perm if shape[i] != 1]
    return long == sorted(long)


def perm_of(op: Op, rank: int) -> Perm:
    """The permutation of a Transpose."""
    return op.attr_ints("perm", tuple(range(rank))[::-1])


def data_inputs(graph: Graph, op: Op) -> tuple[str, ...]:
    """The inputs whose axes are those of the result: not constants, not single elements."""
    return tuple(n for n in graph.activations(op) if graph.tensors[n].elements != 1)


def can_permute(graph: Graph, op: Op) -> bool:
    """Whether ``op`` computes the same on tensors with their axes in another order, once :func:`permuted` has changed it."""
    if op.domain or op.body or not op.outputs or not op.outputs[0]:
        return False
    rank = len(graph.tensors[op.outputs[0]].shape)
    data = data_inputs(graph, op)
    if not data or any(len(graph.tensors[n].shape) != rank for n in (*data, *(o for o in op.outputs if o))):
        return False
    if op.type in POINTWISE:
        return all(_is_permutable_constant(graph.tensors[n], rank) for n in graph.constants(op))
    if op.type == "Concat":
        return len(data) == len(dict.fromkeys(op.inputs))
    if op.type in _REDUCE:
        return bool(op.attr_int("keepdims", 1)) and all(small_value(graph, n) is not None for n in op.inputs[1:] if n)
    if op.type == "Pad":
        return len([n for n in op.inputs[3:] if n]) == 0 and small_value(graph, op.inputs[1]) is not None
    if op.type == "Slice":
        return len(op.inputs) > 3 and bool(op.inputs[3]) and all(small_value(graph, n) is not None for n in op.inputs[1:] if n)
    if op.type in LINEAR_QUANTIZATION:
        return not op.attr_int("block_size", 0) and all(graph.tensors[n].is_constant for n in op.inputs[1:] if n)
    return op.type in _AXIS and data[0] == op.inputs[0]


def permuted(graph: Graph, op: Op, perm: Perm) -> tuple[Op, dict[str, Tensor]]:
    """``op`` for tensors transposed by ``perm``, and the constants that this needs; the names of its data are the caller's to change."""
    back = inverse(perm)
    rank = len(perm)
    if op.type in POINTWISE:
        return _with_constants(op, {n: _constant(graph.tensors[n], perm) for n in graph.constants(op) if graph.tensors[n].elements != 1})
    if op.type in _AXIS or (op.type in LINEAR_QUANTIZATION and graph.tensors[op.inputs[1]].elements != 1):
        axis = op.attr_int("axis", _AXIS.get(op.type, 1)) % rank
        return replace(op, attrs={**op.attrs, "axis": back[axis]}), {}
    if op.type in _REDUCE and len(op.inputs) > 1 and op.inputs[1]:
        return _with_axes(graph, op, 1, back)
    if op.type == "Slice":
        return _with_axes(graph, op, 3, back)
    if op.type == "Pad":
        pads = _read(graph, op.inputs[1]).reshape(2, rank)[:, list(perm)].reshape(-1)
        return _with_constants(op, {op.inputs[1]: inline(f"{op.inputs[1]}/{_suffix(perm)}", pads)})
    return op, {}


def transposed_constant(t: Tensor, perm: Perm) -> Tensor:
    """The constant with its axes in another order, under a name of its own; its bytes are not read."""
    data, called = t.data, f"{t.name}/{_suffix(perm)}"
    if data is None:
        raise TypeError(f"tensor {t.name!r} is not a constant")
    if data.array is not None:
        return replace(t, name=called, shape=shape_of(t.shape, perm), data=WeightRef(array=data.array.transpose(perm)))
    order = compose(data.order or tuple(range(len(t.shape))), perm)
    return replace(t, name=called, shape=shape_of(t.shape, perm), data=replace(data, order=order))


def _suffix(perm: Perm) -> str:
    return "order" + "".join(f"_{i}" for i in perm)


def _is_permutable_constant(t: Tensor, rank: int) -> bool:
    """A single element, or a constant of full rank (or less, then it has leading axes of 1) whose bytes can be seen in another order."""
    if t.elements == 1:
        return True
    return len(t.shape) <= rank and not t.is_packed and t.data is not None and t.data.compute is None and t.quantization is None


def _constant(t: Tensor, perm: Perm) -> Tensor:
    """A constant operand of a pointwise operator, of full rank and transposed."""
    missing = len(perm) - len(t.shape)
    if missing:
        data = t.data
        if data is not None and data.array is not None:
            data = WeightRef(array=data.array.reshape((1,) * missing + t.shape))
        elif data is not None and data.order:
            data = replace(data, order=(*range(missing), *(i + missing for i in data.order)))
        t = replace(t, shape=(1,) * missing + t.shape, data=data)
    return transposed_constant(t, perm)


def _with_constants(op: Op, new: dict[str, Tensor]) -> tuple[Op, dict[str, Tensor]]:
    inputs = tuple(new[n].name if n in new else n for n in op.inputs)
    return replace(op, inputs=inputs), {t.name: t for t in new.values()}


def _with_axes(graph: Graph, op: Op, slot: int, back: Perm) -> tuple[Op, dict[str, Tensor]]:
    axes = _read(graph, op.inputs[slot])
    moved = np.array([back[int(a) % len(back)] for a in axes.reshape(-1)], axes.dtype)
    made = inline(f"{op.inputs[slot]}/{_suffix(inverse(back))}", moved)
    inputs = tuple(made.name if i == slot else n for i, n in enumerate(op.inputs))
    return replace(op, inputs=inputs), {made.name: made}


def _read(graph: Graph, name: str) -> npt.NDArray[Any]:
    return graph.tensors[name].numpy()
