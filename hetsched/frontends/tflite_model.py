"""A TFLite file as plain records: subgraphs, tensors, operators, and where the bytes of constants lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.tflite_flatbuffer import Table, damaged
from hetsched.frontends.tflite_schema import CUSTOM, LISTS, OPERATORS, OPTIONS, OTHER_TYPES, RESOURCE, TEXTS, TYPES
from hetsched.frontends.tflite_sparse import Sparsity, sparsity
from hetsched.graph import MAX_RANK, DType

#: More of these than any real model has; a file that claims more is damaged.
MAX_ITEMS = 1 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of a subgraph. ``signature`` has -1 for free dims; ``data`` is offset and length in the file, None if computed."""

    index: int
    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    dtype: DType | None
    type_number: int
    data: tuple[int, int] | None = None
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    is_variable: bool = False
    sparsity: Sparsity | None = None

    @property
    def is_resource(self) -> bool:
        """Whether it is the handle of a variable."""
        return self.type_number == RESOURCE

    def element_type(self) -> DType:
        """The element type.

        Raises:
            UnsupportedModelError: it is one that is not handled.
        """
        if self.dtype is None:
            kind = OTHER_TYPES.get(self.type_number, f"number {self.type_number}")
            raise UnsupportedModelError(f"the tensor {self.name!r} has the element type {kind}, which is not supported")
        return self.dtype


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a subgraph. ``inputs`` are tensor indices, -1 for one that is left out."""

    index: int
    type: str
    is_custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, int | float | str | tuple[int, ...]] = field(default_factory=dict)
    custom_options: bytes = b""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Tensors and operators, in execution order."""

    tensors: tuple[Stored, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A whole file; ``main`` is the subgraph that its first signature, or else the format, says is run."""

    subgraphs: tuple[Subgraph, ...]
    main: int


def parse(data: memoryview) -> Model:
    """Read the structure of a file, and none of its weights.

    Raises:
        ModelError: the file is damaged.
        UnsupportedModelError: it has no subgraph that could be run, or keeps tensors outside.
    """
    root = Table.root(data)
    version = root.integer(0, "I")
    if version != 3:
        raise UnsupportedModelError(f"the TFLite model has schema version {version}; version 3 is supported")
    buffers = [_buffer(t, len(data)) for t in _limited(root.tables(4), "buffers")]
    codes = [_code(t) for t in _limited(root.tables(1), "operator codes")]
    graphs = tuple(_subgraph(t, codes, buffers) for t in _limited(root.tables(2), "subgraphs"))
    signatures = root.tables(7)
    main = signatures[0].integer(4, "I") if signatures else 0
    if not 0 <= main < len(graphs):
        raise damaged(f"it has {len(graphs)} subgraphs, and number {main} is to be run")
    if not graphs[main].operators and not graphs[main].outputs:
        raise damaged("its subgraph has no operators and no outputs")
    return Model(graphs, main)


def _limited(tables: list[Table], what: str) -> list[Table]:
    if len(tables) > MAX_ITEMS:
        raise damaged(f"it claims to have {len(tables)} {what}")
    return tables


def _buffer(table: Table, size: int) -> tuple[int, int] | None:
    """Offset and length of a buffer's bytes; files over 2 GB keep them after the flatbuffer, at ``offset``."""
    found = table.vector(0, 1)
    offset, length = table.integer(1, "Q"), table.integer(2, "Q")
    if found is None or not found[1]:
        if offset <= 1 or not length:
            return None
        found = offset, length
    if found[0] + found[1] > size:
        raise damaged("the bytes of a constant lie beyond the end of the file: it is truncated")
    return found


def _code(table: Table) -> tuple[str, bool]:
    """Name of an operator code, and whether it is a custom one. Old files have the number in another field."""
    number = max(table.integer(3, "i"), table.integer(0, "b"))
    if number == CUSTOM:
        return table.text(1) or "unnamed", True
    return OPERATORS.get(number, f"BUILTIN_{number}"), False


def _subgraph(table: Table, codes: list[tuple[str, bool]], buffers: list[tuple[int, int] | None]) -> Subgraph:
    rows = _limited(table.tables(0), "tensors")
    names: dict[str, int] = {}
    tensors = tuple(_tensor(t, i, names, buffers) for i, t in enumerate(rows))
    operators = tuple(_operator(t, i, codes, len(tensors)) for i, t in enumerate(_limited(table.tables(3), "operators")))
    inputs, outputs = table.integers(1, "i", MAX_ITEMS), table.integers(2, "i", MAX_ITEMS)
    for i in (*inputs, *outputs):
        if not 0 <= i < len(tensors):
            raise damaged(f"its input or output is tensor {i}, and there are {len(tensors)}")
    return Subgraph(tensors, operators, inputs, outputs)


def _tensor(table: Table, index: int, names: dict[str, int], buffers: list[tuple[int, int] | None]) -> Stored:
    name = table.text(3) or f"tensor_{index}"
    if name in names:
        name = f"{name}#{index}"
    names[name] = index
    shape = table.integers(0, "i", MAX_RANK)
    signature = table.integers(7, "i", MAX_RANK)
    if any(d < 0 for d in shape) and not signature:
        signature, shape = shape, tuple(max(d, 1) for d in shape)
    if any(d < 0 for d in shape) or (signature and len(signature) != len(shape)):
        raise ModelError(f"the tensor {name!r} has the shape {list(shape)} and the signature {list(signature)}: the model file is damaged")
    if table.integer(10, "I"):
        raise UnsupportedModelError(f"the tensor {name!r} lies in another file, which is not supported: export the model as one file")
    number, buffer = table.integer(1, "b"), table.integer(2, "I")
    if buffer >= max(len(buffers), 1):
        raise ModelError(f"the tensor {name!r} is in buffer {buffer}, and the file has {len(buffers)}: it is damaged")
    scales, zero_points, axis = _quantization(table.table(4), name)
    form = sparsity(table.table(6), name, len(shape))
    data = buffers[buffer] if buffers and buffer else None
    if form is not None and data is None:
        data = 0, 0  # nothing but zeros
    return Stored(
        index, name, shape, signature or shape, TYPES.get(number), number, data, scales, zero_points, axis,
        bool(table.integer(5, "B")), form,
    )  # fmt: skip


def _quantization(table: Table | None, name: str) -> tuple[tuple[float, ...], tuple[int, ...], int]:
    if table is None:
        return (), (), 0
    scales = tuple(float(v) for v in table.numbers(2, "f"))
    zero_points = table.integers(3, "q")
    if not scales:
        return (), (), 0
    if len(zero_points) not in {0, 1, len(scales)}:
        raise ModelError(f"the tensor {name!r} has {len(scales)} scales and {len(zero_points)} zero points: the model file is damaged")
    if not all(math.isfinite(s) and s >= 0 for s in scales):
        raise ModelError(f"the tensor {name!r} has a scale that is not a positive number: the model file is damaged")
    if len(zero_points) < len(scales):
        zero_points = (zero_points or (0,)) * len(scales)
    return scales, zero_points, table.integer(6, "i")


def _operator(table: Table, index: int, codes: list[tuple[str, bool]], tensors: int) -> Operator:
    code = table.integer(0, "I")
    if code >= len(codes):
        raise damaged(f"operator {index} has the code {code}, and there are {len(codes)}")
    kind, custom = codes[code]
    inputs, outputs = table.integers(1, "i", MAX_ITEMS), table.integers(2, "i", MAX_ITEMS)
    for i in (*inputs, *outputs):
        if not -1 <= i < tensors:
            raise damaged(f"operator {index} ({kind}) names tensor {i}, and there are {tensors}")
    raw = bytes(table.integers(5, "B", 1 << 16)) if custom else b""
    return Operator(index, kind, custom, inputs, outputs, {} if custom else _options(kind, table.table(4)), raw)


def _options(kind: str, table: Table | None) -> dict[str, int | float | str | tuple[int, ...]]:
    out: dict[str, int | float | str | tuple[int, ...]] = {}
    for name, (number, code, default) in OPTIONS.get(kind, {}).items():
        out[name] = default if table is None else table.scalar(number, code, default)
    if table is None:
        return out
    if kind in LISTS:
        number, name = LISTS[kind]
        if table.vector(number, 4) is not None:
            out[name] = table.integers(number, "i", MAX_RANK)
    for number, name in TEXTS.get(kind, ()):
        out[name] = table.text(number)
    return out
