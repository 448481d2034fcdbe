"""The shared corpus of models: each loads with every shape known, or is refused with a reason that names a node."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import SIMPLIFYING, run_passes, standard, unfuse

CORPUS = Path(__file__).parents[3] / "shared" / "models"
FILES = sorted(p for folder in ("graphs", "graphs/hard", "aihub", "real") for p in (CORPUS / folder).glob("*.onnx"))
#: What is refused, and why; anything else must load.
REFUSED: dict[str, str] = {}


def load_with_any_dims(path: Path) -> Graph:
    """Bind each dim that the loader asks for to 64 (Silero needs more than a frame)."""
    try:
        return load(path)
    except UnsupportedModelError:
        raise
    except ModelError as error:
        names = re.findall(r"--dim (\S+)=N", str(error))
        if not names:
            raise
        return load(path, dict.fromkeys(names, 512 if "silero" in path.name else 64))


@pytest.mark.corpus
@pytest.mark.skipif(not FILES, reason=f"the shared corpus is absent ({CORPUS})")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_loads_or_says_why(path: Path) -> None:
    if path.stem in REFUSED:
        with pytest.raises(UnsupportedModelError, match=REFUSED[path.stem]):
            load_with_any_dims(path)
        return
    graph = load_with_any_dims(path)
    fused = standard(graph)
    assert len(fused.ops) <= len(graph.ops)
    simple = run_passes(graph, SIMPLIFYING)
    assert {op.name: op for op in unfuse(fused).ops} == {op.name: op for op in unfuse(simple).ops}


@pytest.mark.corpus
def test_the_corpus_is_there() -> None:
    if not FILES:
        pytest.skip(f"the shared corpus is absent ({CORPUS})")
    assert len(FILES) > 90
