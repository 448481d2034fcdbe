"""A decoder's first layers as a model: operators, caches, numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.errors import OptionError
from hetsched.frontends import load
from hetsched.graph import Role
from hetsched.passes.early_layers import EarlyLayers

GGUF = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"
DIMS = {"tokens": 2, "past": 3, "logits": 1}


@pytest.mark.real_models
@pytest.mark.skipif(not GGUF.is_file(), reason=f"{GGUF.name} is absent: run 'make models'")
def test_first_layers_norm_and_head() -> None:
    whole = load(GGUF, DIMS)
    early = EarlyLayers(6)(whole)
    assert sum(op.type == "GroupQueryAttention" for op in early.ops) == 6
    assert {op.name for op in early.ops} < {op.name for op in whole.ops}
    norm = early.ops[early.op_index["output_norm"]]
    assert norm.inputs == ("blk.5.residual_ffn", "output_norm.weight") and early.ops[-1].outputs == ("logits",)
    states = [n for n in early.outputs if early.tensors[n].role is Role.STATE]
    assert states == [f"present.{k}.{part}" for k in range(6) for part in ("key", "value")]
    assert early.states == {n: n.replace("present", "past") for n in states} and early.sha256 == whole.sha256
    for layers in (0, 30):
        with pytest.raises(OptionError, match="has 30 layers of attention: use 1 to 29"):
            EarlyLayers(layers)(whole)
