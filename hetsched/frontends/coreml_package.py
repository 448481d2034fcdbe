"""The files of a Core ML model: a ``.mlmodel`` file, or a ``.mlpackage`` folder with a manifest, a model and a file of weights."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hetsched.errors import ModelError
from hetsched.frontends.coreml_schema import MODELS
from hetsched.frontends.coreml_wire import damaged
from hetsched.frontends.onnx_tensors import ModelFile
from hetsched.frontends.onnx_wire import DamagedError, fields
from hetsched.frontends.safetensors_header import parse_json

_MARKS = (b'"rootModelIdentifier"', b'"itemInfoEntries"')
_MAX_MANIFEST_BYTES = 1 << 24
#: Fields of ``ModelDescription``.
_DESCRIPTION = frozenset({1, 10, 11, 12, 13, 20, 21, 50, 100})
_VARINT, _LENGTH = 0, 2
# Storage of weights, version 2 (coremltools: mlmodel/src/MILBlob/Blob/StorageFormat.hpp): the place of a constant is that of 64
# bytes that say where its bytes are.
_BLOB = struct.Struct("<IIQQQ")
_SENTINEL = 0xDEADBEEF


def looks_like_manifest(head: bytes) -> bool:
    """Whether ``head`` starts like the ``Manifest.json`` of a package."""
    return head.lstrip()[:1] == b"{" and any(m in head for m in _MARKS)


def looks_like_mlmodel(head: bytes) -> bool:
    """Whether ``head`` starts like a Core ML model.

    An ONNX model also begins with a version as field 1 and has a text as field 2; there Core ML has a message whose fields are
    those of a description of inputs and outputs.
    """
    described = False
    for number, wire, at, stop in _cut_fields(head):
        if number in {1, 10} and wire == _VARINT:
            continue
        if wire != _LENGTH:
            return False
        if number == 2:
            if not _is_description(head[at:stop], whole=stop <= len(head)):
                return False
            described = True
        else:
            return number in MODELS
    return described


def _cut_fields(head: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Fields of a message that may be cut off: number, wire type, start and end of the payload (which may be over the end)."""
    data, at = memoryview(head), 0
    while at < len(head):
        tag, at = _varint(data, at)
        value, after = _varint(data, at)
        if tag < 8 or at < 0 or after < 0:
            return
        stop = after + value if tag & 7 == _LENGTH else after
        yield tag >> 3, tag & 7, after, stop
        at = stop


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for k in range(10):
        if at < 0 or at + k >= len(data):
            return 0, -1
        value |= (data[at + k] & 0x7F) << 7 * k
        if data[at + k] < 0x80:
            return value, at + k + 1
    return 0, -1


def _is_description(raw: bytes, whole: bool) -> bool:
    if whole:
        try:
            rows = [(number, wire) for number, wire, _, _, _ in fields(memoryview(raw), 0, len(raw))]
        except DamagedError:
            return False
    else:
        rows = [(number, wire) for number, wire, _, _ in _cut_fields(raw)]
    if not rows and not whole:
        return raw[:1] == b"\n"  # the tag of an input; no producer's name begins so
    return bool(rows) and all(number in _DESCRIPTION and wire == _LENGTH for number, wire in rows)


@dataclass(frozen=True, slots=True)
class Files:
    """Where the parts of a model are: what the user named (``source``), the model itself (``model``), and its name."""

    source: Path
    model: Path
    name: str


def find(path: Path) -> Files:
    """The parts of the model at ``path``: a ``Manifest.json`` or a ``.mlmodel`` file.

    Raises:
        ModelError: the manifest is damaged, or names a file outside the package.
    """
    with path.open("rb") as file:
        head = file.read(4096)
    if not looks_like_manifest(head):
        return Files(path, path, path.stem)
    if path.stat().st_size > _MAX_MANIFEST_BYTES:
        raise ModelError(f"the manifest {str(path)!r} is too large")
    manifest = parse_json(path.read_bytes(), f"the manifest {str(path)!r}")
    items, root = manifest.get("itemInfoEntries"), manifest.get("rootModelIdentifier")
    item = items.get(root) if isinstance(items, dict) and isinstance(root, str) else None
    inner = item.get("path") if isinstance(item, dict) else None
    if not isinstance(inner, str) or not inner:
        raise ModelError(f"the manifest {str(path)!r} names no model: it is damaged")
    folder = (path.parent / "Data").resolve()
    parts = PurePosixPath(inner.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in inner or not inner.isprintable():
        raise ModelError(f"the manifest {str(path)!r} names {inner[:80]!r}, outside the package: this is refused")
    model = (folder / parts).resolve()
    if not model.is_relative_to(folder):
        raise ModelError(f"the manifest {str(path)!r} names {inner[:80]!r}, which leads outside the package: this is refused")
    if not model.is_file():
        raise ModelError(f"the package {path.parent.name!r} has no {inner[:80]!r}: copy the whole folder")
    return Files(path, model, path.resolve().parent.stem)


def blob(files: ModelFile, location: str, offset: int, name: str) -> tuple[Path, int, int, int] | None:
    """Where the bytes of a constant are: file, offset, length and type; None where the file of weights is absent.

    Args:
        files: the files beside the model.
        location: as the model has it, ``@model_path/weights/weight.bin``.
        offset: of the 64 bytes that describe the constant.
        name: of the constant, for messages.

    Raises:
        ModelError: the file is outside the folder, too short, or has no constant there.
    """
    path, size = files.data(location.removeprefix("@model_path/"), name)
    if size is None:
        return None
    if not 0 <= offset <= size - _BLOB.size:
        raise damaged(f"the weights of {name!r} are at {offset} in a file of {size} bytes")
    with path.open("rb") as file:
        file.seek(offset)
        sentinel, kind, length, start, _ = _BLOB.unpack(file.read(_BLOB.size))
    if sentinel != _SENTINEL or start + length > size:
        raise damaged(f"the file {path.name!r} has no weights of {name!r} at {offset}, or is truncated")
    return path, start, length, kind
