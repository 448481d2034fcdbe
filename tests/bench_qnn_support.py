#!/usr/bin/env python3
"""Which operators the QNN provider really takes, beside what the support table of Hexagon NPUs says.

    python tests/bench_qnn_support.py [GRAPHS] [--only NAME ...] [--show]

Every operator of the AI Hub graphs (fusions undone) is compiled alone for the Snapdragon 8 Gen 3, in float and in w8a8 with Q/DQ
around it, and the session's own assignment says whether the NPU got it. Operators that differ in sizes only are compiled once, the
smallest of them, with large sizes cut. Prints what | goal | measured | ok and a summary line; the exit code is 1 if a goal is missed.
``--show`` lists every difference with the provider's word.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import hetsched
from hetsched.errors import HetschedError
from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.lowering.onnx_segment import ends_of, onnx_model
from hetsched.passes import unfuse
from hetsched.runtime.delegates import qnn, qnn_target
from hetsched_cost_models.support import support_table

GRAPHS = Path(__file__).parent.parent.parent / "shared" / "models" / "aihub"
SOC = "snapdragon-8-gen-3"
GOAL = 0.95
PRECISIONS = ("f16", "w8a8")
#: Slots of constants that stay float in Q/DQ models.
FLOAT_SLOTS = {"Resize": (1, 2), "Clip": (1, 2), "Pad": (2,), "Upsample": (1,)}
BIASED = frozenset({"Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization"})
#: Sizes of which none depends on a value: large ones are cut to :data:`SMALL`.
CUT = frozenset(
    {
        "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Erf", "Sqrt", "Exp", "Log", "Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu",
        "PRelu",
        "HardSwish", "HardSigmoid", "Gelu", "Softmax", "LayerNormalization", "BatchNormalization", "InstanceNormalization", "Transpose",
        "ReduceMean", "ReduceSum", "ReduceMax", "MatMul", "Gemm", "Equal", "Where", "Neg", "Abs", "Cast", "GlobalAveragePool", "Reciprocal",
    }
)  # fmt: skip
SMALL = 32
#: Results are values that they read, so they mean the same integers.
MOVING = frozenset(
    {
        "Gather", "GatherND", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "Concat", "Expand", "Tile",
        "MaxPool", "GlobalMaxPool", "DepthToSpace", "SpaceToDepth", "Identity",
    }
)  # fmt: skip
#: Results in [0, 1], whose scale converters fix.
UNIT = frozenset({"Softmax", "Sigmoid"})
_SCALE = 0.02


@dataclass(frozen=True)
class Case:
    """An operator in a graph of its own, and how many operators of the models it stands for."""

    graph: Graph
    types: str
    count: int


def key_of(graph: Graph, op: Op) -> tuple[Any, ...]:
    """What makes two operators alike but for their sizes."""
    sizes = tuple((graph.tensors[n].dtype, len(graph.tensors[n].shape), graph.tensors[n].is_constant) if n else None for n in op.inputs)
    attrs = tuple(sorted((k, str(v)) for k, v in op.attrs.items() if k not in ("value", "split")))
    return op.type, op.domain, sizes, tuple((graph.tensors[n].dtype, len(graph.tensors[n].shape)) for n in op.outputs if n), attrs


def cases(graphs: Sequence[Graph]) -> Iterator[Case]:
    """The smallest operator of each kind."""
    found: dict[tuple[Any, ...], list[tuple[int, Graph, Op]]] = defaultdict(list)
    for graph in graphs:
        for op in graph.ops:
            size = sum(graph.tensors[n].elements for n in (*op.inputs, *op.outputs) if n)
            found[key_of(graph, op)].append((size, graph, op))
    for kind in sorted(found, key=str):
        _, graph, op = min(found[kind], key=lambda item: (item[0], item[2].name))
        yield Case(shrunken(alone(graph, op)), op.type, len(found[kind]))


def alone(graph: Graph, op: Op) -> Graph:
    """A graph of this operator. Absent weights become seeded noise; small integers, which may be shapes or axes, are read."""
    rng = np.random.default_rng(0)
    tensors: dict[str, Tensor] = {}
    for name in dict.fromkeys(n for n in (*op.inputs, *op.outputs) if n):
        t = graph.tensors[name]
        role = Role.WEIGHT if t.is_constant else Role.OUTPUT if name in op.outputs else Role.INPUT
        data = t.data
        if t.is_constant and (data is None or not data.is_present):
            values = rng.uniform(0.1, 1.0, t.shape) if t.dtype.is_float else rng.integers(0, 2, t.shape)
            data = WeightRef(array=values.astype(t.dtype.numpy))
        tensors[name] = replace(t, role=role, data=data)
    inputs = tuple(n for n in dict.fromkeys(op.inputs) if n and not graph.tensors[n].is_constant)
    return Graph(op.type, tensors, (op,), inputs, tuple(o for o in op.outputs if o))


def shrunken(graph: Graph) -> Graph:
    """The same with small sizes: the compiler for the NPU takes minutes over some large operators, and its answer is the same."""
    op = graph.ops[0]
    if op.type in CUT:
        return resized(graph, {n: tuple(min(d, SMALL) for d in t.shape) for n, t in graph.tensors.items()})
    if op.type == "Conv":
        x, w, y = (graph.tensors[n].shape for n in (op.inputs[0], op.inputs[1], op.outputs[0]))
        groups = op.attr_int("group", 1)
        each, kept = min(w[1], 16), groups if groups == 1 else min(groups, 16)
        out = min(w[0] // groups, 16) * kept
        spatial = tuple(min(d, 48) for d in x[2:])
        dilations = op.attr_ints("dilations", (1,) * len(spatial))
        strides, pads = op.attr_ints("strides", (1,) * len(spatial)), op.attr_ints("pads", (0,) * 2 * len(spatial))
        after = tuple(
            (d + pads[i] + pads[i + len(spatial)] - dilations[i] * (w[2 + i] - 1) - 1) // strides[i] + 1 for i, d in enumerate(spatial)
        )
        shapes = {op.inputs[0]: (x[0], each * kept, *spatial), op.inputs[1]: (out, each, *w[2:]), op.outputs[0]: (x[0], out, *after)}
        shapes |= {n: (out,) for n in op.inputs[2:] if n}
        return resized(graph.replace(ops=(replace(op, attrs={**op.attrs, "group": kept}),)), shapes) if len(y) == len(x) else graph
    return graph


def resized(graph: Graph, shapes: dict[str, tuple[int, ...]]) -> Graph:
    """The graph with other shapes; its constants are cut or, if they do not fit, made anew."""
    tensors = {}
    for name, t in graph.tensors.items():
        data, shape = t.data, shapes[name]
        if data is not None and shape != t.shape:
            cut = t.numpy()[tuple(slice(d) for d in shape)]
            data = WeightRef(array=np.ascontiguousarray(cut if cut.shape == shape else np.resize(cut, shape)))
        tensors[name] = replace(t, shape=shape, data=data)
    return graph.replace(tensors=tensors)


class Quantizer:
    """Puts Q/DQ around an operator: uint8 activations, int8 weights, int32 biases."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.op = graph.ops[0]
        self.tensors = dict(graph.tensors)
        self.before: list[Op] = []
        self.after: list[Op] = []

    def number(self, name: str, value: Any, dtype: DType) -> str:
        self.tensors[name] = Tensor(name, np.shape(value), dtype, Role.WEIGHT, data=WeightRef(array=np.asarray(value, dtype.numpy)))
        return name

    def quantized(self) -> Graph:
        """The graph in Q/DQ form; the same if it has no floats."""
        op = self.op
        renamed = [self.read(slot, n) for slot, n in enumerate(op.inputs)]
        outputs = [self.written(o) for o in op.outputs]
        if op.type in MOVING:
            self.used_by_another()
        whole = (*self.before, replace(op, inputs=tuple(renamed), outputs=tuple(outputs)), *self.after)
        inputs = tuple(f"{n}/q" if self.is_float(n) else n for n in self.graph.inputs)
        last = "used" if op.type in MOVING else "q"
        ends = tuple(f"{o}/{last}" if self.is_float(o) else o for o in self.graph.outputs)
        used = {n for o in whole for n in (*o.inputs, *o.outputs)} | set(inputs)
        return Graph(self.graph.name, {n: t for n, t in self.tensors.items() if n in used}, whole, inputs, ends)

    def used_by_another(self) -> None:
        """A function of each result: alone, an operator that moves values loses its Q/DQ to an optimisation, and QNN its scale."""
        for name in filter(self.is_float, self.graph.outputs):
            t, scale, zero = self.graph.tensors[name], f"{name}/out scale", f"{name}/out zero"
            names = [f"{name}/{n}" for n in ("q", "again", "function", "used")]
            kinds = (DType.F32, DType.F32, DType.U8)
            self.tensors.update({n: replace(t, name=n, dtype=d, role=Role.ACTIVATION) for n, d in zip(names[1:], kinds, strict=True)})
            self.after += [
                Op(f"dq {name}", "DequantizeLinear", (names[0], scale, zero), (names[1],)),
                Op(f"f {name}", "Sigmoid", (names[1],), (names[2],)),
                Op(f"last {name}", "QuantizeLinear", (names[2], scale, zero), (names[3],)),
            ]

    def is_float(self, name: str) -> bool:
        return bool(name) and self.graph.tensors[name].dtype.is_float

    def read(self, slot: int, name: str) -> str:
        if not self.is_float(name) or (slot in FLOAT_SLOTS.get(self.op.type, ()) and self.graph.tensors[name].is_constant):
            return name
        t = self.graph.tensors[name]
        weight, bias = t.is_constant and slot == 1, t.is_constant and slot == 2 and self.op.type in BIASED
        signed = weight and self.op.type in ("Conv", "ConvTranspose", "Gemm", "MatMul")
        dtype = DType.I32 if bias else DType.I8 if signed else DType.U8
        scale, zero = (
            (_SCALE * _SCALE if bias else _SCALE),
            0 if dtype is not DType.U8 or (t.is_constant and self.op.type not in MOVING) else 128,
        )
        stored = f"{name}/q"
        if t.is_constant:
            with np.errstate(over="ignore"):  # masks are often the least float32
                values = np.clip(np.rint(t.numpy() / scale) + zero, *((np.iinfo(dtype.numpy).min), np.iinfo(dtype.numpy).max))
            self.tensors[stored] = replace(t, name=stored, dtype=dtype, data=WeightRef(array=values.astype(dtype.numpy)))
        else:
            self.tensors[stored] = replace(t, name=stored, dtype=dtype)
        real = f"{name}/dq{slot}"
        self.tensors[real] = replace(t, name=real, role=Role.ACTIVATION, data=None)
        at = (stored, self.number(f"{real}/scale", scale, DType.F32), self.number(f"{real}/zero", zero, dtype))
        self.before.append(Op(f"dq{slot}", "DequantizeLinear", at, (real,)))
        return real

    def written(self, name: str) -> str:
        if not self.is_float(name):
            return name
        t = self.graph.tensors[name]
        real, stored = f"{name}/real", f"{name}/q"
        self.tensors[real] = replace(t, name=real, role=Role.ACTIVATION)
        self.tensors[stored] = replace(t, name=stored, dtype=DType.U8, role=Role.OUTPUT)
        scale, zero = (1 / 256, 0) if self.op.type in UNIT else (_SCALE, 128)
        at = (real, self.number(f"{name}/out scale", scale, DType.F32), self.number(f"{name}/out zero", zero, DType.U8))
        self.after.append(Op(f"q {name}", "QuantizeLinear", at, (stored,)))
        return real


