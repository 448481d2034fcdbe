"""What the roofline takes over from the processor fits: parameter files of ``cortex``, ``apple-cpu``, ``adreno``, ``mali`` and ``ane``.

The roofline's reference runtime is ONNX Runtime on CPUs and LiteRT on GPUs; others are paces relative to it. INT8 shares are those with
matrix instructions. Mali's rates are the Adreno's times a factor. On the Neural Engine every class has one
rate, which includes what matrix work reads and writes, and weights stream under all compute.
"""

from __future__ import annotations

from collections.abc import Mapping

from hetsched_cost_models.fit.processor_form import DEPTH_HALF, WINDOW

#: Runtimes of plans -> engines of the fits.
_CPU_RUNTIMES = {"ncnn": "", "mnn": "mnn", "tnn": "tnn", "paddle": "paddle", "executorch": "executorch"}
#: Runtimes that compute floats in float16 on cores that have it, as the fits' rows of them did.
_HALF = ("ncnn",)
#: What most SoC files say an operator costs; the fits hold it together with what runtimes add.
_CPU_OP_S, _GPU_OP_S = 5e-6, 8e-6
_GPU_RUNTIMES = ("ncnn", "mnn", "tnn", "paddle")
#: Float16 over float32 peak of the GPUs of the fits' SoC files: the vector rate is fitted against the former, used with the latter.
_HALF_OVER_FLOAT = 1.55


def cpu(p: Mapping[str, float], family: str, half_width: float) -> str:
    """Parameters of ``cortex`` (Arm cores and Oryon) or ``apple-cpu``; ``half_width``: of the 80 % interval, in the logarithm."""
    pace, factor = p["pace/ort"], p.get(f"rate/{family}", 1.0) / p["pace/ort"]
    shares = {c: factor * p[n] for c, n in _CLASSES.items()}
    integer = p["i8"] * p["i8/mmla"]
    # The fitted share of float16 holds more than arithmetic; plans do not go beyond the peak for it.
    narrow = {f"{c}/f16": min(v * p["f16"], max(v, 1.0)) for c, v in shares.items()} | {f"{c}/i8": v * integer for c, v in shares.items()}
    lines = _utilisation(shares | narrow)
    lines += _scalars({"vector_bytes_per_op": factor * p["vector"], "op_s": pace * p["op_s"] - _CPU_OP_S, "serial_share": p["serial"]})
    lines += _scalars({"depth_half": DEPTH_HALF, "depthwise_window": WINDOW})
    lines.append(f"  half: [{', '.join(_HALF)}]")
    paces = {r: (p[f"pace/{e}"] if e else 1.0) / pace for r, e in _CPU_RUNTIMES.items()}
    return _text([*lines, "  pace:", *(f"    {n}: {_figure(v)}" for n, v in paces.items()), *_interval(half_width)])


def gpu(p: Mapping[str, float], family: str, half_width: float) -> str:
    """Parameters of Adreno or Mali; ``half_width``: of the 80 % interval, in the logarithm."""
    factor = p.get(f"rate/{family}", 1.0)
    shares = {c: factor * p["depthwise" if n == "grouped" else n] for c, n in _CLASSES.items()}
    vector = {"vector_bytes_per_op": factor * p["vector"] * _HALF_OVER_FLOAT, "depth_half": p["k0"], "op_s": p["op_s"] - _GPU_OP_S}
    vector["fill_macs"] = p["fill"]
    paces = [f"    {r}: {_figure(p.get(f'pace/{r}', 1.0))}" for r in _GPU_RUNTIMES]
    fixed = {r: dict.fromkeys(("float", "w8a8"), p[n]) for r, n in (("default", "fixed_s"), ("ncnn", "fixed_s/ncnn"))}
    return _text([*_utilisation(shares), *_scalars(vector), *_fixed(fixed), "  pace:", *paces, *_interval(half_width)])


def ane(p: Mapping[str, float], bandwidth_bytes_s: float, half_width: float) -> str:
    """Parameters of Apple's Neural Engine.

    Args:
        p: the fit's.
        bandwidth_bytes_s: at which its fixed cost holds.
        half_width: of the 80 % interval, in the logarithm.
    """
    scalars = {"weight_share": 1.0, "weights_ahead": 1.0, "fixed_bandwidth": bandwidth_bytes_s}
    fixed = {"default": {"float": p["fixed_s"], "w8a8": p["fixed_s"] * p["fixed/i8"]}}
    vector = ["  vector:", f"    matrix: {_figure(0.0)}"]
    return _text([*_utilisation(dict.fromkeys(_CLASSES, p["rate"])), *vector, *_scalars(scalars), *_fixed(fixed), *_interval(half_width)])


#: Classes of the roofline -> those of the fits.
_CLASSES = {
    "conv1x1": "conv1x1", "conv": "conv", "grouped": "grouped", "depthwise": "depthwise", "gemm": "conv1x1", "matmul": "conv1x1",
}  # fmt: skip


def _figure(value: float) -> str:
    return f'{{value: {value:.4g}, source: "public measurements, make fit: fitted/processors.yaml"}}'


def _fixed(seconds: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Launch plus signal by runtime (``default``: of those without their own) and kind of precision."""
    rows = {r: ", ".join(f"{k}: {_figure(v)}" for k, v in row.items()) for r, row in seconds.items()}
    return ["  fixed_s:", *(f"    {r}: {{{row}}}" for r, row in rows.items())]


def _interval(half_width: float) -> list[str]:
    return ["  half_width:", f'    all: {{value: {half_width:.4f}, source: "make fit: conformal on networks left out"}}']


def _utilisation(shares: Mapping[str, float]) -> list[str]:
    return ["  utilisation:", *(f"    {n}: {_figure(v)}" for n, v in shares.items())]


def _scalars(values: Mapping[str, float]) -> list[str]:
    return [f"  {n}: {_figure(v)}" for n, v in values.items()]


def _text(lines: list[str]) -> str:
    return "\n".join(["# Written by `make fit` (hetsched_cost_models.fit.processors) from processors.yaml.", "parameters:", *lines]) + "\n"
