"""From a scenario to what the simulator serves: which jobs come, and the commands of their parts at every level and context."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from hetsched.app.contexts import parts_of
from hetsched.app.guessing import guessing_of
from hetsched.app.language import PlannedLanguage
from hetsched.app.levels import LEAST, SHORT_CONTEXT
from hetsched.app.planned import Planned
from hetsched.app.scenario import Chat, Scenario
from hetsched.app.workload_files import read_workload
from hetsched.errors import OptionError
from hetsched.policies import SAVER

if TYPE_CHECKING:
    from hetsched_simulations.jobs import Jobs, Part, Parts, Script
    from hetsched_simulations.scripts import Conversation
    from hetsched_simulations.workload import Command


def jobs_of(planned: Planned, others: Mapping[int, Planned], scenario: Scenario) -> Jobs | None:
    """What a run of the plan is about; None: one inference after another, or one a period.

    Raises:
        OptionError: the scenario does not fit the plan.
    """
    from hetsched_simulations.jobs import Jobs, middles

    level = planned.deployment.entries[planned.entry].level
    plans = {level: planned, **others}
    if isinstance(planned, PlannedLanguage):
        batch = planned.deployment.model.dims.get("batch", 1)
        script, chats = _conversation(planned, scenario), {n: p for n, p in plans.items() if isinstance(p, PlannedLanguage)}
        return Jobs(script, parts_of(chats, middles(script.window)), scenario.deadline_s, batch, level)
    if scenario.chat is not None:
        raise OptionError(f"the plan of {planned.graph.name!r} has no prompt and answer to chat with: plan a language model with --prompt")
    s = scenario
    if s.workload is None and not (s.think_s or s.poisson or s.queue):
        return None
    return Jobs(_inferences(planned, scenario), _parts(plans), scenario.deadline_s, level=level)


def _inferences(planned: Planned, s: Scenario) -> Script:
    from hetsched_simulations.scripts import Arrivals, Loop, periodic, poisson

    if s.duration_s is None and s.workload is None:
        raise OptionError("random arrivals, queues and time to think are of many inferences: give a duration")
    if s.workload is not None:
        rows = read_workload(s.workload)
        told = next((a for a in rows if a.prompt is not None or a.generate is not None), None)
        if told is not None:
            raise OptionError(f"the workload {s.workload} has prompts, and the plan of {planned.graph.name!r} has none: leave them out")
        return Arrivals([a.time for a in rows], s.queue)
    if s.period_s is None:
        return Loop(s.think_s)
    duration = s.duration_s or 0.0
    return Arrivals(poisson(s.period_s, duration, s.seed) if s.poisson else periodic(s.period_s, duration), s.queue)


def _conversation(planned: PlannedLanguage, s: Scenario) -> Conversation:
    from hetsched_simulations.scripts import Conversation, Said, periodic, poisson

    asked, chat = planned.asked, s.chat or Chat()
    room = asked.prompt + asked.generate
    prompt, generate, window = chat.prompt or asked.prompt, chat.generate or asked.generate, chat.window or room
    if window > room:
        raise OptionError(f"a window of {window} tokens is more than the plan has room for ({room}): plan with a larger --generate")
    if prompt + generate > window:
        raise OptionError(f"a turn of {prompt} + {generate} tokens does not fit into a window of {window}: give --chat shorter ones")
    said = None
    if s.workload is not None:
        said = tuple(Said(a.time, a.prompt or prompt, a.generate or generate, a.past) for a in read_workload(s.workload))
    elif s.period_s is not None:
        duration = s.duration_s or 0.0
        times = poisson(s.period_s, duration, s.seed) if s.poisson else periodic(s.period_s, duration)
        said = tuple(Said(t, prompt, generate) for t in times)
    short = dict.fromkeys((LEAST, SAVER), min(window, SHORT_CONTEXT))
    return Conversation(window, prompt, generate, s.think_s, chat.turns, short, said, guessing_of(asked.speculation, s.seed))


def single_turn(planned: PlannedLanguage, scenario: Scenario) -> str | None:
    """A sentence where every turn of a chat begins a conversation, because a second one would not fit; None: it is wanted, or it fits."""
    chat, asked = scenario.chat, planned.asked
    if chat is None or chat.turns == 1 or scenario.workload is not None:
        return None
    room = asked.prompt + asked.generate
    turn, window = (chat.prompt or asked.prompt) + (chat.generate or asked.generate), chat.window or room
    if 2 * turn <= window:
        return None
    has = f"the window has {window} tokens" if window < room else f"the plan has room for {room} tokens"
    return (
        f"every turn begins a new conversation: {has}, and two turns of {turn} need {2 * turn} (give --chat shorter turns"
        f"{' or a larger window' if window < room else f', or plan with --generate {2 * turn - asked.prompt} or more'})"
    )


def _parts(plans: Mapping[int, Planned]) -> Parts:
    from hetsched_simulations.workload import commands_of

    @cache
    def of(level: int, part: Part) -> tuple[Command, ...]:
        return commands_of(plans[level].table, *plans[level].placement)

    return of
