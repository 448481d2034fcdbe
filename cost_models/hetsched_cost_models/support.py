"""Which accelerator runs which operator at which precision, and why not.

The tables under ``support/`` hold what the vendors' documents list; each says where it comes from. A fused operator is
supported when it is listed itself or when everything it was made of is; an operator that a converter writes as others
(:data:`DECOMPOSITIONS`) is supported when those are.
"""

from __future__ import annotations

import csv
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from hetsched.graph import DType, Graph, Op
from hetsched_cost_models.alike import WIDE

#: How converters write an operator that a runtime does not list, in operators that it may list.
DECOMPOSITIONS: dict[str, tuple[str, ...]] = {
    "Clip": ("Min", "Max"), "HardSigmoid": ("Mul", "Add", "Min", "Max"), "HardSwish": ("HardSigmoid", "Mul"),
    "LeakyRelu": ("Mul", "Max"), "Silu": ("Sigmoid", "Mul"), "Swish": ("Sigmoid", "Mul"), "Reciprocal": ("Div",), "Neg": ("Mul",),
    "BatchNormalization": ("Mul", "Add"), "GlobalAveragePool": ("ReduceMean",), "GlobalMaxPool": ("ReduceMax",),
    "LayerNormalization": ("ReduceMean", "Sub", "Mul", "Add", "Sqrt", "Div"),
    "RMSNormalization": ("ReduceMean", "Mul", "Sqrt", "Div"), "Gelu": ("Tanh", "Mul", "Add"), "Erf": ("Tanh", "Mul", "Add"),
    "Pow": ("Mul",), "Gemm": ("MatMul", "Add"), "MatMul": ("Gemm",), "Expand": ("Mul",), "Upsample": ("Resize",),
    "FusedSoftmax": ("Mul", "Add", "Softmax"), "FusedMatMul": ("MatMul", "Add"), "FusedGemm": ("Gemm",), "FusedConv": ("Conv",),
    "RMSNorm": ("RMSNormalization", "Reshape"), "RotaryEmbedding": ("Slice", "Mul", "Sub", "Add", "Concat", "Reshape"),
    "GroupQueryAttention": ("MatMul", "Softmax", "Mul", "Add", "Concat", "Transpose", "Reshape"),
    "Router": ("Softmax", "TopK", "ReduceSum", "Div"), "CausalConv": ("Conv", "Concat", "Slice", "Transpose"),
    "SelectiveScan": ("Softplus", "Exp", "Mul", "Add", "ReduceSum"),
    "FusedConvTranspose": ("ConvTranspose",), "ReduceL2": ("Mul", "ReduceSum", "Sqrt"), "LogSoftmax": ("Softmax", "Log"),
}  # fmt: skip
#: Operators on packed weights: a body of dequantization and product says what they compute, not that a runtime takes them.
_PACKED_WEIGHTS = frozenset({"MatMulNBits", "GatherBlockQuantized", "MatMulBnb4", "DynamicQuantizeLSTM"})
_INDEX_SEARCH = frozenset({"ArgMax", "ArgMin", "TopK", "Router"})
_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
_ONE_TO_ONE = frozenset({"Erf", "Pow", "MatMul", "Expand", "RotaryEmbedding"})  # only under their own conditions, see _decomposable

_COUNTS = frozenset({DType.I32, DType.I64})
_RELATIONS: dict[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge, "=": operator.eq}


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of an operator: ``rank<=4``."""

    measure: str
    relation: str
    limit: float

    @classmethod
    def of(cls, text: str) -> Condition:
        """Read it as it stands in a table."""
        measure, relation, limit = re.split("(<=|>=|=)", text)
        return cls(measure, relation, float(limit))


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a table."""

    f16: bool
    w8a8: bool
    conditions: tuple[Condition, ...]
    note: str


