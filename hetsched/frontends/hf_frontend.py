"""Reading Hugging Face folders: ``config.json`` says what the network is, safetensors headers say where its weights are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.frontends.decoder_architecture import Architecture
from hetsched.frontends.decoder_fields import Fields
from hetsched.frontends.decoder_graph import build
from hetsched.frontends.decoder_phase import bind
from hetsched.frontends.hf_architecture import FAMILIES, hf_architecture
from hetsched.frontends.hf_bert import bert_graph
from hetsched.frontends.hf_files import Folder, read_folder
from hetsched.frontends.hf_names import naming
from hetsched.frontends.hf_vit import vit_graph
from hetsched.frontends.hf_whisper import whisper_graph
from hetsched.frontends.safetensors_header import looks_like_safetensors
from hetsched.graph import Graph

Build = Callable[[Folder, Mapping[str, int]], Graph]
_OTHERS: Mapping[str, Build] = {
    "bert": bert_graph, "roberta": bert_graph, "xlm-roberta": bert_graph, "distilbert": bert_graph, "vit": vit_graph,
    "whisper": whisper_graph,
}  # fmt: skip
_MARKS = (b'"model_type"', b'"architectures"', b'"hidden_size"', b'"transformers_version"', b'"_name_or_path"')


class HuggingFaceFrontend:
    """Reader of folders with a ``config.json``, found by that file or by a safetensors file beside it."""

    name = "huggingface"

    def recognises(self, head: bytes) -> bool:
        """Whether ``head`` starts like a ``config.json`` or a safetensors file."""
        return looks_like_safetensors(head) or (head.lstrip()[:1] == b"{" and any(m in head for m in _MARKS))

    def load(self, path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
        """The graph of the phase that ``dims`` ask for; see :func:`hetsched.frontends.load`."""
        folder = read_folder(_config(path))
        if shapes:
            raise ModelError(f"the model {folder.name!r} takes dims (--dim NAME=N), not whole shapes of inputs")
        config, family = _decoder(folder.config)
        if family:
            phase = bind(dims, shapes, folder.name)
            return build(hf_architecture(config, family), folder.weights(naming(family)), phase, folder.name, folder.path, folder.sha256)
        kind = folder.config.text("model_type", "")
        if kind not in _OTHERS:
            known = ", ".join([*FAMILIES, *_OTHERS])
            raise UnsupportedModelError(
                f"the model {folder.name!r} is of type {kind[:40]!r}, which is not supported; supported are {known}"
            )
        return _OTHERS[kind](folder, dims)

    def phase(self, path: Path, tokens: int, past: int) -> dict[str, int]:
        """The dims of ``tokens`` new tokens after ``past`` cached ones; see :func:`hetsched.frontends.phase_dims`.

        Raises:
            OptionError: the model is no decoder.
        """
        folder = read_folder(_config(path))
        kind = folder.config.text("model_type", "")
        if not _decoder(folder.config)[1] and kind != "whisper":
            raise OptionError(f"the model {folder.name!r} of type {kind[:40]!r} generates no text: leave --prompt and --generate out")
        return {"tokens": tokens, "past": past, "logits": 1}

    def architecture(self, path: Path) -> Architecture:
        """The architecture of the decoder at ``path``.

        Raises:
            UnsupportedModelError: the model is not a decoder that is handled.
        """
        config, family = _decoder(read_folder(_config(path)).config)
        if not family:
            raise UnsupportedModelError(f"{str(path)!r} is not a decoder language model of a supported family")
        return hf_architecture(config, family)


def _config(path: Path) -> Path:
    """The ``config.json`` of a folder, or beside a safetensors file."""
    if path.is_dir():
        path = path / "config.json"
    with path.open("rb") as file:
        if not looks_like_safetensors(file.read(16)):
            return path
    beside = path.parent / "config.json"
    if not beside.is_file():
        raise ModelError(f"{str(path)!r} is a safetensors file, which holds weights without a graph: put its config.json beside it")
    return beside


def _decoder(config: Fields) -> tuple[Fields, str]:
    """The fields that describe the decoder, and its family; ``""`` where it is none."""
    kind = config.text("model_type", "")
    if kind == "gemma3" and "text_config" in config:
        return config.part("text_config"), "gemma3"
    return config, FAMILIES.get(kind, "")
