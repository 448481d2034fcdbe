"""An exported program as its JSON describes it (``torch/_export/serde/schema.py``, schema versions 4 to 8), checked field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.torch_nested import INLINED, MAX_DEPTH, Renaming, label, nested_graph, passing
from hetsched.graph import MAX_RANK, DType

#: ``ScalarType`` of the schema.
_TYPES = {
    1: DType.U8, 2: DType.I8, 3: DType.I16, 4: DType.I32, 5: DType.I64, 6: DType.F16, 7: DType.F32, 8: DType.F64, 12: DType.BOOL,
    13: DType.BF16, 28: DType.U16, 29: DType.F8E4M3, 30: DType.F8E5M2, 34: DType.U32, 35: DType.U64,
}  # fmt: skip
_OLDEST, _NEWEST = 4, 8
_STRIDED = 7
_SYMBOLS = ("sym_int_values", "sym_bool_values", "sym_float_values")
#: A size or another integer of the program: a number, or the text of a symbolic expression.
Size = int | str


@dataclass(frozen=True, slots=True)
class Meta:
    """Type, sizes and strides of a tensor; ``offset`` is where it begins in its storage, in elements."""

    dtype: DType
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A node: ``target`` is the operator (``aten.conv2d.default``), ``args`` are as the schema writes them (``{"as_int": 1}``)."""

    name: str
    target: str
    args: Mapping[str, Any]
    outputs: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """What an input of the graph is: ``kind`` (``user_input``, ``parameter``, ``buffer``, ``tensor_constant``) and its own name."""

    name: str
    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program.

    Attributes:
        sources: the graph's inputs, in order.
        outputs: the graph's outputs: the name of a value, what it is (``user_output``, ``buffer_mutation``, …), and of a
            mutation which buffer or input it replaces.
        tensors: type and shape of every value.
        integers: the numbers that the program computes from shapes, by name: expressions.
        hints: what symbols were when the program was exported.
        ranges: lowest and highest value of every symbol.
    """

    sources: tuple[Source, ...]
    outputs: tuple[tuple[str, str, str], ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Meta]
    integers: Mapping[str, Size | float]
    hints: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int | None]]


def damaged(what: str) -> ModelError:
    """The error for a program that does not follow the schema."""
    return ModelError(f"the exported program is damaged: {what}; fetch or export it again")


def as_map(value: object, what: str) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise damaged(f"{what} is not an object")
    return value


def as_list(value: object, what: str) -> Sequence[Any]:
    """A JSON array."""
    if not isinstance(value, list):
        raise damaged(f"{what} is not a list")
    return value


def as_text(value: object, what: str) -> str:
    """A JSON text that can be a name."""
    if not isinstance(value, str) or not value or len(value) > 4096 or not value.isprintable():
        raise damaged(f"{what} is not a name")
    return value


def as_int(value: object, what: str) -> int:
    """A whole number of 64 bits."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise damaged(f"{what} is not a whole number")
    return value


def read_program(described: Mapping[str, Any], size: int = 0) -> Program:
    """The program that the JSON object ``described`` holds, from a file of ``size`` bytes.

    Raises:
        ModelError: it does not follow the schema.
        UnsupportedModelError: it is of another version of the schema.
    """
    major = as_map(described.get("schema_version"), "its schema version").get("major")
    if type(major) is not int or not _OLDEST <= major <= _NEWEST:
        raise UnsupportedModelError(
            f"the exported program has the schema version {str(major)[:20]}; {_OLDEST} to {_NEWEST} (PyTorch 2.3 and newer) are supported"
        )
    module = as_map(described.get("graph_module"), "its graph module")
    graph, signature = as_map(module.get("graph"), "its graph"), as_map(module.get("signature"), "its signature")
    hints: dict[str, int] = {}
    graph = _in_line(graph, 0, Renaming(size))
    tensors = {as_text(n, "a tensor's name"): read_meta(m, n, hints) for n, m in as_map(graph.get("tensor_values"), "its tensors").items()}
    integers: dict[str, Size | float] = {}
    for group in _SYMBOLS:
        for name, value in as_map(graph.get(group) or {}, f"its {group}").items():
            integers[name] = _size(value, f"the value of {name[:80]!r}", hints)
    return Program(
        tuple(_source(s) for s in as_list(signature.get("input_specs"), "its inputs")),
        tuple(_output(s) for s in as_list(signature.get("output_specs"), "its outputs")),
        tuple(_node(n, i) for i, n in enumerate(as_list(graph.get("nodes"), "its nodes"))),
        tensors,
        integers,
        hints,
        {n: _range(r, n) for n, r in as_map(described.get("range_constraints") or {}, "its ranges").items()},
    )


