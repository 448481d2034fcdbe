"""A segment as a Core ML program: the operators' original nodes as MIL operations, with typed ends.

Composites are written as the nodes that they were made of. Shapes are fixed, so what reshapes takes its shape from its result. Float
operators compute in float16 or float32 as asked; Q/DQ nodes become ``quantize`` and ``dequantize``, and quantized constants stay
integers in the package (``constexpr_blockwise_shift_scale``, iOS 18).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError, first_line
from hetsched.graph import DType, Graph, Op
from hetsched.lowering.onnx_segment import Ends, original_nodes
from hetsched.reference.gguf_types import constant_value

Units: TypeAlias = Literal["cpu", "gpu", "npu"]
#: Core ML's name of what may run a program for a processor of a plan: it always may fall back to the CPU.
UNITS: Mapping[Units, str] = {"cpu": "CPU_ONLY", "gpu": "CPU_AND_GPU", "npu": "CPU_AND_NE"}
_ENDS: Mapping[DType, str] = {
    DType.F32: "fp32", DType.F16: "fp16", DType.I32: "int32", DType.I64: "int32", DType.BOOL: "int32", DType.U8: "int32", DType.I8: "int32",
}  # fmt: skip
#: What is passed in 32 bits and is another type inside.
_INSIDE: Mapping[DType, str] = {DType.BOOL: "bool", DType.U8: "uint8", DType.I8: "int8"}
#: Words of Core ML's text form, which its converter would rename.
_RESERVED = frozenset({
    "any", "bf16", "bool", "dict", "false", "fp16", "fp32", "fp64", "func", "int16", "int32", "int64", "int8", "list", "program", "state",
    "string", "tensor", "true", "tuple", "uint16", "uint32", "uint64", "uint8",
})  # fmt: skip
#: Beyond this a constant stands for infinity: masks are often the least float32.
_ENDLESS = 1e30
_MAX_RANK = 5
_INT32 = 2**31 - 1


@dataclass(slots=True)
class MilBuild:
    """What a lowering is given: the node, and how its tensors are read and written.

    ``variables`` are MIL variables by tensor name; ``graph`` holds the constants. ``half``: floats become float16.
    """

    graph: Graph
    half: bool = False
    variables: dict[str, Any] = field(default_factory=dict)

    def read(self, name: str) -> Any:
        """A tensor as an argument of an operation: the variable, or the constant's values (integers of 64 bits in 32)."""
        return self.variables[name] if name in self.variables else self.constant(name)

    def constant(self, name: str) -> npt.NDArray[Any]:
        """The values of a constant.

        Raises:
            UnsupportedModelError: it is computed by the segment or comes from outside, or holds integers that need over 32 bits.
        """
        values = self._stored(name)
        if values.dtype == np.int64:
            if values.size and max(-int(values.min()), int(values.max())) > _INT32:
                raise UnsupportedModelError(f"Core ML has integers of 32 bits, and {name!r} has larger ones")
            return values.astype(np.int32)
        if self.half and values.dtype == np.float32 and (np.abs(values) > _ENDLESS).any():
            most = np.float32(np.finfo(np.float16).max)
            return np.where(np.isfinite(values) & (np.abs(values) > _ENDLESS), np.copysign(most, values), values)
        return values

    def whole(self, name: str) -> list[int]:
        """The whole numbers of a constant (axes, sizes, places), of any size."""
        return [int(v) for v in self._stored(name).reshape(-1)]

    def _stored(self, name: str) -> npt.NDArray[Any]:
        tensor = self.graph.tensors[name]
        if name in self.variables or not tensor.is_constant:
            raise UnsupportedModelError(f"Core ML wants {name!r} to be a constant")
        return constant_value(tensor)

    def number(self, value: float, x: Any) -> Any:
        """A number in the element type of an argument."""
        from coremltools.converters.mil.mil import types

        return (x.dtype.type if isinstance(x, np.ndarray) else types.nptype_from_builtin(x.dtype))(value)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return self.graph.tensors[name].shape

    def optional(self, op: Op, position: int) -> str:
        """The name of an input that may be left out; empty where it is."""
        return op.inputs[position] if position < len(op.inputs) else ""


#: Writes one node; what it returns is the node's results, in order.
Lowering: TypeAlias = Callable[[MilBuild, Op], Sequence[Any]]


def builder() -> Any:
    """Core ML's builder of operations; importing it takes seconds."""
    from coremltools.converters.mil import Builder

    return Builder


def lowerings() -> Mapping[str, Lowering]:
    """Every node type that can be written."""
    from hetsched.lowering import mil_arithmetic, mil_movement, mil_products, mil_windows

    modules = (mil_arithmetic, mil_movement, mil_products, mil_windows)
    return {name: f for module in modules for name, f in module.LOWERINGS.items()}


def refusal(graph: Graph, op: Op) -> str | None:
    """Why an operator cannot be written, in words; None where it can be.

    Looks at node types, element types and ranks; what only Core ML's own checks find, :func:`mil_package` raises.
    """
    known = lowerings()
    for node in original_nodes([op]):
        if node.type not in known or node.domain not in {"", "ai.onnx"}:
            if node.type in {"LSTM", "GRU", "RNN"}:
                return f"recurrent layers ({node.type}) are not written for Core ML: plan them on the CPU"
            return f"there is no Core ML operation for {node.type}"
        for name in filter(None, (*node.inputs, *node.outputs)):
            if len(graph.tensors[name].shape) > _MAX_RANK:
                return f"Core ML's tensors have up to {_MAX_RANK} axes, and {name!r} has {len(graph.tensors[name].shape)}"
    return None