@dataclass(frozen=True, eq=False)
class SupportTable:
    """The operators of one accelerator through one runtime."""

    title: str
    rules: dict[str, Rule]
    everywhere: tuple[Rule, ...]
    default: Rule | None

    def refusal(self, graph: Graph, op: Op, precision: str) -> str | None:
        """Why ``op`` cannot run at ``precision`` (``f16`` or ``w8a8``); None if it can."""
        never = _data_dependent(graph, op) or _wide_type(graph, op)
        if never is not None:
            return never
        if op.attr_int("dynamic", 0) and op.type.startswith("Fused"):
            if precision == "w8a8":
                return self._refused_dynamic(op)
            op = replace(op, body=())  # in float its weights are dequantized ahead
        if op.type in _PACKED_WEIGHTS and op.type not in self.rules and self.default is None:
            return f"{op.type} is not in the operator list of {self.title}, and its weights of a few bits are not unpacked there"
        for rule in self.everywhere:
            failed = _failed(rule, graph, op)
            if failed:
                return f"{self.title}: {rule.note} ({failed})"
        return self._refused_type(graph, op, op.type, precision, 0)

    def _refused_dynamic(self, op: Op) -> str | None:
        """Why a product whose activation is quantized while the model runs is not one there."""
        rule = self.rules.get("ConvInteger" if "Conv" in op.type else "MatMulInteger")
        if rule is not None and rule.w8a8:
            return None
        return f"{self.title} does not quantize activations while running: calibrate static ranges"

    def _refused_type(self, graph: Graph, op: Op, op_type: str, precision: str, depth: int) -> str | None:
        """Why an operator of this type, with ``op``'s attributes and tensors, cannot run."""
        rule = self.rules.get(op_type) or (self.rules.get("Reshape") if op_type in _RESHAPES else None)
        if rule is None and op.body and op_type == op.type:
            return self._refused_body(graph, op, precision)
        if rule is None and depth < 3 and op_type in DECOMPOSITIONS and _decomposable(graph, op, op_type):
            for part in DECOMPOSITIONS[op_type]:
                why = self._refused_type(graph, op, part, precision, depth + 1)
                if why:
                    return f"{op_type} is not listed for {self.title}, and neither is its part {part}"
            return None
        rule = rule or self.default
        if rule is None:
            return f"{op_type} is not in the operator list of {self.title}"
        if not (rule.w8a8 if precision == "w8a8" else rule.f16):
            other = rule.f16 if precision == "w8a8" else rule.w8a8
            said = f": {rule.note}" if rule.note else ""
            return (
                f"{op_type} runs there only in {'float' if precision == 'w8a8' else 'integers'}{said}"
                if other
                else f"{op_type} does not run there{said}"
            )
        if op.type in (op_type, f"Fused{op_type}"):
            failed = _failed(rule, graph, op)
            if failed:
                return f"{self.title}: {rule.note or op_type + ' is limited'} ({failed})"
        return None

    def _refused_body(self, graph: Graph, op: Op, precision: str) -> str | None:
        for part in op.body:
            if part.type in ("QuantizeLinear", "DequantizeLinear", "BatchNormalization"):
                continue  # folded into the weights or the kernel's output scale
            # Tensors inside the fused op are gone from the graph; they have the output's shape.
            inputs = tuple(n if n in graph.tensors else op.outputs[0] for n in part.inputs if n)
            # Where a Gelu is listed, its error function is a part of it.
            kind = "Gelu" if part.type == "Erf" and op.attr_str("activation", "") == "Gelu" and "Gelu" in self.rules else part.type
            inner = Op(part.name, kind, inputs, op.outputs, part.attrs, part.domain, part.origin)
            why = self._refused_type(graph, inner, kind, precision, 1)
            if why:
                return why
        return None


def support_table(name: str) -> SupportTable:
    """Read ``support/<name>.csv`` (once per process; the files are part of the package)."""
    return _load(name)


@lru_cache(maxsize=16)
def _load(name: str) -> SupportTable:
    lines = (Path(__file__).parent / "support" / f"{name}.csv").read_text("utf-8").splitlines()
    title = lines[0].lstrip("# ").partition(":")[0]
    rules: dict[str, Rule] = {}
    everywhere: list[Rule] = []
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        conditions = tuple(Condition.of(c) for c in row["condition"].split(";") if c)
        rule = Rule(row["f16"] == "yes", row["w8a8"] == "yes", conditions, row["note"])
        if row["op"] == "(all)":
            everywhere.append(rule)
        else:
            rules[row["op"]] = rule
    return SupportTable(title, rules, tuple(everywhere), rules.pop("*", None))


def _wide_type(graph: Graph, op: Op) -> str | None:
    """64-bit integers, doubles and strings do not exist on these accelerators.

    Converters narrow what an index search writes to 32 bits, and indices that a cast widens for gathers; they take 64-bit indices and
    casts at the graph's edge.
    """
    for name in op.outputs:
        if (
            name
            and op.type not in _INDEX_SEARCH
            and graph.tensors[name].dtype in WIDE
            and not (op.type == "Cast" and _indexes(graph, name))
        ):
            return f"its output {name!r} holds {graph.tensors[name].dtype.value}, which the accelerator does not store"
    for slot, name in enumerate(op.inputs):
        if not name or graph.tensors[name].is_constant or graph.tensors[name].dtype not in WIDE:
            continue
        if op.type == "Cast" or _is_index(op, slot):
            continue
        return f"its input {name!r} holds {graph.tensors[name].dtype.value}, which the accelerator does not store"
    return None


def _is_index(op: Op, slot: int) -> bool:
    return slot == 1 and op.type.startswith("Gather")


