"""Reading Core ML models: ML programs and classic neural networks, in packages and single files, without coremltools."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.coreml_package import find, looks_like_manifest, looks_like_mlmodel
from hetsched.graph import Graph


class CoremlFrontend:
    """Reader of ``.mlpackage`` folders (by their ``Manifest.json``) and ``.mlmodel`` files."""

    name = "coreml"

    def recognises(self, head: bytes) -> bool:
        """Whether ``head`` starts like the manifest of a package, or like a Core ML model."""
        return looks_like_manifest(head) or looks_like_mlmodel(head)

    def load(self, path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
        """Read the model at ``path``; see :func:`hetsched.frontends.load`."""
        from hetsched.frontends import coreml_network, coreml_program
        from hetsched.frontends.coreml_schema import MODELS
        from hetsched.frontends.coreml_wire import Message, damaged

        files = find(path)
        if files.model.stat().st_size == 0:
            raise ModelError(f"the model file {str(files.model)!r} is empty")
        with files.model.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        model = Message(memoryview(mapped), 0, len(mapped), "Model")
        if model.has("mlProgram"):
            return coreml_program.graph(model, files, digest, dims, shapes)
        kind = model.which("neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor")
        if kind:
            return coreml_network.graph(model, kind, files, digest, dims, shapes)
        other = next((MODELS[n] for n in model.numbers() if n in MODELS), "")
        if other:
            raise UnsupportedModelError(
                f"the Core ML model {files.name!r} is a {other}, which is not supported: only ML programs and neural networks are"
            )
        raise damaged("it holds no network")
