"""Products of a step: activations quantized once for all that read them, weights as they are stored, columns split among threads."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import Op, Tensor
from hetsched.language.building import Building
from hetsched.language.fusion import Fused, activations_as
from hetsched.language.low_rank import add_low_rank
from hetsched.language.run_values import Value, View
from hetsched.language.step_halves import half_product, is_half
from hetsched.language.step_values import FEW_TOKENS, FIRST_SCORED, Part
from hetsched.language.weights import packed_block
from hetsched.reference.gguf_types import constant_value
from hetsched_kernels import codes
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.few_bits import GROUP, K, N, PackedGroups
from hetsched_kernels.gemm import gemm_f32, gemm_f32_scratch, pack_b_f32
from hetsched_kernels.gemm_groups import gemm_groups_f32, gemm_groups_scratch, gemm_twofold_f32
from hetsched_kernels.groups import padded_depth
from hetsched_kernels.program import Call
from hetsched_kernels.quantize_groups import quantize_groups, rms_norm_quantize_groups, swiglu_quantize_groups
from hetsched_kernels.tile import COLS, LANES
from hetsched_kernels.twofold import quantize_twofold, rms_norm_quantize_twofold, swiglu_quantize_twofold

Array = npt.NDArray[Any]
#: Parts of a product for each thread, and columns that a part has at least.
_PARTS, _COLUMNS = 3, 4 * LANES
#: Bytes of weights that a part has at least, where few rows meet them and there are more parts than threads: each begins by waiting for
#: memory.
_BYTES = 1 << 18


def product(b: Building, one: Fused) -> None:
    """Gemm by a constant matrix, with its bias and activation, and what an adapter adds."""
    _plain_product(b, one)
    if b.adapter is not None and one.op.inputs[1] in b.adapter.low:
        add_low_rank(b, one, b.adapter)


def _plain_product(b: Building, one: Fused) -> None:
    op, out = one.op, one.writes[0]
    how, _ = activations_as(b.graph, op.inputs[1], b.precision)
    if how == "float" and is_half(b.graph.tensors[op.inputs[1]]):
        half_product(b, one, partial(columns_in_parts, threads=b.threads, grain=COLS), activation(one))
        return
    if how == "float":
        _float_product(b, one)
        return
    packed = b.store.get(op.inputs[1], lambda: packed_block(b.graph.tensors[op.inputs[1]]))
    x = one.reads[0]
    key = (how, int(packed.shape[K]), int(packed.shape[GROUP]))
    if b.quantized.get(key) != x:
        _quantize(b, x, key)
    bias = b.constant(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else NO_F32
    _split_product(b, packed, key, bias, out, one)


def activation(one: Fused) -> tuple[int, float, float]:
    """Code and parameters of the function that a product's result goes through."""
    if len(one.ops) == 1:
        return codes.NONE, 0.0, 0.0
    return codes.ACTIVATION[function_name(one.ops[0])], 0.0, 0.0


def function_name(op: Op) -> str:
    """The kernels' name of an operator of one input."""
    return "GeluTanh" if op.type == "Gelu" and op.attr_str("approximate", "") == "tanh" else op.type


