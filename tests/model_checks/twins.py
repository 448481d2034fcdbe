"""Networks that the corpus holds twice: what differs in the fused operators and in the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model_checks.counting import macs

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard


@dataclass(frozen=True, slots=True)
class Twin:
    """Two files of one network. ``same`` is false where they are known to differ (reported only), ``why`` says in what."""

    what: str
    first: str
    second: str
    same: bool = True
    why: str = ""
    first_dims: Mapping[str, int] = field(default_factory=dict)
    second_dims: Mapping[str, int] = field(default_factory=dict)


_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})
_DECODE, _TOKENS = {"tokens": 1, "past": 512}, {"tokens": 128}
_AIHUB = "AI Hub's normalises its input; its segmentations end in ArgMax"
_TWO_EXPORTERS = {
    "mobilenet_v2": "mobilenet_v2", "mobilenet_v3_large": "mobilenet_v3_large", "mobilenet_v3_small": "mobilenet_v3_small",
    "resnet18": "resnet18", "resnet50": "resnet50", "resnet101": "resnet101", "resnext50_32x4d": "resnext50",
    "squeezenet1_1": "squeezenet1_1", "googlenet": "googlenet", "efficientnet_b0": "efficientnet_b0",
    "efficientnet_v2_s": "efficientnet_v2_s", "deeplabv3_resnet50": "deeplabv3_resnet50", "fcn_resnet50": "fcn_resnet50", "vit_b_16": "vit",
}  # fmt: skip
_HUGGING_FACE = (
    ("SmolLM2 decode", "graphs/smollm2_135m_decode_p512.onnx", "hf/smollm2-135m", "mask and caches", _DECODE),
    ("Llama 3.2 1B decode", "graphs/llama32_1b_decode_p512.onnx", "hf/llama-3.2-1b", "mask and caches", _DECODE),
    ("MiniLM", "graphs/minilm_l6_h384_s128.onnx", "hf/all-minilm-l6-v2", "pooler, mask", _TOKENS),
    ("BERT", "graphs/bert_base_uncased_s128.onnx", "hf/bert-base-uncased", "pooler, mask", _TOKENS),
    ("Whisper tiny encoder", "aihub/whisper_tiny__HfWhisperEncoder.onnx", "hf/whisper-tiny", "AI Hub splits the heads", {}),
)
TWINS = (
    Twin("basic_pitch, ONNX and TFLite", "real/basic_pitch__nmp.onnx", "real/basic_pitch__nmp.tflite"),
    Twin(
        "DeiT tiny, dynamo and torchscript",
        "graphs/timm_deit_tiny_patch16_224.onnx",
        "graphs/hard/timm_deit_tiny_patch16_224_torchscript.onnx",
    ),
    Twin("SmolLM2 decode, GGUF and Hugging Face", "gguf/smollm2_135m_q4_1.header.gguf", "hf/smollm2-135m", True, "", _DECODE, _DECODE),
    Twin("MobileNetV2, float and fp16", "graphs/mobilenet_v2.onnx", "graphs/mobilenet_v2_fp16.onnx"),
    Twin("MobileNetV2, QDQ and QLinear", "graphs/mobilenet_v2_qdq_int8.onnx", "graphs/mobilenet_v2_qlinear_uint8.onnx"),
    *(Twin(f"{a}, two exporters", f"graphs/{a}.onnx", f"aihub/{b}.onnx", False, _AIHUB) for a, b in _TWO_EXPORTERS.items()),
    *(Twin(f"{what}, ONNX and Hugging Face", a, b, False, why, {}, dims) for what, a, b, why, dims in _HUGGING_FACE),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Fused operators of both, types whose counts differ (first, second), and relative differences of operators and MACs.

    Views are left out: they move and compute nothing, and exporters place them as they like.
    """

    first_ops: int
    second_ops: int
    types: Mapping[str, tuple[int, int]]
    operators: float
    macs: float

    @property
    def is_small(self) -> bool:
        """Whether operators and MACs differ by at most 1 %."""
        return abs(self.operators) <= 0.01 and abs(self.macs) <= 0.01


def differ(twin: Twin, root: Path) -> Difference:
    """Compare the two files of a twin below the corpus' folder ``root``."""
    return difference(_fused(root / twin.first, twin.first_dims), _fused(root / twin.second, twin.second_dims))


def difference(first: Graph, second: Graph) -> Difference:
    """Compare two fused graphs."""
    a, b = (Counter(op.type for op in g.ops if op.type not in _VIEWS) for g in (first, second))
    types = {kind: (a[kind], b[kind]) for kind in sorted(a | b) if a[kind] != b[kind]}
    operators = b.total() / max(1, a.total()) - 1.0
    return Difference(a.total(), b.total(), types, operators, macs(second) / max(1.0, macs(first)) - 1.0)


def _fused(path: Path, dims: Mapping[str, int]) -> Graph:
    return standard(load(path, dims))
