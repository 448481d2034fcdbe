"""Small ONNX models written as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a model, given as a proto or as the text of its graph, and return its path."""

    def write(model: onnx.ModelProto | str, opset: int = 18, domains: str = "", name: str = "model") -> Path:
        if isinstance(model, str):
            model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{domains}]>\n{model}')
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return write
