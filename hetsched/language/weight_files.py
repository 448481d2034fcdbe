"""The weights of a model file or folder as they are stored, and hashes that tell one version of them from another."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ModelError, OptionError
from hetsched.files import write_atomically
from hetsched.frontends import format_of
from hetsched.frontends.gguf_reader import header_of
from hetsched.frontends.hf_files import read_folder
from hetsched.graph import Tensor
from hetsched.language import weights
from hetsched.runtime.executable_cache import identities

Bytes = npt.NDArray[np.uint8]
#: Bytes that are hashed at once.
_PART = 1 << 24


def weights_of(path: Path) -> Mapping[str, Tensor]:
    """Every weight of the model at ``path``, by the name that its file has for it; nothing but headers is read.

    Raises:
        OptionError: the format is another one.
        ModelError: a header is damaged, or the weights are absent.
    """
    kind = format_of(path)
    if kind == "gguf":
        tensors = header_of(path).tensors
    elif kind == "huggingface":
        tensors = read_folder((path if path.is_dir() else path.parent) / "config.json").tensors or {}
    else:
        raise OptionError(f"{path} is of the format {kind}: weights are updated in GGUF files and Hugging Face folders")
    absent = next((t.name for t in tensors.values() if t.data is None or not t.data.is_present), None if tensors else "all of them")
    if absent is not None:
        raise ModelError(f"the weights of {path} are absent (the first is {absent!r}): an update needs them")
    return tensors


def stored_bytes(tensor: Tensor) -> Bytes:
    """The bytes of a weight as its file has them, uint8 [bytes]: mapped where they lie in a file.

    Raises:
        ModelError: the file ends before them.
    """
    data = tensor.data
    if data is None or data.path is None:
        return np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
    if not tensor.nbytes:
        return np.zeros(0, np.uint8)
    if not data.is_present or data.length < tensor.nbytes:
        raise ModelError(f"the file {data.path} ends before the weight {tensor.name!r}: it is truncated")
    return np.asarray(np.memmap(data.path, np.uint8, "r", data.offset, (tensor.nbytes,)))


def digests_of(tensors: Mapping[str, Tensor], known_by: str = "", also: Sequence[Path] = ()) -> dict[str, str]:
    """SHA-256 of the bytes of every weight; remembered in the user's cache while the files stay as they are.

    Args:
        tensors: weights.
        known_by: what else their bytes depend on.
        also: files that they depend on, beside those that they lie in.
    """
    began = time.time_ns()
    paths = sorted({*also, *(t.data.path for t in tensors.values() if t.data is not None and t.data.path is not None)})
    files = identities(paths, began)
    remembered = None if files is None else _digest_file(_sha256([json.dumps([files, known_by, sorted(tensors)]).encode()]))
    if remembered is not None:
        with suppress(OSError, ValueError):
            found = json.loads(remembered.read_bytes())
            if isinstance(found, dict) and found.keys() == tensors.keys():
                return found
    out = {name: _sha256(_parts(stored_bytes(t))) for name, t in tensors.items()}
    if remembered is not None:
        _remember(remembered, out)
    return out


def content_hash(tensors: Mapping[str, Tensor], digests: Mapping[str, str]) -> str:
    """What tells these weights from any others: their names, types, shapes and bytes, in whatever file they lie."""
    rows = [[name, t.stored_as, [d for d in t.shape if d != 1], digests[name]] for name, t in sorted(tensors.items())]
    return _sha256([json.dumps(rows).encode()])


def _parts(raw: Bytes) -> Iterable[Any]:
    return (raw[at : at + _PART] for at in range(0, raw.size, _PART))


def _sha256(parts: Iterable[Any]) -> str:
    """SHA-256 of some bytes, one part after another."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _digest_file(key: str) -> Path:
    return weights.weights_folder().parent / "digests" / f"{key}.json"


def _remember(path: Path, digests: Mapping[str, str]) -> None:
    """Keep digests for the next process, if the folder can be written to."""
    with suppress(OSError, OptionError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(digests).encode())
