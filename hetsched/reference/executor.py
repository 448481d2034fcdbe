"""Running one operator, or a whole graph, with the reference functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, OptionError, UnsupportedModelError
from hetsched.graph import Graph, Op, Tensor
from hetsched.reference import attention, elementwise, language, layout, linear, quantized, recurrent, reductions, resize
from hetsched.reference.element_types import NUMBER_OF
from hetsched.reference.elementwise import Array, Function
from hetsched.reference.gguf_types import constant_value


@lru_cache(maxsize=1)
def _functions() -> Mapping[str, Function]:
    modules = (attention, elementwise, language, layout, linear, quantized, recurrent, reductions, resize)
    return {name: f for module in modules for name, f in module.OPS.items()}


def supported_types() -> frozenset[str]:
    """Operator types that have a reference function (fused ones run their body and are not listed)."""
    return frozenset(_functions())


def run_op(op: Op, inputs: Sequence[npt.NDArray[Any] | None], tensors: Mapping[str, Tensor] | None = None) -> list[Array]:
    """Run one operator.

    Args:
        op: the operator; where it has a ``body``, that is run.
        inputs: one array per name in ``op.inputs``, None where the name is empty.
        tensors: the graph's tensors, where the constants are found that only the ``body`` reads (scales, zero points).

    Returns:
        One array per name in ``op.outputs``.

    Raises:
        UnsupportedModelError: there is no reference function for the type.
        ExecutionError: the inputs do not fit the operator.
    """
    if op.is_composite:
        values = {name: a for name, a in zip(op.inputs, inputs, strict=False) if a is not None}
        _run_all(op.body, values, tensors or {})
        return [values[o] for o in op.outputs]
    f = _functions().get(op.type)
    if f is None or op.domain not in {"", "ai.onnx"}:
        raise UnsupportedModelError(f"node {op.name!r}: there is no reference for the operator {op.type} of domain {op.domain!r}")
    try:
        with np.errstate(all="ignore"):
            return f(op, inputs)
    except (ValueError, LookupError, TypeError, ArithmeticError, AssertionError, MemoryError) as error:
        raise ExecutionError(f"node {op.name!r} ({op.type}) cannot be evaluated: {error}") from error


def _run_all(ops: Sequence[Op], values: dict[str, Array], tensors: Mapping[str, Tensor]) -> None:
    for op in ops:
        for name in op.inputs:
            if name and name not in values and name in tensors and tensors[name].is_constant:
                values[name] = constant_value(tensors[name])
        op = _with_output_type(op, tensors)
        results = run_op(op, [values[i] if i else None for i in op.inputs], tensors)
        values.update((name, value) for name, value in zip(op.outputs, results, strict=False) if name)


def _with_output_type(op: Op, tensors: Mapping[str, Tensor]) -> Op:
    """A QuantizeLinear to a type that numpy does not have, with that type as attribute: its zero point no longer tells it."""
    out = tensors.get(op.outputs[0]) if op.type == "QuantizeLinear" else None
    if out is None or not out.is_packed:
        return op
    return replace(op, attrs={**op.attrs, "output_dtype": NUMBER_OF[out.dtype]})


def run(graph: Graph, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, Array]:
    """Run a graph and return every activation, by tensor name (the inputs included).

    Raises:
        OptionError: an input is missing from ``feeds`` or has another shape.
        ExecutionError: an operator cannot be evaluated.
    """
    values: dict[str, Array] = {}
    for name in graph.inputs:
        if name not in feeds:
            raise OptionError(f"the input {name!r} of {graph.name!r} is missing: give an array of shape {list(graph.tensors[name].shape)}")
        tensor, value = graph.tensors[name], np.asarray(feeds[name])
        if value.shape != tensor.shape:
            raise OptionError(f"the input {name!r} has shape {list(value.shape)} where {list(tensor.shape)} is expected")
        # What numpy has no type for is held wider: small floats as float32.
        values[name] = value.astype(np.float32 if tensor.is_packed and tensor.dtype.is_float else tensor.dtype.numpy, copy=False)
    _run_all(graph.ops, values, graph.tensors)
    return {n: v for n, v in values.items() if not (n in graph.tensors and graph.tensors[n].is_constant)}
