"""A prefix that was computed once: its tokens and pages in a file, which later processes map.

The file is a line of JSON (what the pages were computed with, and the tokens), padded, and the pages one after another, all layers of
each. Pages are copied into the cache when the first sequence with them computes, once for all that share them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import InputError, ModelError, OptionError
from hetsched.files import write_atomically
from hetsched.graph import Graph
from hetsched.language.pages import CacheShape, PageTable
from hetsched.language.session import LanguageModel
from hetsched_kernels.paged_cache import page_bytes

_MAGIC, _LINE, _MOST = b"hetsched prefix 1\n", 4096, 1 << 24


def save_prefix(path: str | Path, model: LanguageModel, table: PageTable) -> None:
    """Write a sequence's tokens and pages to a file.

    Raises:
        OptionError: the sequence is empty, has forgotten its first tokens, was computed with an adapter or has states beside its pages.
    """
    if not table.length or table.gone:
        raise OptionError("the sequence has no tokens, or has forgotten its first ones: a prefix needs all of them")
    if table.adapter or table.states.size:
        raise OptionError("the sequence was computed with an adapter, or has states that are in no page: it cannot be a prefix in a file")
    model.residency.use(table)
    header = json.dumps(_described(model) | {"tokens": table.tokens}).encode()
    start = -(-(len(_MAGIC) + 8 + len(header)) // _LINE) * _LINE
    whole = (_MAGIC + len(header).to_bytes(8, "little") + header).ljust(start, b"\0")
    write_atomically(Path(path), whole + b"".join(model.pool.page(p).tobytes() for p in table.pages))


def map_prefix(path: str | Path, model: LanguageModel) -> PageTable:
    """A sequence that begins with a file's tokens; fork it for each conversation.

    Raises:
        ModelError: the file is damaged, or was made with another model or precision.
        OptionError: it exceeds the context.
    """
    path = Path(path)
    header, whole = _opened(path)
    described = _described(model)
    other = next(
        (n for n in ("model", "precision", "layers", "heads", "kv_heads", "head_dim", "page") if header.get(n) != described[n]), None
    )
    if other is not None:
        raise ModelError(f"{path.name} has a prefix of another {other} ({header.get(other)!r}, not {described[other]!r}): make it anew")
    tokens = header.get("tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, int) for t in tokens):
        raise ModelError(f"{path.name} has no tokens: make it anew")
    if len(tokens) > model.context:
        raise OptionError(f"the prefix in {path.name} has {len(tokens)} tokens, more than the context limit of {model.context}: raise it")
    shape = model.pool.shape
    geometry = CacheShape(
        shape.layers, shape.heads, shape.kv_heads, shape.head_dim, str(header.get("keys")), str(header.get("values")), shape.page
    ).geometry()
    size, count = shape.layers * page_bytes(geometry), -(-len(tokens) // shape.page)
    if whole.size != size * count:
        raise ModelError(f"{path.name} has {whole.size} bytes of pages, and its {len(tokens)} tokens need {size * count}: make it anew")
    table = model.sequence()
    table.pages.extend(model.pool.stored.map(whole[n * size : (n + 1) * size], geometry) for n in range(count))
    table.tokens, table.length, table.away = list(tokens), len(tokens), True
    return table


def fingerprint(graph: Graph) -> str:
    """What tells a model from others: its file's header, and the first bytes of every weight."""
    out = hashlib.sha256(graph.sha256.encode())
    for name, tensor in graph.tensors.items():
        if tensor.data is not None:
            out.update(name.encode() + tensor.numpy().reshape(-1)[:64].tobytes())
    return out.hexdigest()[:32]


def _described(model: LanguageModel) -> dict[str, Any]:
    shape = model.pool.shape
    return {
        "model": fingerprint(model.graph), "precision": model.precision, "layers": shape.layers, "heads": shape.heads,
        "kv_heads": shape.kv_heads, "head_dim": shape.head_dim, "page": shape.page, "keys": shape.keys, "values": shape.values,
    }  # fmt: skip


def _opened(path: Path) -> tuple[dict[str, Any], npt.NDArray[np.uint8]]:
    """Header and pages of a file."""
    try:
        whole = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as e:
        raise InputError(f"{path} cannot be read: {e}") from e
    begin = len(_MAGIC) + 8
    length = int.from_bytes(whole[len(_MAGIC) : begin].tobytes(), "little")
    start = -(-(begin + length) // _LINE) * _LINE
    if whole[: len(_MAGIC)].tobytes() != _MAGIC or length > _MOST or start > whole.size:
        raise ModelError(f"{path.name} is no file of a prefix, or ends too early: make it anew")
    try:
        header = json.loads(whole[begin : begin + length].tobytes())
    except ValueError as e:
        raise ModelError(f"the header of {path.name} is damaged: make it anew") from e
    if not isinstance(header, dict):
        raise ModelError(f"the header of {path.name} is damaged: make it anew")
    return header, np.asarray(whole[start:])
