"""Makes the data of the CPU, GPU and Neural Engine fits: ``python -m hetsched_cost_models.fit.extract_processors [MEASUREMENTS [MODELS]]``.

From the public measurements the rows whose network has a graph (or published counts) and whose chip is known; from the graphs their
work, one line an operator. Networks without a graph of their own are derived from a like one, as :func:`_derived` says.
"""

from __future__ import annotations

import csv
import importlib
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hetsched.graph import Graph, Op
from hetsched_cost_models.fit.processor_data import COLUMNS, GRAPHS_FILE, ROW_FIELDS, ROWS_FILE, chips, published
from hetsched_cost_models.fit.rows_file import write_rows
from hetsched_cost_models.operators import CLASSES
from hetsched_cost_models.work import FloatArray, work_of

MEASUREMENTS, MODELS = Path("../shared/measurements"), Path("../shared/models")
_AIHUB = (
    "deeplabv3_resnet50 efficientnet_b0 efficientnet_v2_s fastsam_s fastsam_x fcn_resnet50 googlenet inception_v3 mnasnet05 mobilenet_v2 "
    "mobilenet_v3_large mobilenet_v3_small quicksrnetlarge quicksrnetmedium quicksrnetsmall resnet101 resnet18 resnet50 resnext101 "
    "resnext50 sesr_m5 squeezenet1_1 unet_segmentation vit wideresnet50 xlsr "
    "yolov10_det yolov11_det yolov11_seg yolov3 yolov5 yolov8_det yolov8_seg"
)
_FILES = {n: f"aihub/{n}.onnx" for n in _AIHUB.split()} | {
    "mnasnet1_0": "graphs/mnasnet1_0.onnx",
    "deeplabv3_mobilenet_v3_large": "graphs/deeplabv3_mobilenet_v3_large.onnx",
    "inception_v3_299": "graphs/inception_v3.onnx",
    "mobilenet_v1": "real/coral__mobilenet_v1_1.0_224_quant_embedding_extractor.tflite",
    "densenet121": "real/onnx_light__light_densenet121.onnx",
    "shufflenet_v1": "real/onnx_light__light_shufflenet.onnx",
    "vgg19": "real/onnx_light__light_vgg19.onnx",
}
#: ncnn's names and the graphs that they are.
_NCNN = {
    "squeezenet": "squeezenet1_1", "mobilenet": "mobilenet_v1", "mnasnet": "mnasnet1_0", "mobilenet_v3": "mobilenet_v3_large",
    "shufflenet": "shufflenet_v1", "vgg16": "vgg16", "squeezenet_int8": "squeezenet1_1", "mobilenet_int8": "mobilenet_v1",
    "vgg16_int8": "vgg16",
}  # fmt: skip
#: Part of ncnn's device name -> chip, and the precision of ``fp16/fp32 auto`` there (fp16 where the cores compute in it).
_NCNN_CHIPS = {
    "Snapdragon 410": ("snapdragon-410", "f32"), "Snapdragon 810": ("snapdragon-810", "f32"), "Snapdragon 821": ("snapdragon-821", "f32"),
    "Snapdragon 835": ("snapdragon-835", "f32"), "Snapdragon 660": ("snapdragon-660", "f32"), "Kirin 970": ("kirin-970", "f32"),
    "Snapdragon 675": ("snapdragon-675", "f32"), "Snapdragon 765G": ("snapdragon-765g", "f16"), "855+": ("snapdragon-855-plus", "f16"),
    "8 Gen 2": ("snapdragon-8-gen-2", "f16"), "Snapdragon 888": ("snapdragon-888", "f16"), "Dimensity 9300": ("dimensity-9300", "f16"),
    "X Elite": ("snapdragon-x-elite", "f16"), "13-inch, M1": ("apple-m1", "f16"), "13-inch, M3": ("apple-m3", "f16"),
}  # fmt: skip
_VISION = {
    "MobileNetV1": "mobilenet_v1", "MobileNetV3_large_x1_0": "mobilenet_v3_large", "MobileNetV3_small_x1_0": "mobilenet_v3_small",
    "MobileNetV2_224": "mobilenet_v2", "DenseNet 121": "densenet121", "MnasNet": "mnasnet1_0", "ResNet50 v2": "resnet50",
    "SqueezeNet 1.1": "squeezenet1_1", "vgg16": "vgg16", "Inception v3": "inception_v3_299", "mobilenet_v1_int8": "mobilenet_v1",
    "Mobilenet_v1_int8": "mobilenet_v1",
}  # fmt: skip
_VISION_CHIPS = {"RK3399": "rk3399", "Kirin970": "kirin-970"}
#: AI Hub's chipsets -> SoC files and chips; QCS8250 is the Snapdragon 865's silicon, QCS8450 the 8 Gen 1's.
_HUB = {
    "qcs6490-proxy": "qcs6490", "qcs8250-proxy": "snapdragon-865", "snapdragon-x-elite": "snapdragon-x-elite",
    "snapdragon-8gen2": "snapdragon-8-gen-2", "snapdragon-8gen3": "snapdragon-8-gen-3", "snapdragon-8-elite": "snapdragon-8-elite",
    "qcs8550-proxy": "qcs8550", "qcs8450-proxy": "snapdragon-8-gen-1", "sa8295p": "sa8295p", "sa8775p": "sa8775p",
    "qcs9075-proxy": "qcs9075", "sa8775p-proxy": "sa8775p",
}  # fmt: skip
#: Networks of Apple's and ExecuTorch's rows with one file version and a known size -> model here.
_APPLE = {
    "MobileNetv2-1.0": "mobilenet_v2", "EFFICIENTNET_V2_S": "efficientnet_v2_s_384", "DEEPLAB_V3_RESNET50": "deeplabv3_resnet50",
    "FCN_RESNET50": "fcn_resnet50", "DEEPLAB_V3_MOBILENET_V3_LARGE": "deeplabv3_mobilenet_v3_large",
    "LRASPP_MOBILENET_V3_LARGE": "lraspp_mobilenet_v3_large", "CLIP_VIT_BASE_PATCH32_IMAGE": "clip_vit_b32_image",
}  # fmt: skip
#: Chips of ExecuTorch's rows -> threads. React Native ExecuTorch takes half of the fast cores that it recognises and one more; of an
#: iPhone's it recognises none (its times follow one core's clock from the A15 to the A19 Pro, and doubled on the A15 when that came).
_EXECUTORCH = {"Apple A19 Pro": "1", "Tensor G5": "4"}
_Row = dict[str, str]


