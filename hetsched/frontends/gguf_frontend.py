"""Reading GGUF files as language-model workloads: the header describes the network, the weights stay where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from hetsched.frontends.decoder_architecture import Architecture
from hetsched.frontends.decoder_graph import build
from hetsched.frontends.decoder_phase import bind
from hetsched.frontends.gguf_architecture import gguf_architecture, gguf_weights
from hetsched.frontends.gguf_reader import MAGIC, GgufHeader, read_header
from hetsched.graph import Graph


class GgufFrontend:
    """Reader of GGUF files, versions 2 and 3."""

    name = "gguf"

    def recognises(self, head: bytes) -> bool:
        """Whether ``head`` starts like a GGUF file."""
        return head[: len(MAGIC)] == MAGIC

    def load(self, path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
        """The graph of the phase that ``dims`` (batch, tokens, past, logits) ask for; see :func:`hetsched.frontends.load`."""
        header = _header(path)
        phase = bind(dims, shapes, path.stem)
        return build(gguf_architecture(header), gguf_weights(header), phase, path.stem, path, header.sha256)

    def phase(self, path: Path, tokens: int, past: int) -> dict[str, int]:
        """The dims of ``tokens`` new tokens after ``past`` cached ones; see :func:`hetsched.frontends.phase_dims`."""
        return {"tokens": tokens, "past": past, "logits": 1}

    def architecture(self, path: Path) -> Architecture:
        """The architecture of the model at ``path``."""
        return gguf_architecture(_header(path))


def _header(path: Path) -> GgufHeader:
    """The header of a file, read once while the file stays as it is: both phases of a model and all contexts begin with it."""
    about = path.stat()
    return _read(path, about.st_size, about.st_mtime_ns)


@lru_cache(4)
def _read(path: Path, size: int, changed_ns: int) -> GgufHeader:
    return read_header(path)
