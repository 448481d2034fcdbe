"""One walk over the nodes that binds every shape: older forms are rewritten, constants folded, types inferred.

Because all inputs have fixed shapes and constants are folded on the way, a computed shape (Shape → Gather → Concat →
Reshape) is a constant by the time it is needed, and nothing of its chain is left.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, ModelError, UnsupportedModelError
from hetsched.frontends.onnx_contrib import expand_contrib, standard_form
from hetsched.frontends.onnx_control import expand
from hetsched.frontends.onnx_declared import DeclaredShapes
from hetsched.frontends.onnx_functions import expand_function
from hetsched.frontends.onnx_nodes import to_op, unique_names
from hetsched.frontends.onnx_opsets import TARGET, normalise
from hetsched.frontends.onnx_order import reads, topological
from hetsched.frontends.onnx_qlinear import with_float_core
from hetsched.frontends.onnx_shapes import infer
from hetsched.frontends.onnx_sparse import sparse_constant
from hetsched.frontends.onnx_tensors import ModelFile, constant, from_array
from hetsched.frontends.onnx_unfolding import Unfolding
from hetsched.graph import CONTROL_FLOW, DType, Op, Role, Tensor, WeightRef

if TYPE_CHECKING:
    import onnx

#: Largest folded constant, and how many weight bytes folding may read in all: planning is not for crunching weights.
MAX_FOLDED_BYTES = 1 << 24
MAX_READ_BYTES = 1 << 26
_VIEWS = frozenset({"ConstantOfShape", "Expand"})  # folded without memory: every element is the same bytes
_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
_NEVER = frozenset(
    {"DequantizeLinear", "QuantizeLinear"}  # they say what integers mean; the passes absorb them
    | {"LSTM", "GRU", "RNN"}  # their work is not in proportion to what they read
)


class Trace:
    """Tensors and operators so far. ``tensors`` starts with the inputs and the initializers."""

    def __init__(self, model: ModelFile, opset: int, tensors: Sequence[Tensor]) -> None:
        self.model = model
        self.opset = opset
        self.tensors: MutableMapping[str, Tensor] = {t.name: t for t in tensors}
        self.ops: list[Op] = []
        self.depth = 0
        self.declared = DeclaredShapes()
        self.unfolding = Unfolding()
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
            if nodes[i].op_type in CONTROL_FLOW and nodes[i].domain in {"", "ai.onnx"}:
                expand(self, nodes[i], names[i])
            elif nodes[i].op_type == "Constant":
                self._constant(nodes[i], names[i])
            else:
                op = standard_form(to_op(nodes[i], names[i], self.model))
                for core in with_float_core(op, self):
                    self.step(core)

    def step(self, op: Op) -> None:
        """Take one operator, in the form of this walk's opset: rewrite it, infer its shapes, fold it or keep it."""
        if expand_contrib(op, self) or expand_function(op, self, self.model):
            return
        for part in normalise(op, self.opset, self):
            self._step(part)

    def nested(self, nodes: Sequence[onnx.NodeProto], prefix: str) -> None:
        """Walk the nodes of a subgraph.

        Raises:
            ModelError: unfolding the model's control flow takes too many nodes.
        """
        self.unfolding.add_nodes(len(nodes), prefix)
        self.depth += 1
        self.run(nodes, prefix)
        self.depth -= 1

    def child(self) -> Trace:
        """A trace of what is inside a subgraph: it sees the tensors of this one, and adds to its own."""
        inner = Trace(self.model, self.opset, [])
        inner.tensors = ChainMap({}, self.tensors)
        inner.depth, inner.declared = self.depth, self.declared
        inner.unfolding, inner._read_bytes = self.unfolding, self._read_bytes
        return inner

    def join(self, child: Trace, *, operators: bool) -> None:
        """Take over the tensors of a child, and its operators too if they are part of this trace."""
        self.tensors.update(child.tensors.maps[0] if isinstance(child.tensors, ChainMap) else child.tensors)
        self._read_bytes = child._read_bytes
        if operators:
            self.ops.extend(child.ops)

    def add_inner(self, tensor: Tensor, node: str) -> None:
        """Add a tensor of a subgraph.

        Raises:
            ModelError: there is one of the name already.
        """
        if tensor.name in self.tensors:
            raise ModelError(f"a subgraph of node {node!r} defines {tensor.name!r} twice: the model file is damaged")
        self.tensors[tensor.name] = tensor

    def is_known(self, name: str) -> bool:
        """Whether the value of a tensor is known while loading, and small or made here."""
        t = self.tensors.get(name)
        return t is not None and t.data is not None and t.data.array is not None

    def truth(self, name: str, node: str) -> bool:
        """The value of a known condition.

        Raises:
            ModelError: it is not one value.
        """
        value = self.tensor(name).numpy().reshape(-1)
        if value.size != 1:
            raise ModelError(f"node {node!r} has the condition {name!r}, which has {value.size} values: the model file is damaged")
        return bool(value[0])

    def add_whole(self, op: Op, outputs: Sequence[Tensor]) -> None:
        """Append an operator whose outputs are known."""
        self.ops.append(op)
        for t in outputs:
            if t.name:
                self.tensors[t.name] = t

    def _constant(self, node: onnx.NodeProto, name: str) -> None:
        a = next(iter(node.attribute), None)
        if a is None or len(node.output) != 1:
            raise ModelError(f"the Constant node {name!r} has no value: the model file is damaged")
        out = node.output[0]
        if a.name == "value":
            self.tensors[out] = constant(a.t, out, self.model)
            return
        if a.name == "sparse_value":
            self.tensors[out] = sparse_constant(a.sparse_tensor, out, self.model)
            return
        types: dict[str, Any] = {
            "value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32,
            "value_string": object, "value_strings": object,
        }  # fmt: skip
        if a.name not in types:
            raise UnsupportedModelError(f"the Constant node {name!r} holds a {a.name}, which is not supported")
        value = to_op(node, name, self.model).attrs[a.name]
        self.tensors[out] = from_array(out, np.array(value, types[a.name]))

    def add_op(self, op: Op) -> None:
        """Infer what ``op`` writes, and append it unless it is a constant.

        Raises:
            ModelError: it reads a tensor that is not there.
        """
        for name in op.inputs:
            if name:
                self.tensor(name)
        self._step(op)

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
        view = _view(op, inputs[0]) if inputs else None
        if view is not None:
            self.tensors[outputs[0].name] = replace(outputs[0], role=Role.WEIGHT, data=view)
            return True
        if any(t.data is not None and not t.data.is_present for t in inputs):
            self.tensors.update((t.name, replace(t, role=Role.WEIGHT, data=WeightRef())) for t in outputs)
            return True
        cost = sum(t.nbytes for t in inputs if t.data is not None and t.data.array is None)
        # A view (Expand) can make a small constant look huge: reducing it would read every element of the view.
        big = op.type not in _VIEWS and max(sum(t.nbytes for t in outputs), sum(t.elements for t in inputs)) > MAX_FOLDED_BYTES
        if op.type not in supported_types() or big or self._read_bytes + cost > MAX_READ_BYTES:
            return False
        if any(t.is_packed and t.dtype not in {DType.BF16, DType.STRING} for t in outputs):
            return False
        self._read_bytes += cost
        try:
            values = run_op(op, [self.tensors[i].values() if i else None for i in op.inputs])
        except ExecutionError as error:
            raise ModelError(f"the model computes a constant that has no value: {error}") from error
        types = {t.name: t.dtype for t in outputs}
        for name, value in zip(op.outputs, values, strict=False):
            if name:
                self.tensors[name] = from_array(name, value, types[name])
        return True


def _view(op: Op, x: Tensor) -> WeightRef | None:
    """Where the elements of a reshaped or transposed constant are, if they lie in a file; None for other operators."""
    if x.data is None or x.data.array is not None:
        return None
    if x.data.path is None:
        return x.data if x.data.compute is not None and op.type in _RESHAPES else None
    if op.type in _RESHAPES and not x.data.order:
        return x.data
    if op.type == "Transpose" and not x.is_packed:
        perm = op.attr_ints("perm", tuple(range(len(x.shape)))[::-1])
        return replace(x.data, order=tuple(x.data.order[p] for p in perm) if x.data.order else perm)
    return None