def _indexes(graph: Graph, name: str) -> bool:
    """Whether gathers take a 64-bit tensor as indices, and nothing else reads it."""
    readers = [graph.ops[i] for i in graph.consumers.get(name, ())]
    used = all(_is_index(op, slot) for op in readers for slot, read in enumerate(op.inputs) if read == name)
    return bool(readers) and used and graph.tensors[name].dtype is DType.I64 and name not in graph.output_set


def _data_dependent(graph: Graph, op: Op) -> str | None:
    """Composites that no accelerator's runtime can write as a fixed graph of its operators."""
    if op.type in {"MoE", "QMoE"}:
        return "which experts a token uses is known only while running, and the runtimes compile fixed graphs"
    if op.type == "SelectiveScan":
        tokens = graph.tensors[op.inputs[0]].shape[0] // max(1, op.attr_int("batch", 1))
        if tokens > 1:
            return f"its scan over {tokens} tokens is a loop, and the runtimes have no control flow"
    return None


def _decomposable(graph: Graph, op: Op, op_type: str) -> bool:
    if op_type not in _ONE_TO_ONE:
        return True
    if op_type == "MatMul":  # as a fully connected layer: constant weights only
        return len(op.inputs) > 1 and bool(op.inputs[1]) and graph.tensors[op.inputs[1]].is_constant
    if op_type == "RotaryEmbedding":  # not with tables and positions, which would be gathered
        return sum(bool(i) for i in op.inputs) == 3
    if op_type == "Pow":  # a small integer exponent is repeated multiplication
        exponent = graph.tensors[op.inputs[1]] if len(op.inputs) > 1 and op.inputs[1] in graph.tensors else None
        return exponent is not None and exponent.is_constant and exponent.elements == 1
    return True


def _failed(rule: Rule, graph: Graph, op: Op) -> str | None:
    """The first condition of the rule that does not hold, in words; None if all hold."""
    for condition in rule.conditions:
        value = _MEASURES[condition.measure](graph, op)
        if not _RELATIONS[condition.relation](value, condition.limit):
            return f"{condition.measure.replace('_', ' ')} is {value:g}"
    return None


def _rank(graph: Graph, op: Op) -> float:
    names = [n for n in (*op.inputs, *op.outputs) if n and not graph.tensors[n].is_constant]
    return float(max((len(graph.tensors[n].shape) for n in names), default=0))


def _index_rank(graph: Graph, op: Op) -> float:
    return float(len(graph.tensors[op.inputs[1]].shape)) if len(op.inputs) > 1 and op.inputs[1] else 0.0


def _scale(graph: Graph, op: Op) -> float:
    if not op.inputs or not op.inputs[0]:
        return 1.0
    source, target = graph.tensors[op.inputs[0]].shape, graph.tensors[op.outputs[0]].shape
    return max((t / s for s, t in zip(source, target, strict=False) if s), default=1.0)


def _normalized_axes(graph: Graph, op: Op) -> float:
    """Over how many trailing axes a layer normalization goes."""
    axis, rank = op.attr_int("axis", -1), len(graph.tensors[op.inputs[0]].shape)
    return float(-axis if axis < 0 else rank - axis)


def _rounds_asymmetric(_: Graph, op: Op) -> float:
    """1 for a nearest resize on asymmetric coordinates that does not round down."""
    nearest = op.attr_str("mode", "nearest") == "nearest" and op.attr_str("nearest_mode", "round_prefer_floor") != "floor"
    return float(nearest and op.attr_str("coordinate_transformation_mode", "half_pixel") == "asymmetric")


def _convertible(graph: Graph, op: Op) -> float:
    """1 for a cast between floats and 32-bit integers (converters narrow those of 64), or between floats and booleans."""
    source, target = (graph.tensors[n].dtype for n in (op.inputs[0], op.outputs[0]))
    return float(all(t.is_float or t in _COUNTS for t in (source, target)) or {source, target} <= {DType.BOOL, DType.F16, DType.F32})


_MEASURES: dict[str, Callable[[Graph, Op], float]] = {
    "rank": _rank,
    "index_rank": _index_rank,
    "inputs": lambda _, op: float(sum(bool(i) for i in op.inputs)),
    "kernel": lambda _, op: float(max(op.attr_ints("kernel_shape", (1,)))),
    "stride": lambda _, op: float(max(op.attr_ints("strides", (1,)))),
    "dilation": lambda _, op: float(max(op.attr_ints("dilations", (1,)))),
    "scale": _scale,
    "layout": lambda _, op: float(op.attr_int("layout", 0)),
    "select_last_index": lambda _, op: float(op.attr_int("select_last_index", 0)),
    "antialias": lambda _, op: float(op.attr_int("antialias", 0)),
    "normalized_axes": _normalized_axes,
    "rounds_asymmetric": _rounds_asymmetric,
    "convertible": _convertible,
    "p": lambda _, op: float(op.attr_int("p", 2)),
}
