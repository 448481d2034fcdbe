"""Readers of other formats join through the entry-point group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from hetsched.errors import ModelError
from hetsched.frontends import GROUP, load
from hetsched.graph import DType, Graph, Op, Role, Tensor


class LineFrontend:
    """A toy format: the first line is ``LINE``, the second the length of one Relu."""

    name = "line"

    def recognises(self, head: bytes) -> bool:
        return head.startswith(b"LINE\n")

    def load(self, path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
        n = int(path.read_text().splitlines()[1])
        x, y = Tensor("x", (n,), DType.F32, Role.INPUT), Tensor("y", (n,), DType.F32, Role.OUTPUT)
        return Graph(path.stem, {"x": x, "y": y}, (Op("relu", "Relu", ("x",), ("y",)),), ("x",), ("y",), path)


def test_a_plug_in_reads_its_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.anything"
    path.write_text("LINE\n7\n")
    with pytest.raises(ModelError, match="not of any known model format"):
        load(path)
    entry = EntryPoint("line", f"{__name__}:LineFrontend", GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: LineFrontend)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: EntryPoints([entry] if group == GROUP else []))
    assert load(path).tensors["y"].shape == (7,)


def test_onnx_files_never_scan_the_installed_packages(two_branch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(group: str) -> None:
        raise AssertionError(group)

    monkeypatch.setattr("importlib.metadata.entry_points", scan)
    assert load(two_branch, {"width": 16}).tensors["y"].shape == (1, 10)


def test_same_graph_whatever_the_hash_seed(two_branch: Path) -> None:
    import os
    import subprocess
    import sys

    code = (
        "import sys; from hetsched.frontends import load; from hetsched.passes import standard; "
        "g = standard(load(sys.argv[1], {'width': 16})); print(g.ops, list(g.tensors.values()), g.sha256)"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code, str(two_branch)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1 and "FusedConv" in seen.pop()
