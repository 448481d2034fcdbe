"""The process of llama.cpp that benchmarks talk to, with a library that only counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))
import llm_peer

LIBRARY = """
import os, sys, types
llama_cpp = types.SimpleNamespace(llama_model_default_params=lambda: types.SimpleNamespace(use_extra_bufts=True))
class Llama:
    def __init__(self, model, **options):
        self.n_tokens, self.params, self.options = 0, llama_cpp.llama_model_default_params(), options
        print("the library greets")
    def eval(self, tokens):
        if {dies} and self.params.use_extra_bufts:
            os.abort()
        self.n_tokens += len(tokens)
        if self.n_tokens > self.options["n_ctx"]:
            sys.exit(3)
"""


def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool) -> None:
    (tmp_path / "llama_cpp.py").write_text(LIBRARY.format(dies=dies))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_contexts_grow_and_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path, monkeypatch, dies=False)
    with llm_peer.Peer("a.gguf", 1, 100) as peer:
        assert not peer.plain
        for before in (90, 20, 0, 94):  # never more than the context
            wall, own = peer.seconds(before, 1, 6)
            assert wall > 0 and own >= 0
        with pytest.raises(EOFError, match="has ended"):
            peer.seconds(95, 1, 6)
        with pytest.raises(EOFError, match="has ended"):
            peer.seconds(0, 1, 1)


def test_a_library_that_ends_is_started_without_repacked_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path, monkeypatch, dies=True)
    with llm_peer.Peer("a.gguf", 1, 100) as peer:
        assert peer.plain
        assert peer.seconds(10, 4, 2)[0] > 0
