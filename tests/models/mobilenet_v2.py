"""MobileNetV2 (224 x 224, 1000 classes) with seeded He-initialised weights and measured batch-norm statistics.

Zero or tiny random weights prove nothing about numerics, so every batch norm's mean and variance are measured on
seeded inputs: activations then have the spread that a trained net's have. Architecture: Sandler et al., 2018, table 2.
The INT8 variant is made of the batch-norm-folded float one by ONNX Runtime's static quantization (per channel,
QDQ, calibrated on the same kind of inputs).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[np.float32]
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
EPSILON = 1e-5


def images(seed: int, count: int, size: int = 224) -> Array:
    """Smooth seeded images ``[count, 3, size, size]`` of roughly unit variance (white noise would vanish in pooling)."""
    rng = np.random.default_rng(seed)
    coarse = rng.standard_normal((count, 3, size // 16, size // 16)).astype(np.float32)
    fine = rng.standard_normal((count, 3, size, size)).astype(np.float32)
    return (np.repeat(np.repeat(coarse, 16, 2), 16, 3) + 0.5 * fine).astype(np.float32)


class _Builder:
    """Collects nodes and initializers. ``norm`` says how a batch norm is written: as statistics, as BN, or folded."""

    def __init__(self, norm: str, stats: dict[str, tuple[Array, Array]] | None = None) -> None:
        self.norm, self.stats = norm, stats or {}
        self.rng = np.random.default_rng(2018)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.extra: list[str] = []

    def const(self, name: str, value: npt.NDArray[np.generic]) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def node(self, kind: str, inputs: list[str], name: str, **attrs: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{name}/{kind}", **attrs))
        return name

    def conv(self, x: str, name: str, cin: int, cout: int, kernel: int, stride: int, groups: int, relu: bool) -> str:
        fan_in = cin // groups * kernel * kernel
        w = (self.rng.standard_normal((cout, cin // groups, kernel, kernel)) * np.sqrt(2.0 / fan_in)).astype(np.float32)
        gamma = self.rng.uniform(0.6, 1.4, cout).astype(np.float32)
        beta = self.rng.uniform(-0.3, 0.6, cout).astype(np.float32)
        pad = kernel // 2
        attrs = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
        if self.norm == "fold":
            mean, var = self.stats[name]
            scale = (gamma / np.sqrt(var + EPSILON)).astype(np.float32)
            inputs = [x, self.const(f"{name}.w", w * scale[:, None, None, None]), self.const(f"{name}.b", beta - mean * scale)]
            y = self.node("Conv", inputs, f"{name}.conv", **attrs)
        else:
            y = self.node("Conv", [x, self.const(f"{name}.w", w)], f"{name}.conv", **attrs)
            y = self.batch_norm(y, name, gamma, beta)
        if relu:
            y = self.node("Clip", [y, "zero", "six"], f"{name}.relu6")
        return y

    def batch_norm(self, x: str, name: str, gamma: Array, beta: Array) -> str:
        if self.norm == "bn":
            mean, var = self.stats[name]
            inputs = [x] + [self.const(f"{name}.{k}", v) for k, v in (("g", gamma), ("be", beta), ("m", mean), ("v", var))]
            return self.node("BatchNormalization", inputs, f"{name}.bn", epsilon=EPSILON)
        mean_ = self.node("ReduceMean", [x, "nhw"], f"{name}.mean", keepdims=1)
        centred = self.node("Sub", [x, mean_], f"{name}.centred")
        square = self.node("Mul", [centred, centred], f"{name}.square")
        var_ = self.node("ReduceMean", [square, "nhw"], f"{name}.var", keepdims=1)
        self.extra += [mean_, var_]
        spread = self.node("Sqrt", [self.node("Add", [var_, "eps"], f"{name}.vare")], f"{name}.std")
        y = self.node("Div", [centred, spread], f"{name}.norm")
        y = self.node("Mul", [y, self.const(f"{name}.g", gamma.reshape(1, -1, 1, 1))], f"{name}.scaled")
        return self.node("Add", [y, self.const(f"{name}.be", beta.reshape(1, -1, 1, 1))], f"{name}.shifted")

    def model(self) -> onnx.ModelProto:
        self.const("zero", np.array(0, np.float32))
        self.const("six", np.array(6, np.float32))
        if self.norm == "measure":
            self.const("nhw", np.array([0, 2, 3], np.int64))
            self.const("eps", np.array(EPSILON, np.float32))
        x = self.conv("input", "stem", 3, 32, 3, 2, 1, True)
        channels, index = 32, 0
        for expand, out, repeat, first_stride in STAGES:
            for i in range(repeat):
                stride, name, hidden = (first_stride if i == 0 else 1), f"block{index}", channels * expand
                y = self.conv(x, f"{name}.expand", channels, hidden, 1, 1, 1, True) if expand > 1 else x
                y = self.conv(y, f"{name}.depthwise", hidden, hidden, 3, stride, hidden, True)
                y = self.conv(y, f"{name}.project", hidden, out, 1, 1, 1, False)
                x = self.node("Add", [x, y], f"{name}.add") if stride == 1 and channels == out else y
                channels, index = out, index + 1
        x = self.conv(x, "head", channels, 1280, 1, 1, 1, True)
        x = self.node("GlobalAveragePool", [x], "pool")
        x = self.node("Flatten", [x], "flat", axis=1)
        w = (self.rng.standard_normal((1000, 1280)) / np.sqrt(1280)).astype(np.float32)
        b = (self.rng.standard_normal(1000) * 0.1).astype(np.float32)
        self.node("Gemm", [x, self.const("classifier.w", w), self.const("classifier.b", b)], "logits", transB=1)
        batch: str | int = "batch" if self.norm != "fold" else 1
        graph = helper.make_graph(
            self.nodes, "mobilenet_v2",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, 3, 224, 224])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 1000])]
            + [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in self.extra],
            self.weights,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, producer_name="hetsched-tests")


def measured_statistics() -> dict[str, tuple[Array, Array]]:
    """Mean and variance of every convolution's output over seeded images, layer after layer in one run."""
    import onnxruntime as ort

    builder = _Builder("measure")
    session = ort.InferenceSession(builder.model().SerializeToString(), providers=["CPUExecutionProvider"])
    values = session.run(builder.extra, {"input": images(1, 4)})
    pairs = zip(builder.extra[::2], values[::2], values[1::2], strict=True)
    return {name.removesuffix(".mean"): (mean.reshape(-1), var.reshape(-1)) for name, mean, var in pairs}


def write(dest: Path) -> None:
    """Write ``mobilenet_v2.onnx`` (float, with batch norms) and ``mobilenet_v2_qdq.onnx`` (INT8 QDQ) into ``dest``."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.batches = iter([{"input": images(seed, 1)} for seed in range(2, 10)])

        def get_next(self) -> dict[str, Array] | None:
            return next(self.batches, None)

    stats = measured_statistics()
    part = dest / "mobilenet_v2.part"
    part.write_bytes(_Builder("bn", stats).model().SerializeToString())
    part.replace(dest / "mobilenet_v2.onnx")
    folded, quantized = dest / "folded.part", dest / "mobilenet_v2_qdq.part"
    folded.write_bytes(_Builder("fold", stats).model().SerializeToString())
    quantize_static(
        folded, quantized, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    folded.unlink()
    quantized.replace(dest / "mobilenet_v2_qdq.onnx")
