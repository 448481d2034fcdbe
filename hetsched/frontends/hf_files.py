"""The files of a Hugging Face folder: ``config.json`` and the headers of the weights, of which all may be absent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetsched.errors import ModelError
from hetsched.frontends.decoder_fields import Fields
from hetsched.frontends.decoder_weights import Naming, Weights
from hetsched.frontends.safetensors_header import parse_json, read_safetensors
from hetsched.graph import DType, Tensor

_MAX_CONFIG_BYTES = 1 << 24
_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = {"float32": DType.F32, "float16": DType.F16, "bfloat16": DType.BF16, "float64": DType.F64}


@dataclass(frozen=True)
class Folder:
    """A model's folder.

    Attributes:
        config: the fields of ``config.json``.
        tensors: what the weights' headers say; None where there are none.
        path: the ``config.json``.
        sha256: covers the configuration and the headers, not the weights.
    """

    config: Fields
    tensors: dict[str, Tensor] | None
    path: Path
    sha256: str

    @property
    def name(self) -> str:
        """The model's name: that of its folder."""
        return self.path.resolve().parent.name

    def weights(self, names: Naming) -> Weights:
        """The weights by role; where no header is there, those that the configuration implies."""
        dtype = _DTYPES.get(self.config.text("dtype", self.config.text("torch_dtype", "float16")), DType.F16)
        return Weights(self.tensors, names, f"the model {self.name!r}", dtype, self.path.parent / _WHOLE)


def read_folder(path: Path) -> Folder:
    """Read the folder of the ``config.json`` at ``path``.

    Raises:
        ModelError: the configuration or a header is damaged, or the index names a file outside the folder.
    """
    raw = _small(path)
    config = Fields(parse_json(raw, f"the configuration {str(path)!r}"), f"the configuration {str(path)!r}")
    digest = hashlib.sha256(raw)
    tensors: dict[str, Tensor] | None = None
    for header, data in _headers(path.parent):
        found, described = read_safetensors(header, data)
        digest.update(described)
        tensors = {} if tensors is None else tensors
        twice = next((n for n in found if n in tensors), None)
        if twice is not None:
            raise ModelError(f"the weight {twice!r} is in two files of {str(path.parent)!r}: the folder is damaged")
        tensors.update(found)
    return Folder(config, tensors, path, digest.hexdigest())


def bytes_beside(folder: Path, name: str, most: int = _MAX_CONFIG_BYTES) -> bytes | None:
    """The contents of a file of the folder other than its weights; None where it is absent.

    Raises:
        ModelError: it is a link that leads outside, or larger than ``most`` bytes.
    """
    path = folder / name
    if not path.is_file():
        return None
    if not _is_inside(path, folder):
        raise ModelError(f"the file {str(path)!r} is a link that leads outside the model's folder: this is refused")
    return _small(path, most)


def fields_beside(folder: Path, name: str) -> dict[str, Any]:
    """The fields of a small JSON file of the folder; none where it is absent.

    Raises:
        ModelError: it is damaged, too large, or a link that leads outside.
    """
    raw = bytes_beside(folder, name)
    return {} if raw is None else parse_json(raw, f"the file {str(folder / name)!r}")


def _small(path: Path, most: int = _MAX_CONFIG_BYTES) -> bytes:
    size = path.stat().st_size
    if size > most:
        raise ModelError(f"{str(path)!r} has {size} bytes, which is too much for a description of a model")
    return path.read_bytes()


def _headers(folder: Path) -> list[tuple[Path, Path]]:
    """Files that hold headers, and those that hold the weights; empty where all are absent.

    Raises:
        ModelError: some of the files that an index names are absent, or one lies outside the folder.
    """
    index = folder / _INDEX
    if index.is_file() and not _is_inside(index, folder):
        raise ModelError(f"the index {str(index)!r} is a link that leads outside the model's folder: this is refused")
    names = _shards(index) if index.is_file() else [_WHOLE]
    found, absent = [], []
    for name in names:
        whole, alone = folder / name, folder / f"{name}.header"
        header = whole if whole.is_file() else alone
        if not header.is_file():
            absent.append(name)
            continue
        if not _is_inside(header, folder):
            raise ModelError(f"the file {str(header)!r} is a link that leads outside the model's folder: this is refused")
        found.append((header, whole))
    if found and absent:
        raise ModelError(
            f"the folder {str(folder)!r} lacks {len(absent)} of the {len(names)} files that its index names ({absent[0]!r}): "
            "fetch them or their headers, or remove the others to plan from config.json alone"
        )
    return found


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a file, links followed, lies in the folder, or where the cache of Hugging Face's hub keeps it: ``../../blobs``."""
    target, home = path.resolve(), folder.resolve()
    blobs = home.parents[1] / "blobs" if home.parent.name == "snapshots" else home
    return target.is_relative_to(home) or target.is_relative_to(blobs)


def _shards(index: Path) -> list[str]:
    """The files that an index names, each once, in their order."""
    files = parse_json(_small(index), f"the index {str(index)!r}").get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(f, str) for f in files.values()):
        raise ModelError(f"the index {str(index)!r} has no 'weight_map': it is damaged")
    names = list(dict.fromkeys(files.values()))
    bad = next((n for n in names if Path(n).name != n or not n.isprintable() or not n.endswith(".safetensors") or "\\" in n), None)
    if bad is not None:
        raise ModelError(f"the index {str(index)!r} names the file {bad[:80]!r}, which is not a safetensors file in its folder: refused")
    return names
