"""Limits on latency, energy, power, accuracy loss and segments: kept by every solver, exact on small graphs, bounds below."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched.errors import InfeasibleError, OptionError
from hetsched.partition import Budget, Problem, solve
from hetsched.partition.lagrangian import Prices, bound_within_limits
from hetsched.partition.limits import Limits
from hetsched.partition.timing import Costs, figures

FIGURES = ("latency_s", "energy_j", "power_w", "loss", "segments")


def figure(f, name):
    return f.energy_j / f.latency_s if name == "power_w" else getattr(f, name)


def with_loss(table, seed):
    r = np.random.default_rng(seed)
    return replace(table, loss=np.round(r.uniform(0, 1, len(table.alt_queue)), 2) * (np.array(table.alt_precision) == "w8a8"))


@pytest.mark.parametrize("limited", FIGURES)
@pytest.mark.parametrize("objective", ["latency", "energy"])
@pytest.mark.parametrize("seed", range(2))
def test_the_best_plan_within_a_limit_is_found_and_no_bound_is_above_it(random_table, every_plan, seed, objective, limited):
    table = with_loss(random_table(seed, 4 + seed % 2, 2, crossing_us=(5, 60)[seed % 2], density=0.4, support=0.8), seed)
    c = Costs(table)
    plans = every_plan(c)
    own = {"latency": "latency_s", "energy": "energy_j"}[objective]
    if own == limited:
        return
    free = min(plans, key=lambda f: figure(f, own))
    least = min(figure(f, limited) for f in plans)
    limit = least + 0.3 * (figure(free, limited) - least)  # the free optimum breaks it, something keeps it
    limit = max(1, round(limit)) if limited == "segments" else limit
    best = min(figure(f, own) for f in plans if figure(f, limited) <= limit * (1 + 1e-9))
    problem = Problem(table, objective, limits=Limits(**{limited: limit}))
    answer = solve(problem, "auto", time_limit_s=1 if limited == "power_w" else 5)
    assert figures(c, answer.order, answer.alternative) in problem.limits
    assert answer.bound <= best * (1 + 1e-9) <= answer.objective * (1 + 2e-9)
    if limited != "power_w":  # which CP-SAT is not told
        assert answer.objective == pytest.approx(best, rel=1e-5)
        assert answer.status == "optimal"
    for price in (0.0, 0.1, 1.0, 10.0):
        assert bound_within_limits(problem, c, Prices(**{limited: price * best / limit}), Budget()) <= best


@pytest.mark.parametrize("solver", ["frontier-dp", "ilp", "auto", "heft", "vendor", "single:cpu0"])
def test_what_a_solver_answers_keeps_the_limits_or_it_says_which_it_breaks(random_table, solver):
    kept = 0
    for seed in range(4):
        table = with_loss(random_table(seed, 14, crossing_us=30, density=0.3), seed)
        free = solve(Problem(table), "frontier-dp")
        f = figures(Costs(table), free.order, free.alternative)
        for limits in (
            Limits(energy_j=0.9 * f.energy_j),
            Limits(loss=0.5 * f.loss, segments=3),
            Limits(power_w=0.8 * f.energy_j / f.latency_s),
        ):
            problem = Problem(table, limits=limits)
            try:
                answer = solve(problem, solver, time_limit_s=0.3)
            except InfeasibleError as e:
                assert "within the limits" in str(e)
                continue
            assert figures(Costs(table), answer.order, answer.alternative) in limits
            assert answer.bound <= answer.objective
            kept += 1
    assert kept >= (10 if solver in ("ilp", "auto") else 0)


def test_prices_tighten_the_bound_of_a_limited_plan(random_table):
    raised = 0
    for seed in range(6):
        table = random_table(seed, 12, 2, crossing_us=5, density=0.3, chain=True)
        free = solve(Problem(table, "energy"), "auto")
        fast = solve(Problem(table, "latency"), "auto")
        c = Costs(table)
        slow = figures(c, free.order, free.alternative).latency_s
        limit = 0.5 * (slow + fast.objective)
        if limit >= slow * 0.99:
            continue
        answer = solve(Problem(table, "energy", limits=Limits(latency_s=limit)), "auto", time_limit_s=0.3)
        assert free.bound <= answer.bound <= answer.objective
        raised += answer.bound > free.objective * (1 + 1e-6)
    assert raised


def test_absurd_limits_are_refused():
    for name in FIGURES:
        with pytest.raises(OptionError, match="limit on the"):
            Limits(**{name: -1})
    with pytest.raises(OptionError, match="accuracy loss is -1: give 0 or more"):
        Limits(loss=-1)
    with pytest.raises(OptionError, match="at least one segment"):
        Limits(segments=0)
    assert Limits(loss=0.0)
    assert not Limits()


def test_a_limit_that_nothing_keeps_says_how_far_the_best_is(random_table):
    with pytest.raises(InfeasibleError, match=r"latency .* s of at most 1e-09 s|no plan is within the limits"):
        solve(Problem(random_table(1, 5), limits=Limits(latency_s=1e-9)), "auto")


@pytest.mark.parametrize("objective", ["latency", "period", "energy"])
def test_no_bound_counts_on_a_short_latency_where_power_is_limited(random_table, every_plan, objective):
    """A limit on power rewards long latencies, and neither the period nor the energy grows with those."""
    table = random_table(8, 4, 2, crossing_us=60, density=0.4, support=0.8, chain=True)
    c = Costs(table)
    plans = every_plan(c)
    limit = float(np.quantile([f.energy_j / f.latency_s for f in plans], 0.1))
    fitting = [f for f in plans if f.energy_j / f.latency_s <= limit]
    best = min(getattr(f, {"latency": "latency_s", "period": "period_s", "energy": "energy_j"}[objective]) for f in fitting)
    longest = max(f.latency_s for f in fitting)
    for latency, limits in ((0.0, Limits(power_w=limit)), (1.0, Limits(power_w=limit, latency_s=longest))):
        for price in np.geomspace(1e-3, 1e2, 25) / limit:
            prices = Prices(power_w=float(price), latency_s=latency)
            assert bound_within_limits(Problem(table, objective, limits=limits), c, prices, Budget()) <= best * (1 + 1e-9)


@pytest.mark.parametrize("solver", ["frontier-dp", "ilp", "auto"])
def test_prices_are_searched_once(random_table, monkeypatch, solver):
    from hetsched.partition import lagrangian

    calls: list[int] = []
    search = lagrangian.search
    monkeypatch.setattr(lagrangian, "search", lambda *a: calls.append(1) or search(*a))
    table = random_table(3, 12, 2, crossing_us=20, precisions=1)
    free = solve(Problem(table), "frontier-dp")
    energy = figures(Costs(table), free.order, free.alternative).energy_j
    answer = solve(Problem(table, limits=Limits(energy_j=1.2 * energy)), solver, time_limit_s=1)
    assert 0 < answer.bound <= answer.objective
    assert len(calls) == 1
