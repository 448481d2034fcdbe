"""Layers as converters count them: the rules on small graphs, and AI Hub's reports on real ones."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from model_checks.converter_layers import Style, layers

from hetsched.errors import OptionError
from hetsched.frontends import load
from hetsched.passes import standard

Save = Callable[..., Path]
SHARED = Path(__file__).parents[3] / "shared"
GRAPHS, REPORTS = SHARED / "models" / "aihub", SHARED / "measurements" / "npu_snapdragon_aihub.csv"
W = f"float[4,4,3,3] w = {{{','.join(['0.1'] * 144)}}}, float[4,1,1] b = {{1,2,3,4}}, float lo = {{0}}, float hi = {{6}}, float one = {{1}}"


def count(save: Save, body: str, style: Style, out: str = "float[1,a,b,c] y") -> int:
    graph = load(save(f"g (float[1,4,8,8] x) => ({out}) <{W}, int64[2] last = {{-1,-2}}> {{ {body} }}"))
    assert layers(graph, style) == layers(standard(graph), style)  # whatever the passes made of it
    return layers(graph, style)


@pytest.mark.parametrize(
    ("body", "tflite", "qnn"),
    [
        ("c = Conv(x, w)  d = Add(c, b)  y = Relu(d)", 1, 2 + 2),  # bias and ReLU in one; QNN's ReLU apart, two casts at the edges
        ("c = Conv(x, w)  y = Clip(c, lo, hi)", 1, 2 + 2),
        ("c = Conv(x, w)  y = Clip(c, lo, one)", 2, 2 + 2),  # RELU_0_TO_1 is no fused activation
        ("c = Conv <pads = [1,1,1,1]> (x, w)  y = Relu(c)", 1, 2 + 2),  # SAME
        ("c = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w)  y = Relu(c)", 2, 2 + 2),  # neither SAME nor VALID: a PAD
        ("s = Sigmoid(x)  y = Mul(x, s)", 2, 2 + 2),
        ("a = Add(x, b)  y = Relu(a)", 1, 2 + 2),
        ("p = GlobalAveragePool(x)  y = Softmax(p)", 2, 2 + 2),
        ("y = DepthToSpace <blocksize = 2, mode = 'CRD'> (x)", 5, 2 + 2),
        ("y = DepthToSpace <blocksize = 2> (x)", 1, 1 + 2),
        ("y = HardSwish(x)", 1, 1 + 2),
    ],
)
def test_rules(save: Save, body: str, tflite: int, qnn: int) -> None:
    body = body.replace("'CRD'", '"CRD"')
    assert count(save, body, "tflite") == tflite
    assert count(save, body, "qnn_dlc") == qnn


def test_an_unknown_converter(save: Save) -> None:
    graph = load(save("g (float[2] x) => (float[2] y) { y = Exp(x) }"))
    with pytest.raises(OptionError, match="onnx"):
        layers(graph, "onnx")  # type: ignore[arg-type]


@pytest.mark.corpus
@pytest.mark.skipif(not REPORTS.is_file(), reason=f"the shared measurements are absent ({REPORTS})")
def test_convolutional_models_have_the_layers_that_ai_hub_reports() -> None:
    models = {p.stem for p in GRAPHS.glob("*.onnx")}
    convolutional = {m for m in models if not any(t in m for t in ("bert", "vit", "whisper"))}
    reported: dict[tuple[str, Style], int] = {}
    with REPORTS.open(encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f):
            style: Style | None = {"tflite": "tflite", "qnn_dlc": "qnn_dlc"}.get(row["runtime"])  # type: ignore[assignment]
            if row["model"] in convolutional and style and row["precision"] == "float" and row["layers_total"]:
                reported.setdefault((row["model"], style), int(row["layers_total"]))
    errors: dict[str, list[float]] = {"tflite": [], "qnn_dlc": []}
    for (model, style), known in sorted(reported.items()):
        if sum(model == m for m, _ in reported) and known < 400:  # the larger ones repeat the same blocks
            errors[style].append(abs(layers(standard(load(GRAPHS / f"{model}.onnx")), style) - known) / known)
    assert all(len(found) > 20 and statistics.median(found) <= 0.02 for found in errors.values())
    assert max(max(found) for found in errors.values()) < 0.15
