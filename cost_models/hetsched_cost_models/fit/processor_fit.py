"""Least squares of the processor forms: every network counts alike, parameters stay near their priors, cross-validated by network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hetsched_cost_models.fit.intervals import COVERAGE
from hetsched_cost_models.fit.processor_data import Row
from hetsched_cost_models.fit.processor_form import Stack, cpu, gpu, npu
from hetsched_cost_models.fit.scores import weighted_quantile
from hetsched_cost_models.work import FloatArray

Form = Callable[[Stack, Mapping[str, float]], FloatArray]
#: Errors beyond this, in the logarithm, count ever less.
_SOFT, _RIDGE, _STEPS = 1.5, 0.03, 25
FOLDS = 10


@dataclass(frozen=True, slots=True)
class Kind:
    """A form with its parameters: name -> (prior, what it is). All are positive and fitted as logarithms."""

    name: str
    form: Form
    priors: dict[str, tuple[float, str]] = field(default_factory=dict)

    def parameters(self, x: FloatArray) -> dict[str, float]:
        """By name, from logarithms."""
        return {n: float(np.exp(v)) for n, v in zip(self.priors, x, strict=True)}

    @property
    def start(self) -> FloatArray:
        """Logarithms of the priors."""
        return np.log([prior for prior, _ in self.priors.values()])


KINDS = {
    "cpu": Kind("cpu", cpu, {
        "conv1x1": (0.6, "share of the peak: 1x1 convolutions and products"), "conv": (0.6, "k x k convolutions"),
        "transform": (3.0, "transforms around Winograd kernels, in passes over what a convolution reads and writes"),
        "depthwise": (0.2, "depthwise convolutions, as if of 3 x 3"), "depthwise/executorch": (0.2, "the same in XNNPACK"),
        "grouped": (0.2, "grouped convolutions"), "vector": (0.4, "bytes a second over the float32 rate"),
        "op_s": (3e-6, "seconds an operator"), "serial": (0.1, "share of work that more threads do not speed up"),
        "little": (0.9, "share of an in-order core's peak over others'"), "rate/apple-cpu": (1.0, "Apple cores' share over others'"),
        "sme": (0.5, "share of a matrix unit's peak"),
        "f16": (1.0, "share of the float16 peak over float32's"), "i8": (0.7, "share of the INT8 peak over float32's"),
        "i8/dot": (1.0, "the same with dot products"), "i8/mmla": (0.5, "with matrix instructions"),
        "pace/ort": (1.2, "ONNX Runtime over ncnn"), "pace/tnn": (1.0, "TNN over ncnn"), "pace/paddle": (1.0, "Paddle-Lite over ncnn"),
        "pace/mnn": (1.0, "MNN over ncnn"), "pace/executorch": (1.0, "ExecuTorch (XNNPACK) over ncnn"),
        "pace/mix": (1.5, "quantized storage, float arithmetic"),
    }),
    "gpu": Kind("gpu", gpu, {
        "conv1x1": (0.2, "share of the float16 peak: 1x1 convolutions and products"), "conv": (0.25, "k x k convolutions"),
        "depthwise": (0.05, "depthwise and grouped convolutions"), "k0": (16.0, "depth at which half of the share is reached"),
        "vector": (0.02, "bytes a second over the rate"), "op_s": (4e-5, "seconds an operator"),
        "fill": (1e6, "multiply-accumulates for which a matrix operation leaves the GPU idle"),
        "fixed_s": (1e-3, "seconds an inference"), "fixed_s/ncnn": (3e-3, "the same through ncnn on phones"),
        "rate/mali": (1.0, "Mali's rate over Adreno's"),
        "rate/apple-gpu": (1.0, "Apple's over Adreno's"),
        "pace/dml": (1.0, "DirectML over LiteRT"), "pace/mnn": (1.0, "MNN"), "pace/ncnn": (2.0, "ncnn (Vulkan)"),
        "pace/paddle": (1.5, "Paddle-Lite"), "pace/qnn-gpu": (1.5, "QNN's GPU backend"),
    }),
    "npu": Kind("npu", npu, {
        "rate": (0.25, "share of the peak"), "fixed_s": (3e-4, "seconds an inference at 42 GB/s"),
        "fixed/i8": (0.6, "of them with INT8 activations"),
    }),
}  # fmt: skip


def fit(kind: Kind, rows: Sequence[Row]) -> FloatArray:
    """Logarithms of the parameters; from the priors, so that a fit without some rows knows nothing of them."""
    from scipy.optimize import least_squares

    stack, prior = Stack(rows), kind.start
    count = Counter(r.model for r in rows)
    root = np.sqrt([1.0 / count[r.model] for r in rows])

    def residuals(x: FloatArray) -> FloatArray:
        error = kind.form(stack, kind.parameters(x)) - stack.log_measured
        return np.concatenate([root * np.arctan(_SOFT * error) / _SOFT, _RIDGE * (x - prior)])

    return np.asarray(least_squares(residuals, prior, max_nfev=_STEPS, xtol=1e-4, ftol=1e-4).x)


@dataclass(frozen=True, eq=False)
class Fitted:
    """The fit to all rows of a kind, and the logarithms of what fits without a row's network predict."""

    kind: Kind
    rows: tuple[Row, ...]
    shipped: FloatArray
    left_out: FloatArray

    @property
    def errors(self) -> FloatArray:
        """|predicted - measured| / measured, of networks left out."""
        return np.abs(np.expm1(self.left_out - np.log([r.seconds for r in self.rows])))


def half_width(fit: Fitted) -> float:
    """Half-width, in the logarithm, of the 80 % interval: conformal on networks left out, every network counting alike."""
    apart = np.abs(fit.left_out - np.log([r.seconds for r in fit.rows]))
    count = Counter(r.model for r in fit.rows)
    weights = np.array([1.0 / count[r.model] for r in fit.rows])
    return weighted_quantile(apart, weights, min(1.0, COVERAGE * (len(count) + 1) / len(count)))


def folds(models: Sequence[str]) -> list[frozenset[str]]:
    """The networks in :data:`FOLDS` parts (fewer if there are fewer), dealt in the order of their names."""
    names = sorted(set(models))
    return [frozenset(names[i::FOLDS]) for i in range(min(FOLDS, len(names)))]


def fitted(kind: Kind, rows: Sequence[Row]) -> Fitted:
    """Fit on all rows, and on those of nine tenths of the networks in turn."""
    shipped = fit(kind, rows)
    predicted = np.zeros(len(rows))
    for part in folds([r.model for r in rows]):
        out = [i for i, r in enumerate(rows) if r.model in part]
        x = fit(kind, [r for r in rows if r.model not in part])
        predicted[out] = kind.form(Stack([rows[i] for i in out]), kind.parameters(x))
    return Fitted(kind, tuple(rows), shipped, predicted)
