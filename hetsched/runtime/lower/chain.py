"""FusedElementwise: a chain of elementwise operators in one pass over memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hetsched.graph import Op
from hetsched.runtime.lower.copying import contiguous, emit_copy
from hetsched.runtime.lower.elementwise import clip_bounds, function_of
from hetsched.runtime.lower.lowering import Array, Lowering, bits
from hetsched.runtime.lower.splitting import MANY
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
    low.kept.extend(arrays)

    def part(first: int, last: int) -> tuple[Any, ...]:
        own = [_part(a, o, first, last, out.size) for a, o in zip(arrays, operands, strict=True)]
        compiled = kernels.compile_chain(steps, [o for _, o in own])
        scratch = low.scratch(compiled.scratch, np.float32)
        return compiled.program, compiled.parameters, kernels.addresses([a for a, _ in own]), out[first:last], scratch

    # A power looks at a whole block to see whether its exponents are one number.
    block = kernels.BLOCK if any(s.code == codes.BINARY["Pow"] for s in steps) else 1
    grain = math.lcm(block, *(_apart(o, out.size) for o in operands))
    low.emit_split(kernels.chain_f32, out.size, grain * -(-MANY // grain), part)


def _apart(operand: kernels.Operand, length: int) -> int:
    """Parts may begin at multiples of so many elements, so that an operand lies over each in a simple way."""
    if operand.period == 1:
        return 1
    whole = operand.inner * operand.period
    return operand.inner if whole == length else whole


def _part(array: Array, operand: kernels.Operand, first: int, last: int, length: int) -> tuple[Array, kernels.Operand]:
    """What lies over the elements ``first`` to ``last`` of the output, and how."""
    if operand.period == 1:
        return array, kernels.Operand(last - first, 1)
    if operand.inner * operand.period < length:
        return array, operand
    own = array[first // operand.inner : -(-last // operand.inner)]
    return own, kernels.Operand(operand.inner, own.size)


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
