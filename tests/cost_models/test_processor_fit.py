"""The fits of CPUs, GPUs, language models and power: their data, their economy, and that the roofline takes over what was fitted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched.soc_files import load_soc
from hetsched_cost_models import accuracy_processors
from hetsched_cost_models.fit import language_fit, power, processor_families, processors
from hetsched_cost_models.fit.language_data import Rate, rates
from hetsched_cost_models.fit.processor_data import Row, chips, graphs, published, rows
from hetsched_cost_models.fit.processor_fit import FOLDS, KINDS, Fitted, fit, folds, half_width
from hetsched_cost_models.fit.processor_form import ANE_BANDWIDTH, Stack, cores_of_row
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
        made = processor_families.gpu(_values("gpu"), name, _width(name))
        _same(made, (FOLDER / f"{name}.yaml").read_text("utf-8"))
    made = processor_families.ane(_values("npu"), ANE_BANDWIDTH, _width("ane"))
    _same(made, (FOLDER / "ane.yaml").read_text("utf-8"))
    _same(processor_families.cortex(_values("cpu"), _values("decode"), _width("cortex")), (FOLDER / "cortex.yaml").read_text("utf-8"))
    soc = load_soc("snapdragon-8-gen-3")
    assert family_of(soc.by_name["cpu"]).depth_half == pytest.approx(_values("cpu")["k0"], rel=1e-3)
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


def _same(made: str, stored: str) -> None:
    """Equal but for rounding: the stored fits have four digits."""
    ours, theirs = made.splitlines(), stored.splitlines()
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if "value" not in a:
            assert a == b
            continue
        assert a.split("{")[0] == b.split("{")[0]
        assert _number(a) == pytest.approx(_number(b), rel=2e-3)


def _number(line: str) -> float:
    return float(line.partition("value: ")[2].partition(",")[0])


def test_threads_that_share_work_run_at_the_slowest_cores_rate() -> None:
    soc = load_soc("snapdragon-8-gen-3")
    cpu = soc.by_name["cpu"]
    family = family_of(cpu)
    assert family.thread_exponent is not None
    slowest = min(c.peak_ops_s["f32"].value / len(c.cores) for c in cpu.clusters)
    n = sum(len(c.cores) for c in cpu.clusters)
    assert queue_rates(soc, "cpu").peak_ops_s["f32"] == pytest.approx(slowest * n**family.thread_exponent)


def test_language_groups_are_left_out_whole_and_reach_stays_within_the_bandwidth() -> None:
    assert _values("decode")["reach"] <= 1.0
    one: Rate = rates()[0]
    assert replace(one, bits=one.bits + 1).group == one.group
    assert replace(one, chip="apple-m1").group != one.group


def test_more_bits_decode_slower() -> None:
    one = next(r for r in rates() if r.decode > 0)
    values = _values("decode")
    few, many = (language_fit.Language([replace(one, bits=b)], "decode").log_predicted(values)[0] for b in (4.0, 8.0))
    assert few < many


def test_power_grows_with_frequency() -> None:
    points, values = power.points(), _values("power")
    faster = replace(points, ghz=points.ghz * 1.1)
    assert np.all(power.log_milliwatts(faster, values) > power.log_milliwatts(points, values))


def test_the_fit_of_power_is_what_is_stored() -> None:
    values = power.named(power.fit(power.points()))
    assert values == {n: pytest.approx(v, rel=2e-3) for n, v in _values("power").items()}


def test_a_parameter_for_eight_triples() -> None:
    stored = sum(len(STORED[n]) for n in (*KINDS, "decode", "prefill"))
    seen = {(r.model, r.precision, r.chip, r.unit) for r in rows()} | {(r.model, f"{r.bits:g}", r.chip, r.unit) for r in rates()}
    assert 8 * stored <= len(seen)


def test_points_are_of_chips_with_a_file() -> None:
    found = list(accuracy_processors.points())
    assert len(found) > 200
    assert {p.unit for p in found} == {"cpu", "gpu", "all"}
    assert all(chips()[p.chip].has_file and p.predicted_s > 0 for p in found)
