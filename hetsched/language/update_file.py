"""Updates of weights: a file that turns one version of a model into the next, with what changed of it and nothing else.

It is a ``safetensors`` file. ``__metadata__`` has one entry, ``hetsched_update``: JSON with the version header, the content hash of the
weights that it belongs to (``base``) and of those that it makes of them (``result``), and type and shape of each changed weight. For
each there are ``bytes/NAME``, uint8 [rows, bytes of a row], and, where only some rows changed, ``rows/NAME``, int64 [rows], ascending.

Nothing is copied or written when it is applied: unchanged weights stay mapped from the base, whole changed ones are mapped from the
update, and of a weight with some changed rows a copy is made when it is first read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import InputError, ModelError
from hetsched.frontends.safetensors_header import looks_like_safetensors, parse_json, read_safetensors
from hetsched.graph import DType, Graph, Tensor, WeightRef
from hetsched.language.weight_files import content_hash, digests_of, stored_bytes, weights_of
from hetsched.versions import check_versions

#: The entry of the file's metadata, and what arrays are called.
ENTRY, BYTES, ROWS = "hetsched_update", "bytes/", "rows/"
_AGAIN = "make it again with 'hetsched delta OLD NEW'"


@dataclass(frozen=True)
class Change:
    """A weight that an update changes.

    Attributes:
        kind: how it is stored.
        shape: its shape.
        data: the changed rows, uint8 [rows, bytes of a row].
        rows: which they are; None: all.
    """

    kind: str
    shape: tuple[int, ...]
    data: Tensor
    rows: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Update:
    """An update.

    Attributes:
        path: its file.
        base: content hash of the weights that it belongs to.
        result: content hash of those that it makes.
        changes: what it changes, by the names of the weights.
    """

    path: Path
    base: str
    result: str
    changes: Mapping[str, Change] = field(repr=False)


def read_update(path: str | Path) -> Update:
    """The update in a file, whose bytes stay where they are.

    Raises:
        InputError: it cannot be read.
        ModelError: it is no update, or damaged, or this runtime is not the one that it asks for.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as e:
        raise InputError(f"the update {path} cannot be read: {e.strerror or e}") from e
    if not looks_like_safetensors(head):
        raise ModelError(f"{path} is no update of weights: {_AGAIN}")
    arrays, raw = read_safetensors(path)
    where = f"the update {path}"
    entry = parse_json(raw, where).get("__metadata__")
    text = entry.get(ENTRY) if isinstance(entry, Mapping) else None
    if not isinstance(text, str):
        raise ModelError(f"{path} is no update of weights but of something else: {_AGAIN}")
    said = parse_json(text.encode(), where)
    check_versions(said, where, _AGAIN)
    base, result, described = said.get("base"), said.get("result"), said.get("weights")
    if not isinstance(base, str) or not isinstance(result, str) or not isinstance(described, Mapping) or not described:
        raise ModelError(f"{where} says no base, result or weights: it is damaged, {_AGAIN}")
    return Update(path, base, result, {name: _change(name, about, arrays, where) for name, about in described.items()})


def _change(name: str, about: object, arrays: Mapping[str, Tensor], where: str) -> Change:
    data, rows = arrays.get(BYTES + name), arrays.get(ROWS + name)
    kind, shape = (about.get("type"), about.get("shape")) if isinstance(about, Mapping) else (None, None)
    fits = isinstance(kind, str) and isinstance(shape, list) and all(type(d) is int and d >= 0 for d in shape)
    if not fits or data is None or data.dtype is not DType.U8 or len(data.shape) != 2 or data.data is None:
        raise ModelError(f"{where} has no whole description of {name!r}: it is damaged, {_AGAIN}")
    if not data.data.is_present or (rows is not None and (rows.data is None or not rows.data.is_present)):
        raise ModelError(f"{where} ends before the rows of {name!r}: it is truncated, fetch it again")
    if rows is None:
        return Change(str(kind), tuple(shape or ()), data)
    which = np.array(rows.numpy()) if rows.dtype is DType.I64 and rows.shape == data.shape[:1] else np.zeros(0, np.int64)
    if not which.size or which[0] < 0 or (np.diff(which) <= 0).any():
        raise ModelError(f"{where} does not say which rows of {name!r} it changes: it is damaged, {_AGAIN}")
    return Change(str(kind), tuple(shape or ()), data, which)


