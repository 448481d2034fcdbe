"""The fits of CPUs, GPUs, language models and power: their data, their economy, and that the roofline takes over what was fitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hetsched.graph import Graph
from hetsched.soc_files import load_soc
from hetsched_cost_models import accuracy_processors, build_table
from hetsched_cost_models.fit import power, processor_families, processor_form, processors
from hetsched_cost_models.fit.language_data import rates
from hetsched_cost_models.fit.processor_data import Row, chips, graphs, published, rows
from hetsched_cost_models.fit.processor_fit import FOLDS, KINDS, Fitted, fit, folds, half_width
from hetsched_cost_models.fit.processor_form import ANE_BANDWIDTH, DEPTH_HALF, Stack, cores_of_row
from hetsched_cost_models.parameters import FITTED as FOLDER
from hetsched_cost_models.parameters import family_of, read_parameters
from hetsched_cost_models.roofline import queue_rates

STORED = read_parameters(FOLDER / processors.FILE)


def _row(**changed: object) -> Row:
    return replace(next(r for r in rows() if r.unit == "cpu" and r.chip == "qcs6490" and r.precision == "f32"), **changed)  # type: ignore[arg-type]


def _values(name: str) -> dict[str, float]:
    return {n: float(v["value"]) for n, v in STORED[name].items()}


def test_every_row_has_a_chip_and_a_network_and_every_source_is_named() -> None:
    assert len(rows()) > 600
    for r in rows():
        assert r.chip in chips(), r
        assert r.model in graphs() or r.model in published(), r
        assert r.seconds > 0
        assert r.source


def test_every_rate_is_of_a_chip_with_a_file_and_has_a_source() -> None:
    known = chips()
    for r in rates():
        assert known[r.chip].has_file
        assert r.prefill + r.decode > 0 or r.j_per_token >= 0
        assert 2.0 <= r.bits <= 32.0
        assert r.source


def test_folds_hold_every_network_once() -> None:
    names = [f"net{i}" for i in range(23)]
    parts = folds(names)
    assert len(parts) == FOLDS
    assert sorted(n for p in parts for n in p) == sorted(names)


def test_threads_take_the_fastest_cores_that_they_may_use() -> None:
    chip = chips()["snapdragon-855"]
    big = cores_of_row(_row(chip="snapdragon-855", threads=2, cores="big"), chip)
    assert [c.little for c in big] == [False, False]
    assert big[0].f32 > big[1].f32
    assert all(c.little for c in cores_of_row(_row(chip="snapdragon-855", threads=4, cores="little"), chip))
    assert len(cores_of_row(_row(chip="snapdragon-855", threads=0, cores="all"), chip)) == 8


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_fit_finds_the_parameters_that_made_its_rows(name: str) -> None:
    """Rows made by the form itself are predicted again, though the fit starts elsewhere."""
    kind = KINDS[name]
    found = [r for r in rows() if r.unit == name]
    truth = {n: prior * (1.4 if i % 2 else 0.8) for i, (n, (prior, _)) in enumerate(kind.priors.items())}
    seconds = np.exp(kind.form(Stack(found), truth))
    made = [replace(r, seconds=s) for r, s in zip(found, seconds.tolist(), strict=True)]
    stack = Stack(made)
    apart = kind.form(stack, kind.parameters(fit(kind, made))) - stack.log_measured
    assert np.median(np.abs(apart)) < 0.05


@pytest.mark.parametrize("name", ["gpu", "npu"])
def test_anyone_gets_the_stored_figures_again(name: str) -> None:
    """The quick fits; ``make fit`` repeats all of them."""
    kind = KINDS[name]
    values = kind.parameters(fit(kind, [r for r in rows() if r.unit == name]))
    text = (FOLDER / processors.FILE).read_text("utf-8").partition(f"\n{name}:\n")[2]
    for parameter, value in values.items():
        assert f"  {parameter}: {{value: {value:.4g}," in text


def test_more_work_is_never_faster() -> None:
    values = _values("cpu")
    stack = Stack([_row()])
    before = KINDS["cpu"].form(stack, values)
    stack.macs = stack.macs * 2.0
    assert KINDS["cpu"].form(stack, values) >= before


def test_the_roofline_takes_over_what_was_fitted() -> None:
    """The files of the families are what the stored fits make of them."""
    for name in ("adreno", "mali"):
        assert processor_families.gpu(_values("gpu"), name, _width(name)) == (FOLDER / f"{name}.yaml").read_text("utf-8")
    assert processor_families.ane(_values("npu"), ANE_BANDWIDTH, _width("ane")) == (FOLDER / "ane.yaml").read_text("utf-8")
    for name in ("cortex", "apple-cpu"):
        assert processor_families.cpu(_values("cpu"), name, _width(name)) == (FOLDER / f"{name}.yaml").read_text("utf-8")
    soc = load_soc("snapdragon-8-gen-3")
    cpu = family_of(soc.by_name["cpu"])
    assert cpu.depth_half == DEPTH_HALF
    assert cpu.op_s + 5e-6 == pytest.approx(_values("cpu")["op_s"] * _values("cpu")["pace/ort"], rel=1e-3)
    gpu = soc.by_name["gpu"]
    assert family_of(gpu).op_s + gpu.op_overhead_s.value == pytest.approx(_values("gpu")["op_s"], rel=1e-3)


def _width(name: str) -> float:
    return float(read_parameters(FOLDER / f"{name}.yaml")["parameters"]["half_width"]["all"]["value"])


def test_the_interval_holds_four_fifths_of_the_networks_left_out() -> None:
    """Networks weigh alike: the one whose rows are twice as far off as the others' is the tenth that may lie outside."""
    row = _row(seconds=1.0)
    made = [replace(row, model=f"net{i}") for i in range(10)]
    apart = np.array([0.1] * 4 + [0.2] * 5 + [0.9])
    kind = KINDS["cpu"]
    assert half_width(Fitted(kind, tuple(made), kind.start, apart)) == pytest.approx(0.2)
    assert half_width(Fitted(kind, tuple(made), kind.start, -3.0 * apart)) == pytest.approx(0.6)