def _split_product(b: Building, packed: PackedGroups, key: tuple[str, int, int], bias: Array, out: str, one: Fused) -> None:
    kernel, n, to = gemm_twofold_f32 if key[0] == "int16" else gemm_groups_f32, int(packed.shape[N]), b.write(out)
    operands, room, finish, calls = _storage(b, key), gemm_groups_scratch(packed.shape), activation(one), []
    most = _PARTS if b.capacity > FEW_TOKENS else min(max(packed.data.nbytes // (_BYTES * b.threads), 1), _PARTS)
    for first, last in columns_in_parts(n, b.threads, most=most):
        scratch = b.turn("product", room, 4 * _PARTS * b.threads)
        calls.append(Call(kernel, (), (*operands, packed.data, packed.shape, bias, to, scratch, b.whole.rows, first, last, *finish)))
    b.emit(calls, [_name(key)], [out])


def columns_in_parts(n: int, threads: int, grain: int = LANES, most: int = _PARTS) -> list[tuple[int, int]]:
    """Columns of a product in parts, each from a multiple of ``grain`` on, at most ``most`` for each thread."""
    parts = 1 if threads == 1 else max(1, min(most * threads, -(-n // max(_COLUMNS, grain))))
    edges = [min(i * -(-n // (grain * parts)) * grain, n) for i in range(parts + 1)]
    return [(a, c) for a, c in pairwise(edges) if a < c]


def _name(key: tuple[str, int, int]) -> str:
    return "quantized {} {} {}".format(*key)


def _storage(b: Building, key: tuple[str, int, int]) -> tuple[Array, ...]:
    """Where activations lie quantized: codes, scales and sums."""
    how, depth, group = key
    rows, groups = max(b.capacity, b.scores) * (2 if how == "int16" else 1), depth // group
    kinds = (("codes", rows * depth, np.uint8), ("scales", rows * groups, np.float32), ("sums", rows * groups, np.int32))
    return tuple(b.keep(f"{key} {what}", count, dtype) for what, count, dtype in kinds)


def _places(b: Building, key: tuple[str, int, int], part: Part) -> tuple[View, ...]:
    """The storage of a part's rows."""
    how, depth, group = key
    each = 2 if how == "int16" else 1
    return tuple(part.of(a, each * width) for a, width in zip(_storage(b, key), (depth, depth // group, depth // group), strict=True))


def _quantize(b: Building, x: str, key: tuple[str, int, int]) -> None:
    """Quantize a tensor for products."""
    how, depth, group = key
    width, array, calls = b.width(x), b.read(x), []
    for number, part in enumerate(b.parts):
        if how == "int16":
            scratch = b.keep(f"rest {width} {number}", width)
            args = (part.of(array, width), *_places(b, key, part), scratch, part.rows, width, depth, group)
            calls.append(Call(quantize_twofold, (), args))
        else:
            plain = (part.of(array, width), NO_F32, *_places(b, key, part), NO_F32, part.rows, width, depth, group)
            calls.append(Call(quantize_groups, (), plain))
    b.emit(calls, [x], [_name(key)])
    b.quantized[key] = x


def _key_of(b: Building, x: str, consumer: Op) -> tuple[str, int, int]:
    how, group = activations_as(b.graph, consumer.inputs[1], b.precision)
    return how, padded_depth(b.width(x), group), group


def _consumer(b: Building, name: str) -> Op:
    return next(op for op in b.graph.ops if op.type == "Gemm" and b.source(op.inputs[0]) == name)


def quantized_norm(b: Building, one: Fused) -> None:
    """RMSNorm of the rows (of a sum of two, where one is fused), written quantized for the products that follow."""
    op, out = one.op, one.writes[-1]
    key, width = _key_of(b, out, _consumer(b, out)), b.width(out)
    kernel = rms_norm_quantize_twofold if key[0] == "int16" else rms_norm_quantize_groups
    scale = b.constant(op.inputs[1], op.attr_float("offset", 0.0))
    x = b.read(one.reads[0])
    skip, total = (b.read(one.reads[-1]), b.write(one.writes[0])) if len(one.ops) == 2 else (NO_F32, NO_F32)
    calls = []
    for number, part in enumerate(b.parts):
        scratch = b.keep(f"norm {width} {number}", width)
        own = [View(a, Value(FIRST_SCORED, width)) if one.last else part.of(a, width) for a in (x, skip) if a.size]
        extra = (own[1], part.of(total, width)) if len(own) == 2 else (NO_F32, NO_F32)
        args = (own[0], extra[0], scale, extra[1], *_places(b, key, part), scratch, part.rows, width, key[1], key[2])
        calls.append(Call(kernel, (), (*args, op.attr_float("epsilon", 1e-5))))
    b.emit(calls, one.reads, [_name(key), *one.writes[: len(one.ops) - 1]])
    b.quantized[key] = out


def gate(b: Building, one: Fused) -> None:
    """Silu of one projection times the other, written quantized for the product that follows."""
    out, (left, right) = one.writes[0], one.reads
    key, width = _key_of(b, out, _consumer(b, out)), b.width(out)
    kernel = swiglu_quantize_twofold if key[0] == "int16" else swiglu_quantize_groups
    x, y, calls = b.read(left), b.read(right), []
    for number, part in enumerate(b.parts):
        scratch = b.keep(f"gate {width} {number}", width)
        args = (part.of(x, width), part.of(y, width), *_places(b, key, part), scratch, part.rows, width, key[1], key[2])
        calls.append(Call(kernel, (), args))
    b.emit(calls, one.reads, [_name(key)])
    b.quantized[key] = out


def _float_product(b: Building, one: Fused) -> None:
    """A product with a weight that no kernel computes on as it is stored: decoded once."""
    op, out = one.op, one.writes[0]
    n, k = b.graph.tensors[op.inputs[1]].shape
    weight = b.store.decoded(op.inputs[1], lambda: _decoded(b.graph.tensors[op.inputs[1]]))
    bias = b.constant(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else NO_F32
    calls = []
    for number, part in enumerate(b.parts):
        scratch = b.scratch(gemm_f32_scratch(b.most, n, k))
        if number == 0:
            to = b.write(out)
        args = (part.of(b.read(one.reads[0]), k), weight, bias, part.of(to, n), scratch, part.rows, n, k, *activation(one))
        calls.append(Call(gemm_f32, (), args))
    b.emit(calls, one.reads, [out])


def _decoded(weight: Tensor) -> Array:
    """A matrix as float32, in the order that products read it in."""
    return pack_b_f32(np.ascontiguousarray(constant_value(weight).astype(np.float32)), True)