def _in_line(graph: Mapping[str, Any], depth: int, names: Renaming) -> Mapping[str, Any]:
    """The graph with the graphs inside it put in line; see :mod:`hetsched.frontends.torch_nested`."""
    nodes: list[Any] = []
    tables = {k: dict(as_map(graph.get(k) or {}, f"its {k}")) for k in ("tensor_values", *_SYMBOLS)}
    for index, node in enumerate(as_list(graph.get("nodes"), "its nodes")):
        found = nested_graph(node) if isinstance(node, dict) and str(node.get("target")).removeprefix("torch.ops.") in INLINED else None
        if found is None:
            nodes.append(node)
            continue
        if depth >= MAX_DEPTH:
            raise damaged(f"over {MAX_DEPTH} programs lie in one another")
        prefix, (inner, args) = label(node.get("name"), index), found
        inner = _in_line(inner, depth + 1, names)
        for key, table in tables.items():
            table.update(names.prefixed(inner.get(key), prefix))
        formal, results = (names.renamed(as_list(inner.get(k), f"the {k} of node {index}"), prefix) for k in ("inputs", "outputs"))
        outputs = as_list(node.get("outputs"), f"the outputs of node {index}")
        if len(formal) != len(args) or len(outputs) != len(results):
            raise damaged(f"node {index} runs a program of {len(formal)} arguments with {len(args)}")
        nodes += [passing(a, f, f"{prefix}argument_{k}") for k, (a, f) in enumerate(zip(args, formal, strict=True)) if "as_tensor" in a]
        for part in as_list(inner.get("nodes"), f"the nodes of node {index}"):
            named = as_map(part, f"a node of node {index}")
            changed = {k: names.renamed(named.get(k), prefix) for k in ("inputs", "outputs")}
            nodes.append({**named, **changed, "name": names.name(str(named.get("name")), prefix)})
        nodes += [passing(r, o, f"{prefix}result_{k}") for k, (r, o) in enumerate(zip(results, outputs, strict=True)) if "as_tensor" in r]
    return {**graph, **tables, "nodes": nodes}


def read_meta(value: object, name: str, hints: dict[str, int] | None = None) -> Meta:
    """The description of the tensor ``name``; hints at what symbols were go into ``hints``.

    Raises:
        UnsupportedModelError: it is of a type that is not handled, or sparse.
    """
    meta, what, hints = as_map(value, f"the tensor {name[:80]!r}"), f"the tensor {name[:80]!r}", {} if hints is None else hints
    number, layout = as_int(meta.get("dtype"), f"the type of {what}"), meta.get("layout", _STRIDED)
    if number not in _TYPES:
        raise UnsupportedModelError(f"{what} has the element type number {number} of PyTorch, which is not supported")
    if layout != _STRIDED:
        raise UnsupportedModelError(f"{what} is sparse, which is not supported: export the model with dense tensors")
    sizes = tuple(_size(s, f"a size of {what}", hints) for s in as_list(meta.get("sizes"), f"the shape of {what}"))
    if len(sizes) > MAX_RANK:
        raise ModelError(f"{what} has {len(sizes)} dimensions; at most {MAX_RANK} are supported")
    strides = tuple(_size(s, f"a stride of {what}", {}) for s in as_list(meta.get("strides") or [], f"the strides of {what}"))
    offset = _size(meta.get("storage_offset") or {"as_int": 0}, f"the offset of {what}", {})
    return Meta(_TYPES[number], _whole(sizes, what), _whole(strides, what), _whole((offset,), what)[0])


def _whole(sizes: Sequence[Size | float], what: str) -> tuple[Size, ...]:
    out: list[Size] = []
    for s in sizes:
        if isinstance(s, float):
            raise damaged(f"a size of {what} is not a whole number")
        out.append(s)
    return tuple(out)


