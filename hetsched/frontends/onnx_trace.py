"""One walk over the nodes that binds every shape: older forms are rewritten, constants folded, types inferred.

Because all inputs have fixed shapes and constants are folded on the way, a computed shape (Shape → Gather → Concat →
Reshape) is a constant by the time it is needed, and nothing of its chain is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, ModelError, UnsupportedModelError
from hetsched.frontends.onnx_contrib import standard_form
from hetsched.frontends.onnx_nodes import to_op, unique_names
from hetsched.frontends.onnx_opsets import TARGET, normalise
from hetsched.frontends.onnx_order import reads, topological
from hetsched.frontends.onnx_qlinear import with_float_core
from hetsched.frontends.onnx_shapes import infer
from hetsched.frontends.onnx_tensors import ModelFile, constant, from_array
from hetsched.graph import Op, Role, Tensor, WeightRef

if TYPE_CHECKING:
    import onnx

#: Largest folded constant, and how many weight bytes folding may read in all: planning is not for crunching weights.
MAX_FOLDED_BYTES = 1 << 24
MAX_READ_BYTES = 1 << 26
_VIEWS = frozenset({"ConstantOfShape", "Expand"})  # folded without memory: every element is the same bytes
_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
_NEVER = frozenset({"DequantizeLinear", "QuantizeLinear"})  # they say what integers mean; the passes absorb them


class Trace:
    """Tensors and operators so far. ``tensors`` starts with the inputs and the initializers."""

    def __init__(self, model: ModelFile, opset: int, tensors: Sequence[Tensor]) -> None:
        self.model = model
        self.opset = opset
        self.tensors: dict[str, Tensor] = {t.name: t for t in tensors}
        self.ops: list[Op] = []
        self._read_bytes = 0

    def tensor(self, name: str) -> Tensor:
        """The tensor with this name.

        Raises:
            ModelError: the name is empty (a needed input is left out) or unknown.
        """
        if name not in self.tensors:
            raise ModelError(f"a node needs the tensor {name!r}, which is left out of the model")
        return self.tensors[name]

    def add_constant(self, name: str, array: npt.NDArray[Any]) -> str:
        """Define a constant under ``name``, or under a name like it if that is taken."""
        unique, k = name, 2
        while unique in self.tensors:
            unique, k = f"{name}_{k}", k + 1
        self.tensors[unique] = from_array(unique, array)
        return unique

    def run(self, nodes: Sequence[onnx.NodeProto], prefix: str = "") -> None:
        """Walk ``nodes``; names of operators get ``prefix``."""
        names = [prefix + n for n in unique_names(nodes)]
        for i in topological(nodes, names, self.tensors):
            missing = [name for name in reads(nodes[i]) if name not in self.tensors]
            if missing:
                raise ModelError(f"node {names[i]!r} ({nodes[i].op_type}) reads {missing[0]!r}, which is never computed")
            if nodes[i].op_type == "If" and self._is_known(nodes[i].input[0]):
                self._branch(nodes[i], names[i])
            elif nodes[i].op_type == "Constant":
                self._constant(nodes[i], names[i])
            else:
                op = standard_form(to_op(nodes[i], names[i], self.model))
                for core in with_float_core(op, self):
                    for part in normalise(core, self.opset, self):
                        self._step(part)

    def _is_known(self, name: str) -> bool:
        t = self.tensors.get(name)
        return t is not None and t.data is not None and t.data.array is not None

    def _constant(self, node: onnx.NodeProto, name: str) -> None:
        a = next(iter(node.attribute), None)
        if a is None or len(node.output) != 1:
            raise ModelError(f"the Constant node {name!r} has no value: the model file is damaged")
        out = node.output[0]
        if a.name == "value":
            self.tensors[out] = constant(a.t, out, self.model)
            return
        types: dict[str, Any] = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
        if a.name not in types:
            raise UnsupportedModelError(f"the Constant node {name!r} holds a {a.name}, which is not supported")
        value = to_op(node, name, self.model).attrs[a.name]
        self.tensors[out] = from_array(out, np.array(value, types[a.name]))

    def _branch(self, node: onnx.NodeProto, name: str) -> None:
        """Inline the branch of an ``If`` whose condition is known."""
        from hetsched.frontends.onnx_subgraphs import inlined

        key = "then_branch" if bool(self.tensors[node.input[0]].numpy().reshape(-1)[0]) else "else_branch"
        graph = next((a.g for a in node.attribute if a.name == key), None)
        if graph is None or len(graph.output) != len(node.output):
            raise ModelError(f"the If node {name!r} has no {key} that fits its outputs: the model file is damaged")
        nodes, initializers, outputs = inlined(graph, name)
        for proto, new in initializers:
            self.tensors[new] = constant(proto, new, self.model)
        self.run(nodes, f"{name}/")
        for source, target in zip(outputs, node.output, strict=True):
            self._step(Op(f"{name}/{target}", "Identity", (source,), (target,), {}, "", (name,)))

    def _step(self, op: Op) -> None:
        if op.type in {"Shape", "Size"} and op.domain == "" and op.inputs:
            self._shape(op)
            return
        outputs = infer(op, self.tensors, max(self.opset, TARGET))
        if not self._fold(op, outputs):
            self.ops.append(op)
            self.tensors.update((t.name, t) for t in outputs)

    def _shape(self, op: Op) -> None:
        from hetsched.reference import run_op

        stand_in = np.broadcast_to(np.bool_(False), self.tensor(op.inputs[0]).shape)
        self.tensors[op.outputs[0]] = from_array(op.outputs[0], run_op(op, [stand_in])[0])

    def _fold(self, op: Op, outputs: list[Tensor]) -> bool:
        """Replace ``op`` by constants if all it reads is constant; says whether it did."""
        from hetsched.reference import run_op, supported_types

        inputs = [self.tensors[i] for i in op.inputs if i]
        if op.type in _NEVER or op.domain or any(t.data is None for t in inputs) or not (inputs or op.type in supported_types()):
            return False
        if op.type in _RESHAPES and inputs[0].data is not None and inputs[0].data.array is None:
            self.tensors[outputs[0].name] = replace(outputs[0], role=Role.WEIGHT, data=inputs[0].data)
            return True
        if any(t.data is not None and not t.data.is_present for t in inputs):
            self.tensors.update((t.name, replace(t, role=Role.WEIGHT, data=WeightRef())) for t in outputs)
            return True
        cost = sum(t.nbytes for t in inputs if t.data is not None and t.data.array is None)
        # A view (Expand) can make a small constant look huge: reducing it would read every element of the view.
        big = op.type not in _VIEWS and max(sum(t.nbytes for t in outputs), sum(t.elements for t in inputs)) > MAX_FOLDED_BYTES
        if op.type not in supported_types() or big or self._read_bytes + cost > MAX_READ_BYTES:
            return False
        self._read_bytes += cost
        try:
            values = run_op(op, [self.tensors[i].numpy() if i else None for i in op.inputs])
        except ExecutionError as error:
            raise ModelError(f"the model computes a constant that has no value: {error}") from error
        for name, value in zip(op.outputs, values, strict=False):
            if name:
                self.tensors[name] = from_array(name, value)
        return True
