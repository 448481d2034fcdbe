"""A prefix that was computed once: its tokens and pages in a file, which later processes map.

The file is a checksum of the rest, a line of JSON (what the pages were computed with, and the tokens), padded, the pages one after
another, all layers of each, then the newest ones in float16 and the states of a fixed size, where there are any. Pages are copied into
the cache when the first sequence with them computes, once for all that share them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import InputError, ModelError, OptionError
from hetsched.files import write_atomically
from hetsched.frontends.safetensors_header import parse_json
from hetsched.graph import Graph
from hetsched.language.pages import PageTable
from hetsched.language.session import LanguageModel
from hetsched.versions import check_versions, version_header

_MAGIC, _LINE, _MOST = b"hetsched prefix 3\n", 4096, 1 << 24
#: Where the JSON begins: behind the checksum and its own length.
_SUM = 32
_BEGIN = len(_MAGIC) + _SUM + 8
#: What must be the same; the format of the cache may differ.
_IDENTITY = ("model", "precision", "protected", "layers", "heads", "kv_heads", "head_dim", "page")


def save_prefix(path: str | Path, model: LanguageModel, table: PageTable) -> None:
    """Write a sequence to a file: its tokens, its pages, the newest of them in float16 where the cache has fewer bits, its states.

    Raises:
        OptionError: the sequence is empty, has forgotten its first tokens, or was computed with an adapter or at a lower power level.
    """
    with model.pool.lock:
        if not table.length or table.gone:
            raise OptionError("the sequence has no tokens, or has forgotten its first ones: a prefix needs all of them")
        if table.adapter or not table.exact:
            why = f"with the adapter {table.adapter!r}" if table.adapter else "at a lower power level"
            raise OptionError(f"the sequence was computed {why}: a prefix in a file is of the model alone, as it was opened")
        model.residency.use(table, whole=True)
        recent = model.pool.recent.memory.tobytes() if table.fresh else b""
        described = version_header() | _described(model) | {"tokens": table.tokens, "fresh": table.fresh, "states": table.states.size}
        header = json.dumps(described).encode()
        start = -(-(_BEGIN + len(header)) // _LINE) * _LINE
        pages = b"".join(model.pool.page(p).tobytes() for p in table.pages)
        rest = (len(header).to_bytes(8, "little") + header).ljust(start - len(_MAGIC) - _SUM, b"\0")
        rest += pages + recent + table.states.astype("<f4").tobytes()
    write_atomically(Path(path), _MAGIC + hashlib.sha256(rest).digest() + rest)


def map_prefix(path: str | Path, model: LanguageModel) -> PageTable:
    """A sequence that begins with a file's tokens; fork it for each conversation.

    Raises:
        ModelError: the file is damaged, or was made with another model or precision.
        OptionError: it exceeds the context.
    """
    path = Path(path)
    header, whole = _opened(path)
    described = _described(model)
    other = next((n for n in _IDENTITY if header.get(n) != described[n]), None)
    if other is not None:
        raise ModelError(f"{path.name} has a prefix of another {other} ({header.get(other)!r}, not {described[other]!r}): make it anew")
    tokens, fresh, table = header.get("tokens"), header.get("fresh"), model.sequence()
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, int) for t in tokens):
        raise ModelError(f"{path.name} has no tokens: make it anew")
    if not isinstance(fresh, int) or not 0 <= fresh <= len(tokens) or header.get("states") != table.states.size:
        raise ModelError(f"the header of {path.name} is damaged: make it anew")
    if len(tokens) > model.context:
        raise OptionError(f"the prefix in {path.name} has {len(tokens)} tokens, more than the context limit of {model.context}: raise it")
    shape = replace(model.pool.shape, keys=str(header.get("keys")), values=str(header.get("values")))
    size, count, recent = shape.page_bytes, -(-len(tokens) // shape.page), shape.recent_bytes if fresh else 0
    if whole.size != size * count + recent + table.states.nbytes:
        raise ModelError(f"{path.name} has {whole.size} bytes after its header, not those of its {len(tokens)} tokens: make it anew")
    stored, end = model.pool.stored, size * count
    table.pages.extend(stored.map(whole[n * size : (n + 1) * size], shape.geometry()) for n in range(count))
    if recent and model.pool.recent.memory.size:
        table.recent_stored.append(stored.map(whole[end : end + recent], shape.plain.geometry()))
        table.fresh = fresh
    table.states[:] = whole[end + recent :].view("<f4")
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
    shape, precision = model.pool.shape, model.activations_at()
    return {
        "model": fingerprint(model.graph), "precision": precision.name, "protected": list(precision.protected),
        "layers": shape.layers, "heads": shape.heads, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "page": shape.page, "keys": shape.keys, "values": shape.values,
    }  # fmt: skip


def _opened(path: Path) -> tuple[dict[str, Any], npt.NDArray[np.uint8]]:
    """Header and pages of a file."""
    try:
        whole = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as e:
        raise InputError(f"{path} cannot be read: {e}") from e
    length = int.from_bytes(whole[_BEGIN - 8 : _BEGIN].tobytes(), "little")
    start = -(-(_BEGIN + length) // _LINE) * _LINE
    if whole[: len(_MAGIC)].tobytes() != _MAGIC or length > _MOST or start > whole.size:
        raise ModelError(f"{path.name} is no file of a prefix, or ends too early: make it anew")
    if hashlib.sha256(whole[len(_MAGIC) + _SUM :].data).digest() != whole[len(_MAGIC) :][:_SUM].tobytes():
        raise ModelError(f"{path.name} is not as it was written, by its checksum: make it anew")
    header = parse_json(whole[_BEGIN : _BEGIN + length].tobytes(), f"the header of {path.name}")
    check_versions(header, path.name, "make it anew")
    return header, np.asarray(whole[start:])
