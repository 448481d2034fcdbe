"""Parts of flat arrays without numba's reference counting.

A slice costs two atomic operations (its owner is counted up and down); in loops over short rows that is most of the time.
These are bare pointers with a length, valid while the kernel's arguments are, and nothing is clamped or checked.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels.lowlevel import alloca_once, intrinsic, memset, pack_array, pointer_to, populate_array

#: The most dimensions that kernels count through.
RANK = 64


@intrinsic
def ptr(typing_context: Any, array: Any, start: Any) -> Any:
    """Pointer to ``array[start]``, of an array or of another pointer: what the external functions take, at no cost at all."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if isinstance(signature.args[0], types.Array):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
        else:
            data = args[0]
        return builder.gep(data, [args[1]])

    return pointer_to(array.dtype)(array, types.int64), codegen


def array_from(context: Any, builder: Any, kind: Any, pointer: Any, count: Any) -> Any:
    """An array structure without an owner."""
    array = context.make_array(kind)(context, builder)
    size = context.get_constant(types.intp, getattr(kind.dtype, "bitwidth", 8) // 8)  # a boolean takes a byte
    data = builder.bitcast(pointer, context.get_data_type(kind.dtype).as_pointer())
    shape, strides = pack_array(builder, [count]), pack_array(builder, [size])
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
    return array._getvalue()


def _part(dtype: Any = None) -> Any:
    """An intrinsic (array, start, count) → array, of the same elements or seen as ``dtype`` (count is in the array's elements)."""

    def typing(typing_context: Any, array: Any, start: Any, count: Any) -> Any:
        kind = types.Array(dtype or array.dtype, 1, "C")

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            have, want = signature.args[0].dtype.bitwidth, kind.dtype.bitwidth
            length = builder.sdiv(builder.mul(args[2], args[2].type(have)), args[2].type(want)) if have != want else args[2]
            return array_from(context, builder, kind, builder.gep(data, [args[1]]), length)

        return kind(array, types.int64, types.int64), codegen

    return intrinsic(typing)


#: ``span(array, start, count)``: ``array[start : start + count]``; the others see the same bytes as another type.
span = _part()
as_i64 = _part(types.int64)
as_i32 = _part(types.int32)
as_u32 = _part(types.uint32)
as_i8 = _part(types.int8)
as_u16 = _part(types.uint16)
as_u8 = _part(types.uint8)
as_f32 = _part(types.float32)


@intrinsic
def onward(typing_context: Any, array: Any, start: Any) -> Any:
    """``array[start:]``."""
    kind = types.Array(array.dtype, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = context.make_array(signature.args[0])(context, builder, args[0])
        count = builder.sub(builder.extract_value(whole.shape, 0), args[1])
        return array_from(context, builder, kind, builder.gep(whole.data, [args[1]]), count)

    return kind(array, types.int64), codegen


def room(dtype: Any, elements: int) -> Any:
    """An intrinsic () → array of ``elements`` zeros on the stack of the kernel (not block) that calls it, without an allocation."""
    kind = types.Array(dtype, 1, "C")

    def typing(typing_context: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = alloca_once(builder, context.get_data_type(dtype), size=elements)
            memset(builder, place, context.get_constant(types.intp, elements * dtype.bitwidth // 8), 0)
            return array_from(context, builder, kind, place, context.get_constant(types.intp, elements))

        return kind(), codegen

    return intrinsic(typing)


#: An index of up to :data:`RANK` dimensions, all zero.
zero_index = room(types.int64, RANK)
