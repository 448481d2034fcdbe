"""What ONNX Runtime can run on this machine's CPU: asked of the installed library, by operator, version and element types.

Nothing here imports ONNX Runtime before an operator is asked about that has no kernel of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hetsched.graph import DType, Graph, Op, Tensor
from hetsched.lowering.onnx_segment import DOMAINS, NEWER, OPSET, original_nodes
from hetsched.runtime.support import unreadable_constant

_TYPE_NAMES = {
    DType.F32: "float", DType.F64: "double", DType.F16: "float16", DType.BF16: "bfloat16", DType.I64: "int64", DType.I32: "int32",
    DType.I16: "int16", DType.I8: "int8", DType.U64: "uint64", DType.U32: "uint32", DType.U16: "uint16", DType.U8: "uint8",
    DType.BOOL: "bool", DType.STRING: "string", DType.I4: "int4", DType.U4: "uint4",
}  # fmt: skip
#: ONNX Runtime converts these to float32 around operators that it has in float32 only.
_CONVERTED = frozenset({"float16", "bfloat16"})


def others_here() -> Mapping[str, Callable[[Op, Graph, str], str | None]]:
    """The delegates besides the kernels of this project that plans for ``host`` may use, in the order in which they are asked."""
    return {"ort": ort_supported}


def ort_supported(op: Op, graph: Graph, precision: str) -> str | None:
    """None if ONNX Runtime can run ``op`` here; otherwise the reason why not.

    Args:
        op: an operator; a composite runs as what it was made of.
        graph: its graph.
        precision: ``f32``, or ``w8a8`` of an operator with Q/DQ around it.
    """
    quantized = any(graph.tensors[n].quantization is not None for n in (*op.inputs, *op.outputs) if n)
    if precision != "f32" and not quantized:
        return f"ONNX Runtime runs this op in f32 only, not in {precision}: the model has no Q/DQ around it"
    unreadable = unreadable_constant(op, graph)
    if unreadable is not None:
        return unreadable
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return "ONNX Runtime, which may have one, is not installed: install hetsched[ort]"
    for node in original_nodes([op]):
        why = _refusal(node, graph.tensors)
        if why is not None:
            return why
    return None


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel for the versions ``first`` to ``last`` of an operator; ``types`` maps type names of its schema to what it takes."""

    first: int
    last: int
    types: Mapping[str, frozenset[str]]


def _refusal(op: Op, tensors: Mapping[str, Tensor]) -> str | None:
    domain = "" if op.domain == "ai.onnx" else op.domain
    name = op.type if not domain else f"{domain}.{op.type}"
    version = DOMAINS.get(domain, NEWER.get(op.type, OPSET) if not domain else 0)
    kernels = [k for k in _kernels().get((domain, op.type), ()) if k.first <= version <= k.last]
    if not kernels and not domain and _is_function(op.type):
        return None
    if not kernels and not domain and not _is_standard(op.type):
        return f"ONNX (opset {OPSET}) has no operator {op.type}, and the op keeps no nodes that it was made of"
    if not kernels:
        return f"ONNX Runtime has no CPU kernel for {name}"
    for slot, type_name in enumerate(_input_types().get((domain, op.type), ())):
        tensor = tensors.get(op.inputs[slot]) if slot < len(op.inputs) and op.inputs[slot] else None
        if tensor is None:
            continue
        wanted = _TYPE_NAMES.get(tensor.dtype, tensor.dtype.value)
        taken = frozenset[str]().union(*(k.types.get(type_name, frozenset({wanted})) for k in kernels))
        if wanted not in taken and not (wanted in _CONVERTED and "float" in taken):
            return f"ONNX Runtime has no CPU kernel for {name} on {tensor.dtype.value}, which {tensor.name!r} holds"
    return None


@lru_cache(maxsize=256)
def _is_standard(op_type: str) -> bool:
    """Whether ONNX itself has the operator at the opset that segments are written in."""
    from onnx import defs

    version = NEWER.get(op_type, OPSET)
    return bool(defs.has(op_type, version, "")) and not defs.get_schema(op_type, version, "").deprecated


def _is_function(op_type: str) -> bool:
    """Whether ONNX defines the operator by others, which ONNX Runtime then runs."""
    from onnx import defs

    if not _is_standard(op_type):
        return False
    schema: Any = defs.get_schema(op_type, NEWER.get(op_type, OPSET), "")
    return bool(schema.has_function or schema.has_context_dependent_function)


@lru_cache(maxsize=1)
def _kernels() -> Mapping[tuple[str, str], tuple[_Kernel, ...]]:
    from onnxruntime.capi import onnxruntime_pybind11_state as library

    rows: dict[tuple[str, str], list[_Kernel]] = {}
    for k in library.get_all_opkernel_def():
        if k.provider == "CPUExecutionProvider":
            types = {name: frozenset(_bare(t) for t in given) for name, given in k.type_constraints.items()}
            rows.setdefault(("" if k.domain == "ai.onnx" else k.domain, k.op_name), []).append(
                _Kernel(k.version_range[0], k.version_range[1], types)
            )
    return {key: tuple(found) for key, found in rows.items()}


@lru_cache(maxsize=1)
def _input_types() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """For each operator, the type names of its inputs (``T``), of the newest version that segments are written in."""
    from onnxruntime.capi import onnxruntime_pybind11_state as library

    found: dict[tuple[str, str], Any] = {}
    for schema in library.get_all_operator_schema():
        key = ("" if schema.domain == "ai.onnx" else schema.domain, schema.name)
        newest = DOMAINS.get(key[0], NEWER.get(key[1], OPSET))
        if schema.since_version <= newest and (key not in found or found[key].since_version < schema.since_version):
            found[key] = schema
    return {key: tuple(str(i.typeStr) for i in schema.inputs) for key, schema in found.items()}


def _bare(name: str) -> str:
    """``tensor(float)`` -> ``float``."""
    return name.removeprefix("tensor(").removesuffix(")")
