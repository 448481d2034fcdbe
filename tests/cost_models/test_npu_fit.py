"""The fit of the NPU parameters: its data, its economy, that anyone gets the shipped file again, and that the table is what was fitted."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from hetsched.soc_files import load_soc
from hetsched_cost_models.fit import accuracy, dataset, intervals
from hetsched_cost_models.fit.__main__ import texts
from hetsched_cost_models.fit.accuracy import Fitted, fitted
from hetsched_cost_models.fit.dataset import BASE, CHIPS, RELEASE, Row, graphs, of_chip, operators, rows
from hetsched_cost_models.fit.form import Chip, Problem
from hetsched_cost_models.fit.priors import FITTED, FIXED
from hetsched_cost_models.fit.scores import score, weighted_quantile
from hetsched_cost_models.fit.solving import parameters
from hetsched_cost_models.parameters import FITTED as FOLDER
from hetsched_cost_models.parameters import family_of, read_parameters

SHARED = Path(__file__).parents[3] / "shared" / "models" / "aihub"
corpus = pytest.mark.corpus


@lru_cache(maxsize=1)
def _base() -> Fitted:
    return fitted(BASE)


def _row(seconds: float, model: str = "a", family: str = "f", precision: str = "float") -> Row:
    return Row("fit", model, family, precision, "qnn", False, BASE, RELEASE, seconds)


def test_the_rows_are_whole() -> None:
    assert {r.chipset for r in rows()} == set(CHIPS)
    assert {r.use for r in rows()} == {"fit", "validate"}
    assert all(r.model in graphs() and r.model in operators() and 1e-5 < r.seconds < 10 for r in rows())
    assert not {r.model for r in rows() if r.use == "fit"} & {r.model for r in rows() if r.use == "validate"}
    assert len(of_chip(BASE)) == 190


def test_anyone_gets_the_shipped_parameters_again() -> None:
    assert set(FITTED).isdisjoint(FIXED)
    for name, text in texts(_base()).items():
        import yaml

        again, shipped = yaml.safe_load(text), read_parameters(FOLDER / name)
        assert again["parameters"]["tiled"].keys() == shipped["parameters"]["tiled"].keys()
        for group in ("tiled", "pace", "half_width"):
            for key, figure in shipped["parameters"][group].items():
                assert again["parameters"][group][key]["value"] == pytest.approx(figure["value"], rel=0.03), (name, key)
        assert again["fitted_on"] == shipped["fitted_on"]
        assert again["parameters"]["operators"] == shipped["parameters"]["operators"]


def test_judged_parameters_saw_only_the_rows_for_fitting() -> None:
    shipped, judged = (read_parameters(FOLDER / n) for n in ("hexagon.yaml", "hexagon-judged.yaml"))
    only = [r for r in of_chip(BASE) if r.use == "fit"]
    assert judged["fitted_on"].startswith(f"fitted to {len(only)} rows of {len({r.model for r in only})} graphs")
    assert shipped["fitted_on"].startswith(f"fitted to {len(of_chip(BASE))} rows")
    assert shipped["fitted_parameters"] == judged["fitted_parameters"] == len(FITTED)


def test_the_goals_of_the_chip_that_was_fitted_are_met() -> None:
    found = [*accuracy.validation(_base()), *accuracy.families_left_out(_base())]
    assert len(found) == 8
    assert [f.what for f in found if not f.met] == []


def test_other_chips_are_predicted_from_their_published_figures() -> None:
    found = {f.what: f.met for f in accuracy.chip_left_out(_base(), "qualcomm-snapdragon-8-elite-for-galaxy")}
    assert len(found) == 3
    assert all(found.values())


def test_the_fit_does_not_move_when_families_are_renamed_or_rows_reordered() -> None:
    mine = of_chip(BASE)
    chip, p = Chip.of(BASE), parameters(np.zeros(len(FITTED)))
    forward = Problem(mine, chip).log_predicted(p)
    assert Problem(mine[::-1], chip).log_predicted(p)[::-1] == pytest.approx(forward, rel=1e-12)


def test_scores_count_models_alike() -> None:
    found = score([_row(1.0, "a"), _row(2.0, "a"), _row(4.0, "b")], np.log([1.1, 2.2, 2.0]))
    assert found.mean == pytest.approx((0.1 + 0.5) / 2)
    assert found.within_quarter == pytest.approx(0.5)
    assert found.bias == pytest.approx((1.1 * 0.5) ** 0.5 - 1)
    assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.ones(3), 0.5) == 2.0


def test_rank_correlation_shares_ranks_among_equals() -> None:
    three = [_row(1.0, "a"), _row(2.0, "b"), _row(3.0, "c")]
    assert score(three, np.array([1.0, 2.0, 9.0])).spearman == pytest.approx(1.0)
    assert score(three, np.array([1.0, 1.0, 9.0])).spearman == pytest.approx(0.866, abs=1e-3)


def test_intervals_hold_families_that_they_were_not_calibrated_on() -> None:
    """Errors of a family are alike: intervals calibrated by row would be too narrow."""
    random = np.random.default_rng(0)
    seen = [_row(1.0, f"m{i}", f"f{i // 5}") for i in range(200)]
    predicted = np.repeat(random.normal(0.0, 0.2, 40), 5) + random.normal(0.0, 0.02, 200)
    assert 0.72 <= intervals.coverage(seen, predicted) <= 0.88
    widths = intervals.half_widths(seen, predicted)
    assert widths["all"] == pytest.approx(1.28 * 0.2, rel=0.3)
    assert intervals.slow_path(seen, predicted) > widths["all"]
    assert intervals.other_chips([(seen, predicted), (seen, 2 * predicted), (seen, 9 * predicted)]) == pytest.approx(2 * widths["all"])


@corpus
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared graphs")
@pytest.mark.parametrize("model", ["mobilenet_v2", "googlenet", "yolov8_det"])
def test_the_table_says_what_was_fitted(model: str) -> None:
    """One graph wholly on the NPU: the sum over the table's operators is the form that the parameters were fitted in."""
    from hetsched.app.inputs import load, targeted
    from hetsched_cost_models import build_table
    from hetsched_cost_models.benchmark import on_queue
    from hetsched_cost_models.fit.extract import work_of_file

    path = SHARED / f"{model}.onnx"
    table, sizes, types = work_of_file(path)
    assert np.array_equal(table, graphs()[model].table), "the committed work of the graph is what the cost model counts"
    assert sizes == (graphs()[model].inputs, graphs()[model].outputs)
    assert types == operators()[model]
    soc = load_soc(dataset.CHIPS[BASE])
    family = family_of(soc.by_name["npu"])
    p = {**family.tiled, **{f"fixed/{r}/{k}": v for r, row in family.fixed_s.items() for k, v in row.items()}}
    p["pace/litert"] = family.pace["litert"]
    graph = targeted(load(path), soc)
    for runtime in ("qnn", "litert", "ort"):
        for precision in ("float", "w8a8", *(("w8a16",) if runtime != "litert" else ())):  # TFLite has no rows of 16-bit activations
            row = Row("fit", model, "", precision, runtime, runtime == "ort", BASE, RELEASE, 1.0)
            expected = float(np.exp(Problem([row], Chip.of(BASE)).log_predicted(p))[0])
            got = on_queue(build_table(graph, soc, precision=precision, runtime=runtime), "npu")
            assert got == pytest.approx(expected, rel=0.01), (runtime, precision)