def _read(path: Path) -> Iterator[_Row]:
    with path.open(encoding="utf-8", newline="") as f:
        yield from csv.DictReader(f)


def _row(model: str, chip: str, engine: str, unit: str, precision: str, threads: str, cores: str, seconds: float, source: str) -> _Row:
    values = (model, chip, engine, unit, precision, threads, cores, f"{seconds:.6g}", source)
    return dict(zip(ROW_FIELDS, values, strict=True))


def ncnn(folder: Path) -> Iterator[_Row]:
    """The median of the fastest runs of every setting; on a GPU only float models, since integers run on the CPU there."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for r in _read(folder / "cpu_gpu_ncnn.csv"):
        chip = next((c for part, c in _NCNN_CHIPS.items() if part in r["device"] and "Jetson" not in r["device"]), None)
        integer, cpu = r["model"].endswith("int8"), r["processor"] == "CPU"
        if chip is None or r["model"] not in _NCNN or (integer and not cpu):
            continue
        precision = "i8" if integer else chip[1] if cpu else "f16"
        cores = {"0": "all", "1": "little", "2": "big"}[r["powersave"]] if cpu else ""
        found[_NCNN[r["model"]], chip[0], "cpu" if cpu else "gpu", precision, r["num_threads"] if cpu else "", cores].append(
            float(r["min_ms"])
        )
    for (model, chip_name, unit, precision, threads, cores), times in sorted(found.items()):
        yield _row(model, chip_name, "ncnn", unit, precision, threads, cores, statistics.median(times) / 1e3, "ncnn benchmark/README.md")


def vision(folder: Path) -> Iterator[_Row]:
    """TNN, MNN and Paddle-Lite."""
    known = chips()
    for r in _read(folder / "cpu_gpu_vision.csv"):
        chip = _VISION_CHIPS.get(r["soc"], r["soc"].lower().replace(" ", "-"))
        unit = "cpu" if r["processor"].startswith("CPU") else "gpu" if r["processor"].startswith("GPU") else ""
        engine = r["engine"].split()[0].lower().replace("paddle-lite", "paddle")
        if r["model"] not in _VISION or chip not in known or not unit or "NNAPI" in r["engine"] or engine == "tflite" or not r["mean_ms"]:
            continue
        half = known[chip].cores[0].f16 > known[chip].cores[0].f32 and r["precision"].startswith("fp16")
        precision = "f16" if unit == "gpu" else "i8" if "int8" in r["precision"] + r["model"] else "f16" if half else "f32"
        threads = re.search(r"CPU (\d)", r["processor"])
        count = "" if unit == "gpu" else threads.group(1) if threads else "1"
        yield _row(
            _VISION[r["model"]],
            chip,
            engine,
            unit,
            precision,
            count,
            "big" if unit == "cpu" else "",
            float(r["mean_ms"]) / 1e3,
            r["source"],
        )


def aihub(folder: Path, work: dict[str, FloatArray]) -> Iterator[_Row]:
    """AI Hub's rows that no NPU took part in. Integer models with more than two layers an operator ran unfused, in float: ``mix``.

    A float row on a CPU that would need more than all cores' peak was measured at another resolution than the graph's.
    """
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for r in _read(folder / "cpu_gpu_mixed_snapdragon_aihub.csv"):
        chip = _HUB.get(r["chipset"].removeprefix("qualcomm-"))
        resized = r["model"] == "deeplabv3_resnet50" and r["input_resolution"] == "224x224"
        if chip is None or r["layers_npu"] != "0" or r["model"] not in work or resized or "htp" in r["runtime"]:
            continue
        unit = "cpu" if r["primary_compute_unit"] == "CPU" else "gpu"
        engine = {"onnx": "ort", "tflite": "tflite", "qnn": "qnn-gpu"}.get(r["runtime"], "ort" if unit == "cpu" else "dml")
        precision = "f16" if unit == "gpu" else {"w8a8": "i8", "fp32": "f32", "float": "f32"}.get(r["precision"], "mix")
        if precision == "i8" and int(r["layers_cpu"]) > 2 * len(work[r["model"]]):
            precision = "mix"
        macs = float(work[r["model"]][:, COLUMNS.index("macs")].sum())
        if precision == "f32" and 2e3 * macs / float(r["inference_time_ms"]) > sum(c.f32 for c in chips()[chip].cores):
            continue
        found[r["model"], chip, engine, unit, precision].append(float(r["inference_time_ms"]))
    for (model, chip_name, engine, unit, precision), times in sorted(found.items()):
        threads, cores = ("0", "big") if unit == "cpu" else ("", "")
        yield _row(model, chip_name, engine, unit, precision, threads, cores, statistics.median(times) / 1e3, "AI Hub perf.yaml")


def apple(folder: Path) -> Iterator[_Row]:
    """Rows of the newest version of their source, of networks with a graph or published counts: Apple's, and ExecuTorch's on CPUs."""
    for r in _read(folder / "apple_and_other_vision.csv"):
        name, _, variant = r["model"].partition(" (")
        model = _APPLE.get(name, name if name in published() else None)
        cpu = r["processor"] == "CPU"
        outdated = "docs version" in r["note"] and "HEAD" not in r["note"]
        if model is None or outdated or re.search(r"palettization|pruning|Weight-only", r["precision"]):
            continue
        if r["soc"] not in _EXECUTORCH if cpu else not r["soc"].startswith("Apple") or "FP32" in variant:
            continue
        chip = r["soc"].lower().replace(" ", "-")
        precision = "i8" if re.search(r"int8|INT8|activation", r["precision"] + variant) else "f32" if cpu else "f16"
        yield _row(
            model, chip, "executorch" if cpu else "coreml", "cpu" if cpu else "npu", precision,
            _EXECUTORCH[r["soc"]] if cpu else "", "all" if cpu else "", float(r["latency_ms"]) / 1e3, r["source"],
        )  # fmt: skip


def work_of_file(path: Path) -> FloatArray:
    """[operators, columns] work of a model."""
    inputs = importlib.import_module("hetsched.app.inputs")  # by name: this program stands above all floors
    passes = importlib.import_module("hetsched.passes")
    graph = passes.standard(inputs.load(path))
    w = work_of(graph)
    columns = {
        "cls": w.cls, "kind": w.kind, "macs": w.macs, "n": w.n, "k": w.k, "elements": w.float_elems + w.quant_elems + w.extra_elems,
        "weights": w.weight_float_elems + w.weight_quant_elems, "winograd": np.array([_winograd(graph, op) for op in graph.ops]),
    }  # fmt: skip
    return np.column_stack([columns[c] for c in COLUMNS]).astype(np.float64)


def _winograd(graph: Graph, op: Op) -> bool:
    """Whether Winograd kernels apply: a convolution of 3 x 3 over all channels, without stride or dilation."""
    if op.type not in ("Conv", "FusedConv", "QLinearConv") or op.attr_int("group", 1) > 1:
        return False
    weights = graph.tensors[op.inputs[3 if op.type == "QLinearConv" else 1]].shape
    return weights[2:] == (3, 3) and all(set(op.attr_ints(n, (1,))) == {1} for n in ("strides", "dilations"))


def _derived(work: dict[str, FloatArray]) -> None:
    """Networks without a graph of their own.

    VGG16 is VGG19 without the last convolution of its three last blocks; EfficientNetV2-S at 384 has (384 / 224)^2 the positions; LR-ASPP
    has DeepLabV3's backbone and one 1 x 1 convolution to 128 channels; CLIP's ViT-B/32 is a ViT-B/16 of 50 instead of 197 tokens.
    """
    vgg19, kind = work.pop("vgg19"), COLUMNS.index("kind")
    convolutions = np.flatnonzero(vgg19[:, COLUMNS.index("macs")] > 0)
    work["vgg16"] = np.delete(vgg19, convolutions[[7, 11, 15]], axis=0)
    work["mobilenet_v1"][work["mobilenet_v1"][:, COLUMNS.index("macs")] == 0, kind] = 0  # its layouts are the loader's, not the network's
    larger = work["efficientnet_v2_s"].copy()
    larger[:, [COLUMNS.index("macs"), COLUMNS.index("elements")]] *= (384 / 224) ** 2
    work["efficientnet_v2_s_384"] = larger
    work["lraspp_mobilenet_v3_large"] = _lraspp(work["deeplabv3_mobilenet_v3_large"])
    work["clip_vit_b32_image"] = _clip(work["vit"])


def _lraspp(deeplab: FloatArray) -> FloatArray:
    """The backbone ends before the first convolution from 960 to 256 channels."""
    macs, n, k, elements, weights = (COLUMNS.index(c) for c in ("macs", "n", "k", "elements", "weights"))
    head = int(np.flatnonzero((deeplab[:, k] == 960) & (deeplab[:, n] == 256))[0])
    last = deeplab[head].copy()
    positions = last[macs] / (960 * 256)
    last[[macs, n, elements, weights]] = positions * 960 * 128, 128, positions * (960 + 128), 960 * 128
    return np.vstack([deeplab[:head], last])


def _clip(vit: FloatArray) -> FloatArray:
    """Attention goes with the square of the tokens; patches of 32 x 32 have four times the weights, and a quarter of the positions."""
    cls, macs, k, elements, weights = (COLUMNS.index(c) for c in ("cls", "macs", "k", "elements", "weights"))
    out, share = vit.copy(), 50 / 197
    patches, attention = np.isin(out[:, cls], [CLASSES.index("conv"), CLASSES.index("conv3x3")]), out[:, cls] == CLASSES.index("matmul")
    out[:, macs] *= np.where(patches, 1.0, np.where(attention, share**2, share))
    out[:, elements] *= share
    out[patches, k] *= 4.0
    out[patches, weights] *= 4.0
    return out


def main(arguments: Sequence[str]) -> int:
    """Write the two files."""
    folders = [Path(a) for a in arguments]
    measurements = folders[0] if folders else MEASUREMENTS
    models = folders[1] if len(folders) > 1 else MODELS
    work = {name: work_of_file(models / file) for name, file in _FILES.items()}
    _derived(work)
    np.savez_compressed(GRAPHS_FILE, **{name: table.astype(np.float32) for name, table in sorted(work.items())})  # type: ignore[arg-type]
    rows = [*ncnn(measurements), *vision(measurements), *aihub(measurements, work), *apple(measurements)]
    write_rows(ROWS_FILE, ROW_FIELDS, rows)
    print(f"{len(rows)} rows, {len(work)} graphs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