def updated(graph: Graph, path: Path, updates: Sequence[Update]) -> Graph:
    """A graph of the model at ``path`` with the weights that updates, one after another, make of its own.

    Its hash is that of the graph and the result, so that nothing that was kept of the base (packed weights, prefixes) is taken for it.

    Raises:
        ModelError: an update belongs to other weights, or does not fit or give what it should.
    """
    if not updates:
        return graph
    own = weights_of(path)
    now, digests = dict(own), digests_of(own)
    for update in updates:
        have = content_hash(now, digests)
        if update.base != have:
            raise ModelError(
                f"the update {update.path} belongs to weights with the hash {update.base[:16]}, and those of {path} have {have[:16]}: "
                "take the version that it was made for, or an update for this one"
            )
        changed = {name: _patched(update, name, change, now.get(name)) for name, change in update.changes.items()}
        now |= changed
        digests = digests | digests_of(changed, update.base, (update.path,))
        if content_hash(now, digests) != update.result:
            raise ModelError(f"the update {update.path} does not give the weights that it was made of: it is damaged, fetch it again")
    places = {(t.data.path, t.data.offset): now[name] for name, t in own.items() if t.data is not None and now[name] is not t}
    tensors = {name: _moved(t, places) for name, t in graph.tensors.items()}
    mark = hashlib.sha256(f"{graph.sha256} {updates[-1].result}".encode()).hexdigest()
    return graph.replace(tensors=tensors, sha256=mark)


def _patched(update: Update, name: str, change: Change, before: Tensor | None) -> Tensor:
    """A changed weight."""
    if before is None or before.stored_as != change.kind or before.shape != change.shape:
        what = "none" if before is None else f"{before.stored_as} {list(before.shape)}"
        raise ModelError(f"the update {update.path} has {name!r} as {change.kind} {list(change.shape)}, and the base has {what}: {_AGAIN}")
    (count, width), data, rows = change.data.shape, change.data.data, row_count(before)
    assert data is not None and before.data is not None
    if width * rows != before.nbytes or (count != rows if change.rows is None else int(change.rows[-1]) >= rows):
        raise ModelError(f"the update {update.path} has rows of {name!r} that do not fit its shape {list(before.shape)}: {_AGAIN}")
    if change.rows is None:
        return replace(before, data=replace(data, order=before.data.order))
    return replace(before, data=WeightRef(compute=cache(_Rows(before, change))))


def row_count(tensor: Tensor) -> int:
    """Rows of a weight: all of its axes but the last together."""
    return max(tensor.elements // max(tensor.shape[-1], 1), 1) if tensor.shape else 1


@dataclass(frozen=True, eq=False)
class _Rows:
    """What a weight is with some rows changed."""

    before: Tensor
    change: Change

    def __call__(self) -> npt.NDArray[Any]:
        assert self.change.rows is not None
        whole = np.array(stored_bytes(self.before)).reshape(row_count(self.before), -1)
        whole[self.change.rows] = self.change.data.numpy()
        flat = whole.reshape(-1)
        return flat if self.before.is_packed else flat.view(self.before.dtype.numpy).reshape(self.before.shape)


def _moved(tensor: Tensor, places: Mapping[tuple[Path | None, int], Tensor]) -> Tensor:
    """A tensor of the graph with the bytes that the weight in its place has now."""
    now = None if tensor.data is None else places.get((tensor.data.path, tensor.data.offset))
    if now is None or now.data is None or tensor.data is None:
        return tensor
    return replace(tensor, data=replace(now.data, order=tensor.data.order))
