"""The zip archive of a ``.pt2`` file, read without PyTorch and without pickle.

``torch.export.load`` runs pickle on sample inputs and on some constants, so that a hostile file could run code, and it needs
an installation of PyTorch of at least the version that wrote the file. All that planning needs is in JSON and in raw members
of the archive, so those are read here directly. Nothing is ever extracted, so names of members cannot lead anywhere.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.safetensors_header import parse_json

#: Limits of an archive: members, and bytes of one JSON member once unpacked.
MAX_MEMBERS, MAX_JSON_BYTES = 1 << 18, 1 << 28
#: What unpacks to more than this many times the whole file is taken for a zip bomb: JSON shrinks about tenfold, and PyTorch does not
#: even pack it.
_MAX_RATIO, _SMALL = 32, 1 << 20
#: What the values of a JSON member may take in memory: this, and so many bytes for each byte of the file.
_MAX_VALUE_BYTES, _BYTES_PER_BYTE = 1 << 28, 16
#: About what Python takes for an object or an array, and for a text or another value.
_CONTAINER_BYTES, _VALUE_BYTES = 184, 32
_LOCAL = struct.Struct("<4s5H3I2H")
_ENCRYPTED = 1
_PROGRAM = "serialized_exported_program.json"  # PyTorch 2.1 to 2.6


def looks_like_archive(head: bytes) -> bool:
    """Whether bytes from the start of a file are those of a zip archive as PyTorch writes it (its first member is stored)."""
    if len(head) < _LOCAL.size or head[:4] != b"PK\x03\x04":
        return False
    _, _, flags, method, _, _, _, _, _, length, _ = _LOCAL.unpack_from(head)
    name = head[_LOCAL.size : _LOCAL.size + length]
    return 0 < length <= 512 and method in {0, 8} and not flags & _ENCRYPTED and name.isascii() and name.decode().isprintable()


class Archive:
    """The members of a ``.pt2`` file.

    Args:
        path: the file.

    Raises:
        ModelError: it is damaged, too large once unpacked, or another kind of archive; the message says which.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        try:
            with zipfile.ZipFile(path) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, ValueError, OverflowError, OSError, NotImplementedError, struct.error) as error:
            raise self._damaged(str(error)) from error
        if len(infos) > MAX_MEMBERS:
            raise self._damaged(f"it has {len(infos)} members")
        self.members: Mapping[str, zipfile.ZipInfo] = {i.filename: i for i in infos}
        if len(self.members) < len(infos):
            raise self._damaged("two of its members have one name")
        self.folder, self.program = self._find()
        if self.read_text("byteorder", "little") != "little":
            raise UnsupportedModelError(f"the weights in {str(path)!r} are not little-endian, which is not supported: export it again")

    def _damaged(self, why: str) -> ModelError:
        return ModelError(f"cannot read {str(self.path)!r}: the zip archive is damaged ({why}); fetch or export it again")

    def _find(self) -> tuple[str, str]:
        """The folder that everything is in (with its ``/``, or nothing), and the member that describes the program."""
        programs = sorted(n for n in self.members if n == _PROGRAM or ("/models/" in f"/{n}" and n.endswith(".json")))
        if not programs:
            raise ModelError(f"{str(self.path)!r} is not a model of a known format: it is {self._kind()}")
        if len(programs) > 1:
            raise UnsupportedModelError(
                f"{str(self.path)!r} holds {len(programs)} programs, and one is expected: save one exported program a file"
            )
        at = programs[0].rfind("models/")
        return ("" if programs[0] == _PROGRAM else programs[0][:at]), programs[0]

    def _kind(self) -> str:
        """What another zip archive is, and what to do with it."""
        names = [f"/{n}" for n in self.members]
        if any("/code/" in n for n in names):
            return (
                "a TorchScript archive (its code is in the folder code/), not an exported program: "
                "save the model with torch.export.save, or export it to ONNX"
            )
        if any(n.endswith("/data.pkl") for n in names):
            return (
                "a file of torch.save (weights or a pickled module, without a graph, and pickle is not read as it can run code): "
                "save the model with torch.export.save, or export it to ONNX"
            )
        if any(n.endswith("/Manifest.json") for n in names):
            return "a zip archive with a Core ML package: unpack it and give the .mlpackage folder"
        if "/metadata.json" in names and "/config.json" in names:
            return "a zip archive of Keras: export the model to ONNX or TFLite"
        return "a zip archive without an exported program (PyTorch, Keras and others use zip): export the model to ONNX"

    def read(self, name: str) -> bytes:
        """The bytes of a small member.

        Raises:
            ModelError: it is absent, damaged or unpacks to more than :data:`MAX_JSON_BYTES`, or to many times the size of the file.
        """
        info = self.members.get(name)
        if info is None:
            raise self._damaged(f"it has no member {name[:80]!r}")
        if info.file_size > min(MAX_JSON_BYTES, max(_SMALL, self.size * _MAX_RATIO)):
            raise self._damaged(f"its member {name[:80]!r} unpacks to {info.file_size} bytes")
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(info) as member:
                raw = member.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, ValueError, OverflowError, OSError, EOFError, RuntimeError, struct.error) as error:
            raise self._damaged(f"its member {name[:80]!r}: {error}") from error
        if len(raw) > info.file_size:
            raise self._damaged(f"its member {name[:80]!r} is larger than it says")
        return raw

    def read_json(self, name: str) -> dict[str, Any]:
        """The JSON object in a member.

        Raises:
            ModelError: as for :meth:`read`, or it is no JSON, or so dense that its values would take much more memory than the file.
        """
        raw = self.read(name)
        needed = _CONTAINER_BYTES * (raw.count(b"{") + raw.count(b"[")) + _VALUE_BYTES * (raw.count(b",") + raw.count(b'"'))
        if needed > _MAX_VALUE_BYTES + _BYTES_PER_BYTE * self.size:
            raise self._damaged(f"the values of its member {name[:80]!r} would take over {needed >> 20} MiB")
        return parse_json(raw, f"the member {name[:80]!r} of {str(self.path)!r}")

    def read_text(self, name: str, default: str) -> str:
        """The text of a member in the archive's folder, or ``default`` where there is none."""
        return self.read(self.folder + name).decode(errors="replace").strip() if self.folder + name in self.members else default

    def range_of(self, name: str) -> tuple[int, int] | None:
        """Offset and length, within the file, of a member that is stored as it is; None where there is no such member.

        Raises:
            ModelError: the member does not lie within the file.
        """
        info = self.members.get(name)
        if info is None or info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
            return None
        with self.path.open("rb") as file:
            file.seek(max(info.header_offset, 0))
            header = file.read(_LOCAL.size)
        if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04" or info.header_offset < 0:
            raise self._damaged(f"its member {name[:80]!r} is not where the directory says")
        *_, name_length, extra_length = _LOCAL.unpack(header)
        offset = info.header_offset + _LOCAL.size + name_length + extra_length
        if info.compress_size != info.file_size or offset + info.file_size > self.size:
            raise self._damaged(f"its member {name[:80]!r} does not lie within the file")
        return offset, info.file_size