def taken(graph: Graph, target: qnn_target.Target, precision: str) -> tuple[bool, str]:
    """Whether the NPU gets every node of a small graph, and what was said otherwise."""
    try:
        model = onnx_model(graph, graph.ops, ends_of(graph, graph.ops, every=False))
        session = qnn.open_session(model, qnn.options_for(target, half=precision == "f16"), guard=False)
    except Exception as e:
        return False, f"{type(e).__name__}: {str(e).splitlines()[0][:160]}"
    left = qnn.elsewhere(session)
    return not left, ", ".join(left)


def main() -> int:
    """Compile and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="?", type=Path, default=GRAPHS)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    paths = [p for p in sorted(given.graphs.glob("*.onnx")) if not given.only or p.stem in given.only]
    loaded = []
    for path in paths:
        try:
            loaded.append(unfuse(hetsched.load(path)))
        except HetschedError as e:
            print(f"{path.stem}: not loaded: {e}")
    table, target = support_table("hexagon-qnn"), qnn_target.Target.of(hetsched.soc(SOC))
    start, counted, agreed = time.monotonic(), dict.fromkeys(PRECISIONS, 0), dict.fromkeys(PRECISIONS, 0)
    kinds = 0
    for case in cases(loaded):
        kinds += 1
        if given.show and kinds % 20 == 0:
            print(f"{kinds} kinds, {time.monotonic() - start:.0f} s", flush=True)
        for precision in PRECISIONS:
            why = table.refusal(case.graph, case.graph.ops[0], precision)
            graph = case.graph if precision == "f16" else Quantizer(case.graph).quantized()
            got, said = taken(graph, target, precision)
            counted[precision] += case.count
            agreed[precision] += case.count if got == (why is None) else 0
            if got != (why is None) and given.show:
                op = case.graph.ops[0]
                shapes = [f"{case.graph.tensors[n].dtype.value}{list(case.graph.tensors[n].shape)}" for n in op.inputs if n]
                attrs = dict(op.attrs)
                print(
                    f"{case.count:5} {case.types} {precision}: table {why or 'yes'}; NPU {'yes' if got else 'no'} {said} {shapes} {attrs}",
                    flush=True,
                )
    failed = 0
    print(f"{len(loaded)} graphs, {kinds} kinds of operators, {time.monotonic() - start:.0f} s")
    print(f"{'what':40} | {'goal':>8} | {'measured':>8} | ok")
    for precision in PRECISIONS:
        share = agreed[precision] / max(1, counted[precision])
        failed += share < GOAL
        print(f"{'agreement, operators in ' + precision:40} | {GOAL:8.1%} | {share:8.2%} | {'yes' if share >= GOAL else 'NO'}")
    print(f"{len(PRECISIONS) - failed} of {len(PRECISIONS)} goals met")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