def test_small_layers_leave_a_gpu_idle_and_ncnn_starts_slowly_on_phones() -> None:
    values, row = _values("gpu"), next(r for r in rows() if r.unit == "gpu" and r.engine == "ncnn" and r.chip == "snapdragon-888")
    form = KINDS["gpu"].form

    def seconds(changed: Row, **others: float) -> float:
        return float(np.exp(form(Stack([changed]), values | others))[0])

    assert seconds(row) > seconds(row, fill=1.0)
    assert seconds(row, **{"fixed_s/ncnn": 1.0}) - seconds(row) == pytest.approx(1.0 - values["fixed_s/ncnn"])
    laptop = replace(row, chip="snapdragon-x-elite")
    assert seconds(laptop, **{"fixed_s/ncnn": 1.0}) == seconds(laptop)


def test_more_cores_reach_less_than_the_sum_of_their_rates() -> None:
    soc = load_soc("snapdragon-8-gen-3")
    cpu = soc.by_name["cpu"]
    serial = family_of(cpu).serial_share
    assert serial is not None
    whole, n = sum(c.peak_ops_s["f32"].value for c in cpu.clusters), sum(len(c.cores) for c in cpu.clusters)
    assert queue_rates(soc, "cpu").peak_ops_s["f32"] == pytest.approx(whole / (1 + serial * (n - 1)))
    assert queue_rates(soc, "cpu:7").peak_ops_s["f32"] == pytest.approx(cpu.clusters[0].peak_ops_s["f32"].value)


def _seconds(row: Row, **changed: float) -> float:
    return float(np.exp(KINDS[row.unit].form(Stack([row]), _values(row.unit) | changed))[0])


def test_products_run_on_the_matrix_unit_and_in_int8_all_convolutions() -> None:
    def row(model: str, precision: str, chip: str = "apple-a19-pro") -> Row:
        return _row(model=model, chip=chip, engine="executorch", precision=precision, threads=1, cores="all")

    convolutions = row("unet_segmentation", "f32")
    assert _seconds(convolutions, sme=1e-3) < 1.3 * _seconds(convolutions, sme=1e3)
    for on_unit in (row("vit", "f32"), row("unet_segmentation", "i8")):
        assert _seconds(on_unit, sme=1e-3) > 100 * _seconds(on_unit, sme=1.0)
    without = row("vit", "f32", "tensor-g5")
    assert _seconds(without, sme=1e-3) == _seconds(without, sme=1.0)


def test_winograd_kernels_pay_more_with_more_channels() -> None:
    """By the multiplications that they save over ONNX Runtime's kernels, of which a network of 3 x 3 convolutions has as many."""
    ncnn = _row(model="vgg16", engine="ncnn")
    assert _seconds(ncnn, transform=1.0) < _seconds(ncnn)
    assert _seconds(replace(ncnn, engine="ort"), transform=1.0) == _seconds(replace(ncnn, engine="ort"))
    few, many = (_seconds(_row(model=m, engine="ncnn")) / _seconds(_row(model=m, engine="ort")) for m in ("quicksrnetlarge", "vgg16"))
    assert many < few


def test_ncnn_multiplies_in_float32_on_gpus_without_half_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(r for r in rows() if r.unit == "gpu" and r.engine == "ncnn" and r.chip == "snapdragon-835")
    before, other = _seconds(row), _seconds(replace(row, engine="tnn"))
    monkeypatch.setattr(processor_form, "_NO_HALF", ())
    assert _seconds(row) < before
    assert _seconds(replace(row, engine="tnn")) == other


def test_plans_of_ncnn_compute_floats_in_float16_on_cpus(graph_of: Callable[..., Graph]) -> None:
    shapes = {"x": (1, 256, 56, 56), "y": (1, 256, 56, 56)}
    graph = graph_of([("Conv", ["x", "w"], ["y"])], shapes | {"w": (256, 256, 1, 1)}, constants=("w",))
    soc = load_soc("snapdragon-8-gen-3")
    tables = {r: build_table(graph, soc, precision="float", runtime=r) for r in ("ncnn", "mnn")}
    cpu = {r: next(a for a, q in enumerate(t.alt_queue) if t.queues[q].kind == "cpu") for r, t in tables.items()}
    assert {r: tables[r].alt_precision[a] for r, a in cpu.items()} == {"ncnn": "f16", "mnn": "f32"}
    paces = family_of(soc.by_name["cpu"]).pace
    faster = tables["mnn"].compute_s[cpu["mnn"]] / paces["mnn"] / (tables["ncnn"].compute_s[cpu["ncnn"]] / paces["ncnn"])
    assert faster > 1.5


def test_power_grows_with_frequency() -> None:
    points, values = power.points(), _values("power")
    faster = replace(points, ghz=points.ghz * 1.1)
    assert np.all(power.log_milliwatts(faster, values) > power.log_milliwatts(points, values))


def test_the_fit_of_power_is_what_is_stored() -> None:
    values = power.named(power.fit(power.points()))
    assert values == {n: pytest.approx(v, rel=2e-3) for n, v in _values("power").items()}


def test_points_are_of_chips_with_a_file() -> None:
    found = list(accuracy_processors.points())
    assert len(found) > 200
    assert {p.unit for p in found} == {"cpu", "gpu", "all"}
    assert all(chips()[p.chip].has_file and p.predicted_s > 0 for p in found)
