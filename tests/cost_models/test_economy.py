"""Few fitted parameters for what was measured, counted from the files and rows themselves."""

from __future__ import annotations

from hetsched_cost_models.fit import dataset, economy, processors
from hetsched_cost_models.fit.language_data import rates
from hetsched_cost_models.fit.placement import judged
from hetsched_cost_models.fit.processor_data import rows
from hetsched_cost_models.fit.processor_fit import KINDS
from hetsched_cost_models.language_rates import FILE as LANGUAGE
from hetsched_cost_models.parameters import FITTED as FOLDER
from hetsched_cost_models.parameters import read_parameters

COUNTS = {c.what: c for c in economy.counts()}


def test_at_most_one_parameter_for_eight_models_precisions_and_chips() -> None:
    """All fits together, each chip once, and those of latencies each: NPUs, and CPUs, GPUs and Neural Engines."""
    assert all(len(case) == len(("model", "precision", "chip")) for case in COUNTS["all fits"].cases)
    for what in ("all fits", "Snapdragon NPUs", "CPU, GPU, Neural Engine", "placement"):
        assert economy.GOAL * COUNTS[what].parameters <= len(COUNTS[what].cases), what
    assert [f.met for f in economy.figures() if f.met is not None] == [True, True]


def test_every_parameter_of_the_shipped_files_is_counted() -> None:
    stored = read_parameters(FOLDER / processors.FILE)
    assert COUNTS["CPU, GPU, Neural Engine"].parameters == sum(len(stored[n]) for n in KINDS)
    language = read_parameters(FOLDER / LANGUAGE)
    assert COUNTS["language models"].parameters == sum(len(language[phase]) for phase in ("decode", "prefill"))
    assert COUNTS["Snapdragon NPUs"].parameters == read_parameters(FOLDER / "hexagon.yaml")["fitted_parameters"]
    assert COUNTS["placement"].parameters > len(judged())
    assert COUNTS["all fits"].parameters == sum(c.parameters for c in COUNTS.values()) - COUNTS["all fits"].parameters


def test_cases_are_rows_that_may_be_fitted_each_once() -> None:
    npu = {(r.model, r.precision, r.chipset) for r in dataset.rows() if r.use == "fit"}
    assert COUNTS["Snapdragon NPUs"].cases == npu
    assert {c[0] for c in COUNTS["CPU, GPU, Neural Engine"].cases} == {r.model for r in rows()}
    assert {c[0] for c in COUNTS["language models"].cases} <= {r.model for r in rates()}
    assert len(COUNTS["all fits"].cases) < sum(len(c.cases) for w, c in COUNTS.items() if w != "all fits")
