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

from hetsched.errors import UnsupportedModelError
from hetsched.graph import DType, Graph, Op
from hetsched.lowering.onnx_segment import Ends, original_nodes

Units: TypeAlias = Literal["cpu", "gpu", "npu"]
#: Core ML's name of what may run a program for a processor of a plan: it always may fall back to the CPU.
UNITS: Mapping[Units, str] = {"cpu": "CPU_ONLY", "gpu": "CPU_AND_GPU", "npu": "CPU_AND_NE"}
_ENDS: Mapping[DType, str] = {DType.F32: "fp32", DType.F16: "fp16", DType.I32: "int32", DType.I64: "int32"}
_MAX_RANK = 5


@dataclass(slots=True)
class MilBuild:
    """What a lowering is given: the node, and how its tensors are read and written.

    ``variables`` are MIL variables by tensor name; ``graph`` holds the constants.
    """

    graph: Graph
    variables: dict[str, Any] = field(default_factory=dict)

    def read(self, name: str) -> Any:
        """A tensor as an argument of an operation: the variable, or the constant's values (integers of 64 bits in 32)."""
        return self.variables[name] if name in self.variables else self.constant(name)

    def constant(self, name: str) -> npt.NDArray[Any]:
        """The values of a constant.

        Raises:
            UnsupportedModelError: it is computed by the segment or comes from outside.
        """
        tensor = self.graph.tensors[name]
        if name in self.variables or not tensor.is_constant:
            raise UnsupportedModelError(f"Core ML wants {name!r} to be a constant")
        values = tensor.numpy()
        return values.astype(np.int32) if values.dtype == np.int64 else values

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return self.graph.tensors[name].shape

    def optional(self, op: Op, position: int) -> str:
        """The name of an input that may be left out; empty where it is."""
        return op.inputs[position] if position < len(op.inputs) else ""


#: Writes one node; what it returns is the node's results, in order.
Lowering: TypeAlias = Callable[[MilBuild, Op], Sequence[Any]]


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
        if node.type not in known or (node.domain not in {"", "ai.onnx"} and node.type not in _CONTRIB):
            return f"there is no Core ML operation for {node.type}"
        for name in filter(None, (*node.inputs, *node.outputs)):
            if len(graph.tensors[name].shape) > _MAX_RANK:
                return f"Core ML's tensors have up to {_MAX_RANK} axes, and {name!r} has {len(graph.tensors[name].shape)}"
    return None


_CONTRIB = frozenset({"MatMulNBits", "Gelu", "FastGelu", "QuickGelu"})


def mil_package(graph: Graph, ops: Sequence[Op], ends: Ends, path: Path, *, half: bool, units: Units) -> None:
    """Write the operators ``ops`` as a model package.

    Args:
        graph: their graph.
        ops: in execution order.
        ends: inputs and outputs of the model. float32, float16 and int32; 64-bit integers are passed in 32 bits.
        path: the ``.mlpackage`` folder to write; it must not exist.
        half: compute in float16; the ends keep their types.
        units: the processor that the plan names.

    Raises:
        UnsupportedModelError: Core ML has no such operation, or refuses it; the message names the node.
    """
    with _quiet():
        import coremltools as ct

        program = _program(graph, ops, ends, ct)
        precision = ct.precision.FLOAT16 if half else ct.precision.FLOAT32
        try:
            model = ct.convert(
                program, source="milinternal", convert_to="mlprogram", compute_precision=precision, skip_model_load=True,
                compute_units=ct.ComputeUnit[UNITS[units]], minimum_deployment_target=ct.target.iOS18,
            )  # fmt: skip
        except Exception as e:
            raise UnsupportedModelError(f"Core ML refuses the segment of {ops[0].name!r}: {_first_line(e)}") from e
        model.author, model.short_description = "hetsched", f"{len(ops)} operators of {graph.name}"
        model.save(str(path))


def names_in(ends: Sequence[str]) -> dict[str, str]:
    """Core ML's names of tensors: letters, digits and underscores, each once, in the same order."""
    out: dict[str, str] = {}
    taken: set[str] = set()
    for name in ends:
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
        plain = plain if plain[:1].isalpha() else f"t_{plain}"
        while plain in taken:
            plain += "_"
        out[name] = plain
        taken.add(plain)
    return out


def _program(graph: Graph, ops: Sequence[Op], ends: Ends, ct: Any) -> Any:
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.mil import Function, Program, types

    named = names_in((*ends.inputs, *ends.outputs))
    known = lowerings()

    def placeholder(name: str) -> Any:
        tensor = graph.tensors[name]
        if tensor.dtype not in _ENDS:
            raise UnsupportedModelError(f"Core ML's models have no {tensor.dtype} inputs, and {name!r} is one")
        kind = getattr(types, _ENDS[tensor.dtype])
        return Builder.placeholder(tensor.shape or (1,), dtype=kind, name=named[name])

    build = MilBuild(graph)
    with Function({named[n]: placeholder(n) for n in ends.inputs}, opset_version=ct.target.iOS18) as function:
        build.variables.update({n: function.inputs[named[n]] for n in ends.inputs})
        for node in original_nodes(ops):
            if node.type not in known:
                raise UnsupportedModelError(f"node {node.name!r} ({node.type}): there is no Core ML operation for it")
            try:
                results = known[node.type](build, node)
            except UnsupportedModelError as e:
                raise UnsupportedModelError(f"node {node.name!r} ({node.type}): {e}") from e
            except Exception as e:  # Core ML's checks raise whatever they like
                raise UnsupportedModelError(f"node {node.name!r} ({node.type}): Core ML refuses it: {_first_line(e)}") from e
            build.variables.update(zip(node.outputs, results, strict=False))
        function.set_outputs([Builder.identity(x=build.read(n), name=named[n]) for n in ends.outputs])
    program = Program()
    program.add_function("main", function)
    return program


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


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