def _size(value: object, what: str, hints: dict[str, int]) -> Size | float:
    """A ``SymInt``, ``SymFloat`` or ``SymBool``: a number or an expression."""
    union = as_map(value, what)
    if "as_expr" in union:
        expression = as_map(union["as_expr"], what)
        text = expression.get("expr_str")
        if not isinstance(text, str) or len(text) > 4096:
            raise damaged(f"{what} is not an expression")
        hint = expression.get("hint")
        symbol = symbol_name(text)
        if symbol and isinstance(hint, dict) and type(hint.get("as_int")) is int:
            hints.setdefault(symbol, as_int(hint["as_int"], what))
        return text
    if type(union.get("as_float")) is float:
        return float(union["as_float"])
    return int(union["as_bool"]) if type(union.get("as_bool")) is bool else as_int(union.get("as_int"), what)


def symbol_name(text: str) -> str:
    """The symbol that the expression ``text`` is: ``s0`` of ``s0`` and of ``Symbol('s0', positive=True)``; ``""`` if it is none."""
    inner = text.removeprefix("Symbol('").partition("'")[0] if text.startswith("Symbol('") and text.count("(") == 1 else text
    return inner if inner.isidentifier() else ""


def _range(value: object, name: str) -> tuple[int, int | None]:
    pair = as_map(value, f"the range of {name[:80]!r}")
    low, high = pair.get("min_val"), pair.get("max_val")
    return (low if type(low) is int else 0), (high if type(high) is int else None)


def _node(value: object, index: int) -> Node:
    node = as_map(value, f"node {index}")
    target = as_text(node.get("target"), f"the operator of node {index}").removeprefix("torch.ops.")
    outputs: list[str | None] = []
    for item in as_list(node.get("outputs"), f"the outputs of node {index}"):
        outputs += _names(item, f"an output of node {index}")
    args: dict[str, Any] = {}
    for i, item in enumerate(as_list(node.get("inputs"), f"the inputs of node {index}")):
        entry = as_map(item, f"an input of node {index}")
        arg = as_map(entry.get("arg"), f"an input of node {index}")
        if len(arg) != 1:
            raise damaged(f"an input of node {index} has {len(arg)} values")
        args[str(entry.get("name") or i)] = arg
    name = node.get("name") or next((o for o in outputs if o), None) or f"{target}_{index}"
    return Node(as_text(name, f"the name of node {index}"), target, args, tuple(outputs))


def _names(item: object, what: str) -> list[str | None]:
    """Names of the tensors in one output; None for what is no tensor."""
    union = as_map(item, what)
    if "as_tensor" in union:
        return [as_text(as_map(union["as_tensor"], what).get("name"), what)]
    for key in ("as_tensors", "as_optional_tensors"):
        if key in union:
            found: list[str | None] = []
            for part in as_list(union[key], what):
                inner = as_map(part, what)
                found += _names(inner, what) if key == "as_optional_tensors" else [as_text(inner.get("name"), what)]
            return found
    return [None]


def _source(value: object) -> Source:
    union = as_map(value, "an input")
    if len(union) != 1:
        raise damaged("an input has several kinds")
    kind, spec = next(iter(union.items()))
    what = as_map(spec, "an input")
    if kind == "user_input":
        arg = as_map(what.get("arg"), "an input")
        name = _names(arg, "an input")[0]
        return Source(name or "", kind if name else "number", name or "")
    keys = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
    if kind in keys:
        name = as_text(as_map(what.get("arg"), "an input").get("name"), "an input")
        return Source(name, kind, as_text(what.get(keys[kind]), f"the {kind} {name!r}"))
    if kind in {"constant_input", "token"}:
        return Source("", kind, "")
    raise UnsupportedModelError(f"the exported program has an input of the kind {str(kind)[:40]!r}, which is not supported")


def _output(value: object) -> tuple[str, str, str]:
    union = as_map(value, "an output")
    if len(union) != 1:
        raise damaged("an output has several kinds")
    kind, spec = next(iter(union.items()))
    what = as_map(spec, "an output")
    if kind == "token":
        return "", kind, ""
    arg = as_map(what.get("arg"), "an output")
    if kind == "user_output":
        return _names(arg, "an output")[0] or "", kind, ""
    if kind not in {"buffer_mutation", "user_input_mutation", "loss_output"}:
        raise UnsupportedModelError(f"the exported program has an output of the kind {str(kind)[:40]!r}: export the model for inference")
    target = str(what.get("buffer_name") or what.get("user_input_name") or "")
    return as_text(arg.get("name"), "an output"), kind, target
