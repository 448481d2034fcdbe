"""Which operator of a graph a profile's row is of: by name, else by type and shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from hetsched.graph import Graph, Op
from hetsched.measured import Measured, MeasuredOp
from hetsched.profiles.timings import Profile, Timing

#: Names of the same operator in different runtimes (ONNX, TFLite, QNN), without case and underscores.
_TYPES = {
    "conv2d": "conv", "depthwiseconv2d": "conv", "fusedconv": "conv", "fullyconnected": "matmul", "gemm": "matmul", "fusedmatmul": "matmul",
    "fusedgemm": "matmul", "averagepool2d": "averagepool", "maxpool2d": "maxpool", "elementwiseadd": "add", "elementwisemultiply": "mul",
    "mean": "reducemean", "concatenation": "concat", "logistic": "sigmoid", "batchmatmul": "matmul", "qlinearconv": "conv",
    "qlinearmatmul": "matmul", "nhwcconv": "conv", "reducemean": "reducemean",
}  # fmt: skip


@dataclass(frozen=True)
class Match:
    """What was found: the op of each row of the profile (None: none), and whether by name."""

    op: tuple[str | None, ...]
    by_name: tuple[bool, ...]


def match(timings: Sequence[Timing], graph: Graph) -> Match:
    """The op of ``graph`` that each timing is of.

    A row is matched by name if an op, one of the file's nodes that it stands for, or a tensor that it writes is called so;
    letter case and the characters that runtimes replace do not matter. A row that is matched by shape stands for the first op of
    its type and output shape, so that a profile can be drawn; :func:`measured` lets it stand for all of them.
    """
    names = _names(graph)
    shapes: dict[tuple[str, tuple[int, ...]], str] = {}
    for op in graph.ops:
        shapes.setdefault(_kind(graph, op), op.name)
    found: list[str | None] = []
    by_name: list[bool] = []
    known: dict[str, str | None] = {}  # a profile of many runs has every name many times
    for t in timings:
        if t.name not in known:
            known[t.name] = next((names[k] for k in _keys(t.name) if k in names), None)
        op_name = known[t.name]
        by_name.append(op_name is not None)
        if op_name is None and t.shape is not None:
            op_name = shapes.get((_type(t.type), _squeezed(t.shape)))
        found.append(op_name)
    return Match(tuple(found), tuple(by_name))


def measured(profile: Profile, graph: Graph, source: str) -> Measured:
    """The times that the ops of ``graph`` took in ``profile``: of rows with one name the sum, of rows like it the median.

    Rows of one op (the parts of a fused one, which the profiled runtime ran by themselves) add up. An op that no row names takes
    the median of the rows of its type and output shape that name no other op.
    """
    rows = profile.per_op()
    found = match(rows, graph)
    named: dict[tuple[str, str, str], float] = {}
    alike: dict[tuple[str, tuple[int, ...]], dict[tuple[str, str], list[float]]] = {}
    for t, op, by_name in zip(rows, found.op, found.by_name, strict=True):
        if op is not None and by_name:
            key = (op, t.queue, t.precision)
            named[key] = named.get(key, 0.0) + t.seconds
        elif t.shape is not None:
            like = alike.setdefault((_type(t.type), _squeezed(t.shape)), {})
            like.setdefault((t.queue, t.precision), []).append(t.seconds)
    out = [MeasuredOp(op=op, queue=q, precision=p, seconds=s) for (op, q, p), s in named.items()]
    done = {o.op for o in out}
    for op_ in graph.ops:
        if op_.name not in done:
            for (q, p), values in alike.get(_kind(graph, op_), {}).items():
                out.append(MeasuredOp(op=op_.name, queue=q, precision=p, seconds=median(values), by="shape"))
    order = graph.op_index
    out.sort(key=lambda o: (order[o.op], o.queue, o.precision))
    where = f", {profile.unplaced} times of it without a place: taken as {profile.home}" if profile.unplaced else ""
    return Measured(source=f"{source} ({profile.format}){where}", total=len(graph.ops), ops=tuple(out))


def _names(graph: Graph) -> dict[str, str]:
    """Every spelling of a name -> op: ops first, then the file's nodes, then tensors; the first of several wins."""
    out: dict[str, str] = {}
    for words in (lambda op: (op.name,), lambda op: op.origin, lambda op: tuple(o for o in op.outputs if o)):
        for exact in (True, False):
            for op in graph.ops:
                for name in words(op):
                    out.setdefault(name if exact else _plain(name), op.name)
    return out


def _keys(name: str) -> list[str]:
    """Spellings to look for, most exact first. ONNX Runtime marks nodes that it changed, TFLite lists several outputs."""
    tries = [name, name.partition(",")[0].strip(), re.sub(r"^fused |_nchwc$|/duplicated$|_token_\d+.*$", "", name)]
    tries += [_plain(t) for t in tries]
    return [t for t in dict.fromkeys(tries) if t]


def _plain(name: str) -> str:
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")


def _kind(graph: Graph, op: Op) -> tuple[str, tuple[int, ...]]:
    return _type(op.type), _squeezed(graph.tensors[op.outputs[0]].shape)


def _squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    """Sizes without ones, ascending: layouts differ between runtimes."""
    return tuple(sorted(d for d in shape if d != 1))


def _type(name: str) -> str:
    plain = re.sub(r"[^0-9a-z]", "", name.lower())
    return _TYPES.get(plain, plain)
