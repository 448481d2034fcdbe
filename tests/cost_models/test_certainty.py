"""Which interval a prediction has, and the note on operators that no fitted graph had."""

from __future__ import annotations

from collections.abc import Callable
from math import exp

import pytest

from hetsched.graph import Graph
from hetsched.soc_files import load_soc
from hetsched.socs import SoC
from hetsched_cost_models import build_table
from hetsched_cost_models.certainty import slow_path_note, unseen_types
from hetsched_cost_models.parameters import family_of

Build = Callable[..., Graph]
CHIP = "snapdragon-8-gen-3"
WIDTH = family_of(load_soc(CHIP).by_name["npu"]).half_width


def _graph(graph_of: Build, second: str = "Relu") -> Graph:
    shapes = {"x": (1, 32, 16, 16), "w": (32, 32, 1, 1), "a": (1, 32, 16, 16), "y": (1, 32, 16, 16)}
    return graph_of([("Conv", ["x", "w"], ["a"]), (second, ["a"], ["y"])], shapes, constants=("w",))


def _span(case: str) -> tuple[float, float]:
    return pytest.approx((exp(-WIDTH[case]), exp(WIDTH[case])))


def test_the_interval_is_that_of_the_precision(graph_of: Build) -> None:
    for precision in ("float", "w8a8"):
        assert build_table(_graph(graph_of), load_soc(CHIP), precision=precision).interval == _span(precision)


def test_other_chips_have_only_published_figures(graph_of: Build) -> None:
    table = build_table(_graph(graph_of), load_soc("snapdragon-8-elite"))
    assert table.interval == _span("other_chip")
    assert WIDTH["other_chip"] > WIDTH["float"]


def test_operators_that_no_fitted_graph_had_widen_it_and_are_named(graph_of: Build) -> None:
    """A tangent runs on the NPU; no graph of the fit holds one."""
    plain, strange = (build_table(_graph(graph_of, kind), load_soc(CHIP)) for kind in ("Relu", "Tan"))
    assert "Tan" not in family_of(load_soc(CHIP).by_name["npu"]).operators
    assert "npu" in {strange.queues[strange.alt_queue[a]].kind for a in strange.alternatives(1)}
    assert strange.interval == _span("unseen")
    assert [n for n in strange.notes if "slow-path risk" in n and "Tan" in n]
    assert plain.interval == _span("float")
    assert not [n for n in plain.notes if "slow-path" in n], "arithmetic is like arithmetic that was seen"


def test_small_operators_are_no_risk(graph_of: Build) -> None:
    g = graph_of([("Sin", ["x"], ["y"])], {"x": (1, 8), "y": (1, 8)})
    large = graph_of([("Sin", ["x"], ["y"])], {"x": (64, 64), "y": (64, 64)})
    assert unseen_types(g, g.ops, frozenset()) == ()
    assert unseen_types(large, large.ops, frozenset()) == ("Sin",)
    assert unseen_types(large, large.ops, frozenset({"Sin"})) == ()


def test_the_note_names_at_most_four() -> None:
    assert "a, b, c, d and 2 more" in slow_path_note(("a", "b", "c", "d", "e", "f"))


def test_a_chip_without_a_fit_keeps_its_files_interval(graph_of: Build, soc: SoC) -> None:
    assert build_table(_graph(graph_of), soc).interval == soc.interval


@pytest.mark.parametrize("kinds", [("cpu",), ("cpu", "gpu")])
def test_without_an_npu_the_least_sure_of_the_others_decides(graph_of: Build, kinds: tuple[str, ...]) -> None:
    """No note on operators, since the fits of CPUs and GPUs list none."""
    soc = load_soc(CHIP)
    without = soc.model_copy(update={"processors": tuple(p for p in soc.processors if p.kind in kinds),
                                     "queues": {n: t for n, t in soc.queues.items() if t.startswith(kinds)}})  # fmt: skip
    table = build_table(_graph(graph_of, "Tan"), without)
    width = max(family_of(soc.by_name[kind]).half_width["all"] for kind in kinds)
    assert table.interval == pytest.approx((exp(-width), exp(width)))
    assert not [n for n in table.notes if "slow-path" in n]


def test_an_npu_without_a_fit_keeps_the_interval_of_its_file(graph_of: Build) -> None:
    soc = load_soc("dimensity-9300")
    assert build_table(_graph(graph_of), soc).interval == soc.interval
