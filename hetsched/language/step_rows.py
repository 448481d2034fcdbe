"""Operators of a step that work on each row by itself: norms, rotary embedding, arithmetic, functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError
from hetsched.language.building import Building
from hetsched.language.fusion import Fused
from hetsched.language.run_values import Descriptor, Value, View
from hetsched.language.step_products import function_name, quantized_norm
from hetsched.language.step_values import FIRST_SCORED, Part
from hetsched_kernels import codes
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.binary import binary_f32
from hetsched_kernels.elementwise import unary_f32
from hetsched_kernels.movement import copy_strided
from hetsched_kernels.norm import layer_norm_f32, rms_norm_f32
from hetsched_kernels.program import Call
from hetsched_kernels.rotary import rotary_f32


def norm(b: Building, one: Fused) -> None:
    """RMSNorm of rows, or of groups as long as its scale (heads)."""
    if one.quantized:
        quantized_norm(b, one)
        return
    op, x, out = one.op, one.reads[0], one.writes[0]
    scale, width = b.constant(op.inputs[1], op.attr_float("offset", 0.0)), b.width(x)
    many, array, to = width // scale.size, b.read(x), b.write(out)
    calls = []
    for part in b.parts:
        own = View(array, Value(FIRST_SCORED, width)) if one.last else part.of(array, width)
        args = (own, scale, part.of(to, width), part.times(many), scale.size, op.attr_float("epsilon", 1e-5))
        calls.append(Call(rms_norm_f32, (), args))
    b.emit(calls, one.reads, [out])


def layer_norm(b: Building, one: Fused) -> None:
    """LayerNormalization of rows."""
    op, x, out = one.op, one.reads[0], one.writes[0]
    width, array, to = b.width(x), b.read(x), b.write(out)
    bias = b.constant(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else NO_F32
    calls = []
    for part in b.parts:
        own = View(array, Value(FIRST_SCORED, width)) if one.last else part.of(array, width)
        args = (own, b.constant(op.inputs[1]), bias, part.of(to, width), part.rows, width, op.attr_float("epsilon", 1e-5))
        calls.append(Call(layer_norm_f32, (), args))
    b.emit(calls, one.reads, [out])


def rotary(b: Building, one: Fused) -> None:
    """RotaryEmbedding of heads, by each row's position."""
    op, x, out = one.op, one.reads[0], one.writes[0]
    heads, width, pairs = op.attr_int("num_heads", 1) or 1, b.width(x), b.width(op.inputs[1])
    cos, sin = b.angles(op.inputs[1]), b.angles(op.inputs[2])
    array, to = b.read(x), b.write(out)
    calls = []
    for part in b.parts:
        angles = [_from_position(a, pairs, part) for a in (cos, sin)]
        tail = (part.rows, heads, width // heads, pairs, bool(op.attr_int("interleaved", 0)))
        calls.append(Call(rotary_f32, (), (part.of(array, width), *angles, part.of(to, width), *tail)))
    b.emit(calls, one.reads, [out])


def _from_position(table: npt.NDArray[Any], pairs: int, part: Part) -> View:
    """The angles of a part's rows."""
    return View(table, Value(part.position, pairs))


def arithmetic(b: Building, one: Fused) -> None:
    """Add, Sub, Mul or Div of two matrices of rows, or of one and a number."""
    op, out = one.op, one.writes[0]
    width, to, code = b.width(out), b.write(out), codes.BINARY[op.type]
    calls = []
    for part in b.parts:
        operands: list[Any] = []
        strides: list[Any] = []
        for name in op.inputs:
            tensor = b.graph.tensors[name]
            if tensor.is_constant and tensor.elements == 1:
                operands.append(b.constant(name))
                strides.append(np.zeros(1, np.int64))
            elif not tensor.is_constant and tensor.elements == width:
                operands.append(part.of(b.read(name), width))
                strides.append(np.ones(1, np.int64))
            else:
                raise UnsupportedModelError(f"node {op.name!r} ({op.type}): rows meet {name!r} of shape {list(tensor.shape)}")
        shape = Descriptor((part.times(width),))
        calls.append(Call(binary_f32, (), (*operands, part.of(to, width, sized=True), code, shape, *strides)))
    b.emit(calls, one.reads, [out])


def split(b: Building, one: Fused) -> None:
    """Split of the columns."""
    x, at, calls = one.reads[0], 0, []
    width, source = b.width(x), b.read(x).view(np.uint32)
    for out in one.writes:
        own, to = b.width(out), b.write(out).view(np.uint32)
        for part in b.parts:
            sizes = Descriptor((part.rows, own))
            args = (part.of(source, width), at, np.array([width, 1]), part.of(to, own), 0, np.array([own, 1]), sizes)
            calls.append(Call(copy_strided, ("uint32",), args))
        at += own
    b.emit(calls, one.reads, one.writes)


def function(b: Building, one: Fused) -> None:
    """A function of each element."""
    op, x, out = one.op, one.reads[0], one.writes[0]
    width, array, to = b.width(x), b.read(x), b.write(out)
    code = codes.UNARY[function_name(op)]
    calls = [Call(unary_f32, (), (p.of(array, width, sized=True), p.of(to, width, sized=True), code, 0.0, 0.0)) for p in b.parts]
    b.emit(calls, one.reads, [out])
