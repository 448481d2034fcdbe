"""The matrices of a model as kernels read them: packed once, kept in a file that later processes map."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import Tensor
from hetsched_kernels.gguf_groups import BLOCKS

if TYPE_CHECKING:
    from hetsched_kernels.few_bits import PackedGroups

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
    from hetsched.runtime.lower.matrix_groups import gguf_weights
    from hetsched_kernels.few_bits import pack_groups

    return pack_groups(gguf_weights(tensor))


def weights_folder() -> Path:
    """Where packed matrices are kept."""
    from hetsched_kernels.code_cache import cache_root

    return cache_root().parent / "weights"


class PackedStore:
    """Packed matrices of one model, by name: mapped from a file in the user's cache folder, which the first session writes.

    Attributes:
        whole: uint8, the file as it is mapped; empty where there is none.
    """

    def __init__(self, identity: str) -> None:
        """``identity`` says which weights these are (the hash of a model file's header)."""
        self._identity = identity
        self._path: Path | None = None
        self.whole: Array = np.zeros(0, np.uint8)
        self._index: dict[str, Any] | None = None
        self._start = self._adopted_bytes = 0
        self._new: dict[str, PackedGroups] = {}
        self._decoded: dict[str, Array] = {}

    @property
    def path(self) -> Path:
        """The file, which is named by what made it, too."""
        if self._path is None:
            from hetsched_kernels.code_cache import source_digest
            from hetsched_kernels.tile import COLS

            made_by = f"{source_digest('few_bits')}-{source_digest('gguf_groups')}-{source_digest('halves')}-{COLS}"
            self._path = weights_folder() / f"{self._identity[:32]}-{made_by}.bin"
        return self._path

    def adopt(self, path: Path, decoded_bytes: int) -> bool:
        """Take the matrices from a file that is known to be the one; whether it could be mapped. Who asks holds those that are decoded."""
        if self._new:
            return False
        self._path, self._index, self._adopted_bytes = path, None, decoded_bytes
        return bool(self._known)

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        new = sum(p.data.size for n, p in self._new.items() if n not in self._known)
        return int(sum(size for _, size, _ in self._known.values())) + new + self.decoded_bytes

    @property
    def complete(self) -> bool:
        """Whether the file has all packed matrices that were asked for."""
        return all(n in self._known for n in self._new)

    @property
    def decoded_bytes(self) -> int:
        """Bytes of the matrices that are decoded."""
        return max(self._adopted_bytes, sum(a.nbytes for a in self._decoded.values()))

    def regions(self) -> list[tuple[Array, int]]:
        """Memory with matrices that the file has, too, and where in the file they lie."""
        return [(self.whole, 0), *((p.data, self._start + self._known[n][0]) for n, p in self._new.items() if n in self._known)]

    def get(self, name: str, make: Callable[[], PackedGroups]) -> PackedGroups:
        """The packed matrix ``name``; ``make`` packs it where no file has it."""
        if name in self._new:
            return self._new[name]
        found = self._known.get(name)
        if found is None:
            self._new[name] = make()
            return self._new[name]
        from hetsched_kernels.few_bits import PackedGroups

        at, size, shape = found
        return PackedGroups(self.whole[self._start + at : self._start + at + size], np.array(shape, np.int64))

    def decoded(self, name: str, make: Callable[[], Array]) -> Array:
        """A matrix that no kernel computes on as it is stored: ``make`` decodes it once for all programs."""
        if name not in self._decoded:
            self._decoded[name] = make()
        return self._decoded[name]

    def save(self) -> None:
        """Write what was packed anew, with what the file had, for the next process."""
        if self.complete:
            return
        every = {n: self.get(n, _impossible) for n in (*self._known, *self._new)}
        at, index = 0, {}
        for name, packed in every.items():
            index[name] = (at, packed.data.size, packed.shape.tolist())
            at += -(-packed.data.size // _LINE) * _LINE
        header = json.dumps(index).encode()
        start = -(-(8 + len(header)) // _LINE) * _LINE
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
            with temporary.open("wb") as file:
                file.write(len(header).to_bytes(8, "little") + header)
                for name, packed in every.items():
                    file.seek(start + index[name][0])
                    file.write(packed.data.tobytes())
                file.truncate(start + at)
            temporary.replace(self.path)
            self._index = None

    @property
    def _known(self) -> dict[str, Any]:
        """Where in the file each matrix lies, how long it is, and its shape; the file is mapped when first asked for."""
        if self._index is None:
            self._index = {}
            with suppress(OSError, ValueError, KeyError):
                self._open()
        return self._index

    def _open(self) -> None:
        whole = np.asarray(np.memmap(self.path, np.uint8, "r"))
        length = int.from_bytes(whole[:8].tobytes(), "little")
        index = json.loads(whole[8 : 8 + length].tobytes())
        start = -(-(8 + length) // _LINE) * _LINE
        if all(0 <= at <= at + size <= whole.size - start for at, size, _ in index.values()):
            self.whole, self._start, self._index = whole, start, index


def _impossible() -> PackedGroups:
    raise KeyError("a packed matrix that is listed is there")
