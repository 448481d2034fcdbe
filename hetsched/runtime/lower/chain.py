"""FusedElementwise: a chain of elementwise operators in one pass over memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched.graph import Op
from hetsched.runtime.lower.elementwise import clip_bounds, function_of
from hetsched.runtime.lower.lowering import Array, Lowering, bits
from hetsched.runtime.lower.movement import contiguous, emit_copy
from hetsched_kernels import chain as kernels
from hetsched_kernels import codes

_COPIES = ("DequantizeLinear", "QuantizeLinear", "Identity")


def fused_elementwise(low: Lowering) -> None:
    """Lower the body to one register program."""
    out = low.real_output()
    values: dict[str, int] = {}
    arrays: list[Array] = []
    operands: list[kernels.Operand] = []
    for slot, name in enumerate(low.op.inputs):
        if name and name not in values and _is_data(low, name):
            values[name] = len(arrays)
            array, operand = _operand(low, slot)
            arrays.append(array)
            operands.append(operand)
    steps: list[kernels.Step] = []
    for op in low.op.body:
        if op.type in _COPIES:
            values[op.outputs[0]] = values[op.inputs[0]]
            continue
        steps.extend(_steps(low, op, values, len(arrays) + len(steps)))
        values[op.outputs[0]] = len(arrays) + len(steps) - 1
    compiled = kernels.compile_chain(steps, operands)
    low.kept.extend(arrays)
    scratch = low.scratch(compiled.scratch, np.float32)
    low.emit(kernels.chain_f32, compiled.program, compiled.parameters, kernels.addresses(arrays), out, scratch)


def _is_data(low: Lowering, name: str) -> bool:
    """Whether an external input is an operand of an elementwise op, not a parameter (a bound of Clip, a scale)."""
    return any(name in (op.inputs[:1] if op.type in ("Clip", *_COPIES) else op.inputs) for op in low.op.body)


def _operand(low: Lowering, slot: int) -> tuple[Array, kernels.Operand]:
    array, shape, out = low.reals(slot), low.shape(slot), low.result_shape()
    operand = kernels.operand_of(shape, out)
    if operand is not None:
        return array, operand
    # No simple repetition: spread it out first.
    spread = low.scratch(low.output().elements, np.float32)
    padded = (1,) * (len(out) - len(shape)) + shape
    strides = [0 if n == 1 else s for n, s in zip(padded, contiguous(padded), strict=True)]
    emit_copy(low, bits(array), bits(spread), out, strides, contiguous(out))
    return spread, kernels.Operand(1, low.output().elements)


def _steps(low: Lowering, op: Op, values: dict[str, int], following: int) -> Iterator[kernels.Step]:
    """One step, or several for an op with more than two operands; ``following`` is the first one's value number."""
    reads = [values[n] for n in op.inputs if n in values]
    if op.type == "Clip":
        yield kernels.Step(codes.UNARY["Clip"], (reads[0],), *clip_bounds(low, op))
    elif op.type in codes.UNARY:
        code, alpha, beta = function_of(op)
        yield kernels.Step(code, (reads[0],), alpha, beta)
    elif len(reads) == 1:
        yield kernels.Step(codes.UNARY["Identity"], (reads[0],))
    else:
        kind = {"Sum": "Add", "Mod": "FMod" if op.attr_int("fmod", 0) else "Mod"}.get(op.type, op.type)
        last = reads[0]
        for k, operand in enumerate(reads[1:]):
            yield kernels.Step(codes.BINARY[kind], (last, operand))
            last = following + k
