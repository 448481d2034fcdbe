"""Choosing the reader of a model file by its first bytes; plug-ins join through an entry-point group."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from hetsched.errors import ModelError, OptionError, ShapeError
from hetsched.graph import Graph

#: Entry-point group of readers: each entry loads to a class or function that returns a :class:`Frontend`.
GROUP = "hetsched.frontends"
_HEAD_BYTES = 4096
#: What a model that is a folder is recognised by: Hugging Face, Core ML.
FOLDER_FILES = ("config.json", "Manifest.json")
_KNOWN = "ONNX, TFLite, GGUF, Core ML, torch.export, Hugging Face folder"
#: Readers that come with this package, in the order in which they are asked: entry-point name -> module and class.
_BUILT_IN = {
    "coreml": ("coreml_frontend", "CoremlFrontend"),  # before ONNX, whose files begin with the same field
    "onnx": ("onnx_frontend", "OnnxFrontend"),
    "gguf": ("gguf_frontend", "GgufFrontend"),
    "huggingface": ("hf_frontend", "HuggingFaceFrontend"),
    "tflite": ("tflite_frontend", "TfliteFrontend"),
    "torch": ("torch_frontend", "TorchExportFrontend"),
}


class Frontend(Protocol):
    """A reader of one file format."""

    name: str

    def recognises(self, head: bytes) -> bool:
        """Whether a file that starts with ``head`` (up to 4096 bytes) is of this format."""
        ...

    def load(self, path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
        """Read the file into a graph with every shape known."""
        ...


def _frontends() -> Iterator[Frontend]:
    """The built-in readers first, so that their files never pay for the scan of installed packages."""
    from importlib import import_module

    for module, reader in _BUILT_IN.values():
        frontend: Frontend = getattr(import_module(f"hetsched.frontends.{module}"), reader)()
        yield frontend
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        if entry.name not in _BUILT_IN:
            yield entry.load()()


def load(path: Path | str, dims: Mapping[str, int] | None = None, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """Read a model file.

    Args:
        path: the model file, or a folder with a ``config.json`` or ``Manifest.json`` (a Core ML package).
        dims: values of symbolic dims, by name or as ``<input>.<axis>`` (``--dim NAME=N``).
        shapes: whole shapes of inputs, by input name; for inputs whose rank the file leaves open.

    Returns:
        The graph, in topological order, with the shape and type of every tensor. Weights stay in their files.

    Raises:
        ModelError: there is no such file, its format is unknown, it is damaged, or this machine does not have the memory to read it.
        UnsupportedModelError: it is valid and uses something that is not handled; the message names the node.
        OptionError: ``dims`` or ``shapes`` name something that the model does not have.
    """
    file, frontend = _reader(Path(path))
    with _readable(file), _naming(dims or {}):
        return frontend.load(file, dict(dims or {}), dict(shapes or {}))


def phase_dims(path: Path | str, tokens: int, past: int) -> dict[str, int]:
    """The dims that make of a language model the phase of ``tokens`` new tokens after ``past`` cached ones.

    Readers that know such phases have a method ``phase(path, tokens, past)``.

    Raises:
        ModelError: there is no such file, or its format is unknown.
        OptionError: the model has no such phases, or its shapes are fixed.
    """
    file, frontend = _reader(Path(path))
    phase = getattr(frontend, "phase", None)
    if phase is None:
        raise OptionError(f"{frontend.name} models have no prompt: leave --prompt and --generate out of planning {file.name!r}")
    with _readable(file):
        return dict(phase(file, tokens, past))


def format_of(path: Path | str) -> str:
    """The name of the reader that would load a model file (``onnx``, ``tflite``, …).

    Raises:
        ModelError: there is no such file, or its format is unknown.
    """
    return _reader(Path(path))[1].name


def _reader(path: Path) -> tuple[Path, Frontend]:
    """The file to read (of a folder its ``config.json`` or ``Manifest.json``) and its reader."""
    if path.is_dir():
        found = next((n for n in FOLDER_FILES if (path / n).is_file()), None)
        if found is None:
            raise ModelError(f"{str(path)!r} is a folder without {' or '.join(FOLDER_FILES)}: name a model file in it")
        path = path / found
    if not path.is_file():
        raise ModelError(f"there is no model file {str(path)!r}")
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    for frontend in _frontends():
        if frontend.recognises(head):
            return path, frontend
    raise ModelError(f"{str(path)!r} is not a model of a known format ({_KNOWN}){_guess(head)}")


@contextmanager
def _naming(dims: Mapping[str, int]) -> Iterator[None]:
    """Shapes that an operator does not accept, with the dims that the user chose: one of them may be the reason."""
    try:
        yield
    except ShapeError as error:
        if not dims:
            raise
        chosen = ", ".join(f"{name}={size}" for name, size in dims.items())
        raise ShapeError(f"{error}; the dims were given as {chosen}: give others") from error


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Errors of Python's own for a file that is too much for this machine, or names files that it cannot have, as errors of the model."""
    try:
        yield
    except MemoryError as error:
        raise ModelError(f"reading {str(file)!r} takes more memory than this machine has free") from error
    except RecursionError as error:
        raise ModelError(f"the parts of {str(file)!r} are nested too deeply in one another to be read: the file is damaged") from error
    except OSError as error:
        if error.errno not in {errno.ENAMETOOLONG, errno.ELOOP}:
            raise
        raise ModelError(f"{str(file)!r} names the file {str(error.filename)!r}, which cannot be: {error.strerror}") from error


def _guess(head: bytes) -> str:
    """What an unknown file seems to be, as the rest of a sentence."""
    if not head:
        return ": the file is empty"
    if head[:2] == b"PK":
        return ": it is a zip archive (PyTorch, Keras and others use it); export the model to ONNX"
    if head[:8] == b"\x89HDF\r\n\x1a\n":
        return ": it is an HDF5 file; export the model to ONNX"
    return ": its content is not of any known model format"
