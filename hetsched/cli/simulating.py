"""``hetsched simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.app.chatting import SimulatedChat
from hetsched.app.language_simulating import SimulatedLanguage
from hetsched.app.sharing import SimulatedTogether
from hetsched.app.simulating import Scenario, Simulated, simulate, simulate_policies
from hetsched.cli import options, traces
from hetsched.cli.progress import progress
from hetsched.files import is_plan_file


def simulate_one(
    target: Path,
    scenario: Scenario,
    policy: str,
    *,
    soc: str | None,
    precision: str,
    dim: Sequence[str],
    level: int,
    trace: Path | None,
    quiet: bool,
    what_if: Sequence[str] = (),
) -> Simulated | SimulatedLanguage | SimulatedChat:
    """Simulate a plan file, or plan a model first."""
    traces.check_name(trace, (target, soc))
    with progress("simulating", quiet) as bar:
        asked = options.plan_options(target, precision, dim, what_if=what_if)
        result = simulate(target, soc, scenario, policy=policy, progress=bar.share, level=level, **asked)
    traces.write(result.trace, trace)
    return result


def show_simulation(result: Simulated | SimulatedLanguage | SimulatedChat, trace: Path | None) -> None:
    """Print how it went."""
    from hetsched.cli import show_chat, show_language, show_simulation

    if isinstance(result, SimulatedLanguage):
        show_language.simulation(result, trace)
    elif isinstance(result, SimulatedChat):
        show_chat.chat(result, trace)
    else:
        show_simulation.simulation(result, trace)


def compare_policies(
    target: Path, policies: Sequence[str], scenario: Scenario, level: int, trace: Path | None, *, quiet: bool, only_models: Sequence[object]
) -> None:
    """Simulate a plan file under several policies; a trace each, with the policy in its name."""
    from hetsched.cli import show, show_policies
    from hetsched.errors import OptionError

    if not is_plan_file(target) or any(v and v != "auto" for v in only_models):
        raise OptionError(f"several policies are compared on a plan file with levels, and {target} is none, or has options of a model")
    twice = next((p for k, p in enumerate(policies) if p in policies[:k]), None)
    if twice is not None:
        raise OptionError(f"--policy {twice} is given twice: once is enough")
    paths = {p: None if trace is None else trace.with_stem(f"{trace.stem}-{p}") for p in policies}
    for path in paths.values():
        traces.check_name(path, (target,))
    with progress("simulating", quiet) as bar:
        found = simulate_policies(target, policies, scenario, level, bar.share)
    for policy, run in found.items():
        traces.write(run.trace, paths[policy])
    summaries = {p: r.summary() | {"trace_path": None if paths[p] is None else str(paths[p])} for p, r in found.items()}
    if quiet:
        show.json({"policies": summaries})
    else:
        show_policies.comparison(next(iter(found.values())).planned.soc.name, summaries)


def simulate_shared(
    targets: Sequence[Path], scenario: Scenario, asked: tuple[Sequence[float], Sequence[str], Sequence[int]], policies: Sequence[str],
    level: int, trace: Path | None, *, quiet: bool, only_models: Sequence[object],
) -> SimulatedTogether:  # fmt: skip
    """Simulate plan files side by side; ``asked`` are the rates, deadlines and priorities."""
    from hetsched.app.sharing import simulate_together
    from hetsched.errors import OptionError

    if any(v and v != "auto" for v in only_models) or not all(is_plan_file(t) for t in targets):
        raise OptionError("several models are simulated from their plan files: make these with 'hetsched plan -o FOLDER --rate'")
    if len(policies) > 1:
        raise OptionError("several plans are simulated under one policy at a time: give one --policy")
    traces.check_name(trace, targets)
    rates, deadlines, priorities = asked
    deadlines_s = [options.seconds(d, "--deadline") or 0.0 for d in deadlines]
    with progress("simulating", quiet) as bar:
        found = simulate_together(
            targets, scenario, rates=rates, deadlines_s=deadlines_s, priorities=priorities, level=level,
            policy=policies[0] if policies else "static", progress=bar.share,
        )  # fmt: skip
    traces.write(found.trace, trace)
    return found
