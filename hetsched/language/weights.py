"""The matrices of a model as kernels read them: packed once, kept in a file that later processes map."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import Tensor
from hetsched_kernels.code_cache import cache_root, source_digest
from hetsched_kernels.few_bits import PackedGroups, pack_groups
from hetsched_kernels.gguf_groups import BLOCKS, gguf_groups
from hetsched_kernels.tile import LANES

Array = npt.NDArray[Any]
_LINE = 64
_SCHEME = "gguf:"


def block_kind(tensor: Tensor, experts: bool = False) -> str | None:
    """The kind of GGUF blocks that a matrix (of ``experts``: or a stack of them) is stored in, if products compute on them directly."""
    scheme = "" if tensor.quantization is None else tensor.quantization.scheme
    kind = scheme.removeprefix(_SCHEME) if scheme.startswith(_SCHEME) else ""
    return kind if kind in BLOCKS and (experts or len(tensor.shape) == 2) else None


def packed_block(tensor: Tensor) -> PackedGroups:
    """A matrix in blocks, in the order that products read it in."""
    kind = block_kind(tensor)
    assert kind is not None
    n, k = tensor.shape
    return pack_groups(gguf_groups(kind, tensor.numpy().reshape(-1).view(np.uint8), n, k))


class PackedStore:
    """Packed matrices of one model, by name: mapped from a file in the user's cache folder, which the first session writes."""

    def __init__(self, identity: str) -> None:
        """``identity`` says which weights these are (the hash of a model file's header)."""
        made_by = f"{source_digest('few_bits')}-{source_digest('gguf_groups')}-{LANES}"
        self._path = cache_root().parent / "weights" / f"{identity[:32]}-{made_by}.bin"
        self._index: dict[str, Any] = {}
        self._mapped: Array | None = None
        self._new: dict[str, PackedGroups] = {}
        self._decoded: dict[str, Array] = {}
        with suppress(OSError, ValueError, KeyError):
            self._open()

    @property
    def nbytes(self) -> int:
        """Bytes of all packed matrices."""
        return int(sum(size for _, size, _ in self._index.values())) + sum(
            p.data.size for n, p in self._new.items() if n not in self._index
        )

    def get(self, name: str, make: Callable[[], PackedGroups]) -> PackedGroups:
        """The packed matrix ``name``; ``make`` packs it where no file has it."""
        if name in self._new:
            return self._new[name]
        found = self._index.get(name)
        if found is None or self._mapped is None:
            self._new[name] = make()
            return self._new[name]
        at, size, shape = found
        return PackedGroups(self._mapped[at : at + size], np.array(shape, np.int64))

    def decoded(self, name: str, make: Callable[[], Array]) -> Array:
        """A matrix that no kernel computes on as it is stored: ``make`` decodes it once for all programs."""
        if name not in self._decoded:
            self._decoded[name] = make()
        return self._decoded[name]

    def save(self) -> None:
        """Write what was packed anew, with what the file had, for the next process; the own copies are then mapped, too."""
        if not self._new:
            return
        every = {n: self.get(n, _impossible) for n in (*self._index, *self._new)}
        at, index = 0, {}
        for name, packed in every.items():
            index[name] = (at, packed.data.size, packed.shape.tolist())
            at += -(-packed.data.size // _LINE) * _LINE
        header = json.dumps(index).encode()
        start = -(-(8 + len(header)) // _LINE) * _LINE
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
            with temporary.open("wb") as file:
                file.write(len(header).to_bytes(8, "little") + header)
                for name, packed in every.items():
                    file.seek(start + index[name][0])
                    file.write(packed.data.tobytes())
                file.truncate(start + at)
            temporary.replace(self._path)

    def _open(self) -> None:
        whole = np.memmap(self._path, np.uint8, "r")
        length = int.from_bytes(whole[:8].tobytes(), "little")
        index = json.loads(whole[8 : 8 + length].tobytes())
        start = -(-(8 + length) // _LINE) * _LINE
        if any(not 0 <= at <= at + size <= whole.size - start for at, size, _ in index.values()):
            return
        self._mapped, self._index = np.asarray(whole[start:]), index


def _impossible() -> PackedGroups:
    raise KeyError("a packed matrix that is listed is there")