def mil_package(graph: Graph, ops: Sequence[Op], ends: Ends, path: Path, *, half: bool, units: Units) -> None:
    """Write the operators ``ops`` as a model package.

    Args:
        graph: their graph.
        ops: in execution order.
        ends: inputs and outputs of the model. float32, float16 and int32; 64-bit and 8-bit integers and booleans are passed in 32 bits.
        path: the ``.mlpackage`` folder to write; it must not exist.
        half: compute in float16; the ends keep their types.
        units: the processor that the plan names.

    Raises:
        UnsupportedModelError: Core ML has no such operation, or refuses it; the message names the node.
    """
    with _quiet():
        try:
            import coremltools as ct
        except ImportError as e:
            raise UnsupportedModelError(
                "Core ML packages are written by coremltools, which is not installed: install hetsched[coreml]"
            ) from e
        program = _program(graph, ops, ends, ct, half)
        precision = ct.precision.FLOAT16 if half else ct.precision.FLOAT32
        try:
            model = ct.convert(
                program, source="milinternal", convert_to="mlprogram", compute_precision=precision, skip_model_load=True,
                compute_units=ct.ComputeUnit[UNITS[units]], minimum_deployment_target=ct.target.iOS18,
            )  # fmt: skip
        except Exception as e:
            raise UnsupportedModelError(f"Core ML refuses the segment of {ops[0].name!r}: {first_line(e)}") from e
        model.author, model.short_description = "hetsched", f"{len(ops)} operators of {graph.name}"
        model.save(str(path))


def names_in(ends: Sequence[str]) -> dict[str, str]:
    """Core ML's names of tensors: letters, digits and underscores, each once, in the same order."""
    out: dict[str, str] = {}
    taken: set[str] = set()
    for name in ends:
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
        plain = plain if plain[:1].isalpha() else f"t_{plain}"
        while plain in taken or plain in _RESERVED:
            plain += "_"
        out[name] = plain
        taken.add(plain)
    return out


def _program(graph: Graph, ops: Sequence[Op], ends: Ends, ct: Any, half: bool) -> Any:
    from coremltools.converters.mil.mil import Function, Program, types

    named = names_in((*ends.inputs, *ends.outputs))
    known = lowerings()

    alien = next((n for n in (*ends.inputs, *ends.outputs) if graph.tensors[n].dtype not in _ENDS), None)
    if alien is not None:
        raise UnsupportedModelError(f"Core ML's models have no {graph.tensors[alien].dtype} inputs and outputs, and {alien!r} is one")

    def placeholder(name: str) -> Any:
        tensor = graph.tensors[name]
        return builder().placeholder(tensor.shape or (1,), dtype=getattr(types, _ENDS[tensor.dtype]), name=named[name])

    def inside(name: str, variable: Any) -> Any:
        kind = _INSIDE.get(graph.tensors[name].dtype)
        return variable if kind is None else builder().cast(x=variable, dtype=kind)

    def outside(name: str) -> Any:
        variable = build.read(name)
        passed = builder().cast(x=variable, dtype="int32") if graph.tensors[name].dtype in _INSIDE else variable
        return builder().identity(x=passed, name=named[name])

    build = MilBuild(graph, half)
    with Function({named[n]: placeholder(n) for n in ends.inputs}, opset_version=ct.target.iOS18) as function:
        build.variables.update({n: inside(n, function.inputs[named[n]]) for n in ends.inputs})
        for node in original_nodes(ops):
            if node.type not in known:
                raise UnsupportedModelError(f"node {node.name!r} ({node.type}): there is no Core ML operation for it")
            try:
                results = known[node.type](build, node)
            except UnsupportedModelError as e:
                raise UnsupportedModelError(f"node {node.name!r} ({node.type}): {e}") from e
            except Exception as e:  # Core ML's checks raise whatever they like
                raise UnsupportedModelError(f"node {node.name!r} ({node.type}): Core ML refuses it: {first_line(e)}") from e
            _check_shapes(graph, node, results)
            build.variables.update(zip(node.outputs, results, strict=False))
        function.set_outputs([outside(n) for n in ends.outputs])
    program = Program()
    program.add_function("main", function)
    return program


def _check_shapes(graph: Graph, node: Op, results: Sequence[Any]) -> None:
    """Whether results have the shapes that the graph gives them; a single value may have one axis.

    Raises:
        UnsupportedModelError: one has another.
    """
    for name, found in zip(node.outputs, results, strict=False):
        wanted = graph.tensors[name].shape if name else tuple(found.shape)
        if tuple(found.shape) != wanted and (wanted or tuple(found.shape) != (1,)):
            raise UnsupportedModelError(
                f"node {node.name!r} ({node.type}): Core ML's operation gives {list(found.shape)} and ONNX's {list(wanted)}"
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's progress bars and its words about what it does not find on Linux."""
    from contextlib import redirect_stderr
    from io import StringIO

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
