"""ONNX's numbering of element types (``TensorProto.DataType``, onnx.proto3) and the types that stand for them here."""

from __future__ import annotations

from hetsched.errors import UnsupportedModelError
from hetsched.graph import DType

#: ONNX element type number -> type.
BY_NUMBER: dict[int, DType] = {
    1: DType.F32, 2: DType.U8, 3: DType.I8, 4: DType.U16, 5: DType.I16, 6: DType.I32, 7: DType.I64, 8: DType.STRING,
    9: DType.BOOL, 10: DType.F16, 11: DType.F64, 12: DType.U32, 13: DType.U64, 16: DType.BF16, 17: DType.F8E4M3,
    18: DType.F8E4M3FNUZ, 19: DType.F8E5M2, 20: DType.F8E5M2FNUZ, 21: DType.U4, 22: DType.I4, 23: DType.F4E2M1, 24: DType.F8E8M0,
    25: DType.U2, 26: DType.I2,
}  # fmt: skip
NUMBER_OF: dict[DType, int] = {v: k for k, v in BY_NUMBER.items()}
_UNSUPPORTED = {14: "complex64", 15: "complex128", 27: "float6e2m3", 28: "float6e3m2"}


def element_type(number: int, where: str) -> DType:
    """The type with ONNX's ``number``.

    Raises:
        UnsupportedModelError: the number is unknown or the type is not handled; ``where`` names the tensor or node.
    """
    if number not in BY_NUMBER:
        name = _UNSUPPORTED.get(number, f"number {number}")
        raise UnsupportedModelError(f"{where} has the element type {name}, which is not supported")
    return BY_NUMBER[number]
