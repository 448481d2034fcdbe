"""Reading GGUF files as language-model workloads: the header describes the network, the weights stay where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hetsched.frontends.decoder_architecture import Architecture
from hetsched.frontends.decoder_graph import build
from hetsched.frontends.decoder_phase import bind
from hetsched.frontends.gguf_architecture import gguf_architecture, gguf_weights
from hetsched.frontends.gguf_reader import MAGIC, header_of
from hetsched.graph import Graph


class GgufFrontend:
    """Reader of GGUF files, versions 2 and 3."""

    name = "gguf"

    def recognises(self, head: bytes) -> bool:
        """Whether ``head`` starts like a GGUF file."""
        return head[: len(MAGIC)] == MAGIC

    def load(self, path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
        """The graph of the phase that ``dims`` (batch, tokens, past, logits) ask for; see :func:`hetsched.frontends.load`."""
        header = header_of(path)
        phase = bind(dims, shapes, path.stem)
        return build(gguf_architecture(header), gguf_weights(header), phase, path.stem, path, header.sha256)

    def phase(self, path: Path, tokens: int, past: int) -> dict[str, int]:
        """The dims of ``tokens`` new tokens after ``past`` cached ones; see :func:`hetsched.frontends.phase_dims`."""
        return {"tokens": tokens, "past": past, "logits": 1}

    def architecture(self, path: Path) -> Architecture:
        """The architecture of the model at ``path``."""
        return gguf_architecture(header_of(path))
