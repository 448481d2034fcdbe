"""A chain of elementwise operators in one pass over memory.

:func:`compile_chain` turns the steps into a small register program; :data:`chain_f32` runs it block by block, each register
a block of 1024 values that stays in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types

from hetsched_kernels import codes as c
from hetsched_kernels.activation import ACTIVATE, apply_unary
from hetsched_kernels.arrays import Array, InAddress, InF32, InI64, OutF32
from hetsched_kernels.binary import combine_f32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.lowlevel import F32P, carray, intrinsic
from hetsched_kernels.parts import span

BLOCK = 1024
_LOAD, _UNARY, _BINARY = 0, 1, 2
_BINARY_FIRST, _BINARY_LAST = c.ADD, c.RDIV


@dataclass(frozen=True)
class Step:
    """One operator of a chain.

    Attributes:
        code: from ``codes.UNARY`` or ``codes.BINARY``.
        operands: one or two value numbers: 0 … inputs-1 are the external inputs, then one number per earlier step.
        alpha: first parameter of a unary function.
        beta: its second parameter.
    """

    code: int
    operands: tuple[int, ...]
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Operand:
    """How an external input lies over the output of ``length`` elements: element i is ``x[(i // inner) % period]``.

    The output's own shape: ``Operand(1, length)``; a scalar: ``Operand(length, 1)``; a row vector [C]: ``Operand(1, C)``;
    one value per channel of NCHW: ``Operand(H*W, C)``.
    """

    inner: int
    period: int


@dataclass(frozen=True)
class Chain:
    """A compiled chain: what :data:`chain_f32` needs besides the arrays.

    Attributes:
        program: int64 [instructions · 6].
        parameters: float32 [instructions · 2], alpha and beta.
        scratch: float32 elements of scratch wanted.
    """

    program: Array
    parameters: Array
    scratch: int


def operand_of(shape: Sequence[int], output: Sequence[int]) -> Operand | None:
    """The :class:`Operand` for an input of ``shape`` broadcast to ``output``; None where it is no such simple pattern."""
    length = int(np.prod(output, dtype=np.int64))
    padded = (1,) * (len(output) - len(shape)) + tuple(shape)
    axes = [i for i, (size, full) in enumerate(zip(padded, output, strict=True)) if size != 1 or full == 1]
    real = [i for i in axes if output[i] != 1]
    if not real:
        return Operand(max(length, 1), 1)
    first, last = real[0], real[-1]
    if any(output[i] != 1 and i not in real for i in range(first, last + 1)):
        return None
    inner = int(np.prod(output[last + 1 :], dtype=np.int64))
    return Operand(inner, int(np.prod(output[first : last + 1], dtype=np.int64)))


def compile_chain(steps: Sequence[Step], inputs: Sequence[Operand]) -> Chain:
    """Turn the steps into a register program; the last step's value is the output.

    Args:
        steps: in order; each may use external inputs and earlier steps any number of times.
        inputs: how each external input lies over the output.

    Raises:
        ValueError: a step uses a value that does not exist yet, or has the wrong number of operands.
    """
    last_use = _last_uses(steps, len(inputs))
    rows: list[tuple[int, ...]] = []
    parameters: list[tuple[float, float]] = []
    register: dict[int, int] = {}
    free: list[int] = []
    count = 0

    def take(value: int, lasting: bool = False) -> int:
        nonlocal count
        if lasting or not free:  # a constant is loaded in the first block only: nothing else may ever use its register
            free.append(count)
            count += 1
        register[value] = free.pop()
        return register[value]

    for index, step in enumerate(steps):
        for value in step.operands:
            if value < len(inputs) and value not in register:
                operand = inputs[value]
                constant = operand.period == 1
                where = take(value, lasting=constant)
                rows.append((_LOAD, where, value, operand.inner, operand.period, int(constant)))
                parameters.append((0.0, 0.0))
        sources = [register[v] for v in step.operands]
        target = take(len(inputs) + index)
        kind = _UNARY if len(sources) == 1 else _BINARY
        rows.append((kind, target, step.code, sources[0], sources[-1], 0))
        parameters.append((step.alpha, step.beta))
        for value in dict.fromkeys(step.operands):
            constant = value < len(inputs) and inputs[value].period == 1
            if last_use[value] == index and not constant:
                free.append(register[value])
    return Chain(np.array(rows, np.int64).reshape(-1), np.array(parameters, np.float32).reshape(-1), count * BLOCK)


def _last_uses(steps: Sequence[Step], inputs: int) -> dict[int, int]:
    last: dict[int, int] = {}
    for index, step in enumerate(steps):
        binary = _BINARY_FIRST <= step.code <= _BINARY_LAST
        if len(step.operands) != (2 if binary else 1):
            raise ValueError(f"step {index} (code {step.code}) has {len(step.operands)} operands; give {2 if binary else 1}")
        for value in step.operands:
            if not 0 <= value < inputs + index:
                raise ValueError(f"step {index} uses value {value}, but only {inputs + index} values exist before it")
            last[value] = index
    return last


def addresses(arrays: Sequence[Array]) -> Array:
    """The arrays' addresses as :data:`chain_f32` takes them (make once; the arrays must be float32, contiguous and stay alive)."""
    return np.array([a.ctypes.data for a in arrays], np.int64)


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(F32P))

    return F32P(types.int64), codegen


@block
def _load(target: Any, address: Any, start: Any, inner: Any, period: Any) -> None:
    """target[i] = x[((start + i) // inner) % period]."""
    source = carray(_pointer(address), (period,))
    n = target.shape[0]
    done = 0
    while done < n:
        at = start + done
        if inner == 1:
            first = at % period
            run = min(n - done, period - first)
            part, values = span(target, done, run), span(source, first, run)
            for i in range(run):
                part[i] = values[i]
        else:
            run = min(n - done, inner - at % inner)
            value = source[(at // inner) % period]
            part = span(target, done, run)
            for i in range(run):
                part[i] = value
        done += run


@kernel(needs=(ACTIVATE,))
def chain_f32(program: InI64, parameters: InF32, inputs: InAddress, out: OutF32, scratch: OutF32) -> None:
    """Compute out = the chain applied to the inputs.

    Args:
        program: :attr:`Chain.program`.
        parameters: :attr:`Chain.parameters`.
        inputs: :func:`addresses` of the external inputs, in order.
        out: [length] result; may be an input that has the output's own shape.
        scratch: float32 [:attr:`Chain.scratch`].
    """
    length = out.shape[0]
    steps = program.shape[0] // 6
    for start in range(0, length, BLOCK):
        n = min(BLOCK, length - start)
        target = span(scratch, 0, n)
        for s in range(steps):
            kind, where, p2, p3, p4, p5 = (
                program[6 * s],
                program[6 * s + 1],
                program[6 * s + 2],
                program[6 * s + 3],
                program[6 * s + 4],
                program[6 * s + 5],
            )
            target = span(scratch, where * BLOCK, n)
            if kind == _LOAD:
                if start == 0 or p5 == 0:
                    _load(target, inputs[p2], start, p3, p4)
            elif kind == _UNARY:
                source = span(scratch, p3 * BLOCK, n)
                for i in range(n):
                    target[i] = source[i]
                apply_unary(target, p2, parameters[2 * s], parameters[2 * s + 1])
            else:
                combine_f32(target, span(scratch, p3 * BLOCK, n), span(scratch, p4 * BLOCK, n), p2)
        part = span(out, start, n)
        for i in range(n):
            part[i] = target[i]
