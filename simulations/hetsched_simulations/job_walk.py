"""A walk through jobs: what comes until some time, by how long each repetition of a part takes in the present state.

Looking ahead changes nothing: a walk has a place of its own, which becomes that of the run once its time has passed. Stages of jobs
that last :data:`~hetsched_simulations.thermal_loop.MIN_STEP_S` or longer, such as the turns of a chat, and pauses of that length end
a walk.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.flow import SOON_S
from hetsched_simulations.jobs import ANSWERING, Done, Job, Part, Piece, Script, Stage
from hetsched_simulations.thermal_loop import MIN_STEP_S


@dataclass(slots=True)
class Place:
    """Where in its jobs a run is."""

    script: Script
    job: Job | None = None
    begin_s: float = 0.0
    """When the job begins, perhaps later than now."""
    idle_s: float = 0.0
    """Since when the phone waits for it."""
    stage: int = 0
    count: int = 0
    """Repetitions of the stage that are done."""
    phase_s: float = 0.0
    """Position in the next one, at the present clocks."""
    begun_s: float = 0.0
    """When that one began."""
    first_s: float = 0.0
    over: bool = False

    @property
    def part(self) -> Part | None:
        """What is at work, or comes next; None: no job is known."""
        return None if self.job is None else self.job.stages[self.stage].part


@dataclass(slots=True)
class Walk:
    """What happens until ``end_s``."""

    place: Place
    end_s: float
    seconds: dict[Part | None, float] = field(default_factory=dict)
    """By part; None: idle."""
    done: list[Done] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    begun: list[tuple[Part, float]] = field(default_factory=list)
    ask: bool = False
    """It ends with a repetition after which the policy is due."""

    def spend(self, part: Part | None, seconds: float) -> None:
        """So long on a part."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds
        self.end_s += seconds


class JobWalk:
    """The jobs of a script, one after another."""

    def __init__(self, script: Script, each_s: Callable[[Part], float], naps: Sequence[float] = ()) -> None:
        """A walk at its beginning.

        Args:
            script: which job comes next.
            each_s: seconds of a repetition of a part in the present state.
            naps: of the queues, from :func:`naps`.
        """
        self.place = Place(copy.copy(script))
        self._each_s, self._naps = each_s, naps
        self._level, self._due_s = 0, math.inf

    def ahead(self, now_s: float, limit_s: float, level: int, due_s: float = math.inf) -> Walk:
        """What happens from now on until the limit, the end of what lasts, or the first repetition that ends at ``due_s`` or later."""
        self._level, self._due_s = level, due_s
        place = copy.copy(self.place)
        walk = Walk(place, now_s)
        while walk.end_s < limit_s - 1e-12 and not walk.ask:
            if place.job is None and not place.over:
                self._next(place, walk.end_s)
            if place.over:
                walk.spend(None, limit_s - walk.end_s)
            elif walk.end_s < place.begin_s - 1e-12:
                walk.spend(None, min(place.begin_s, limit_s) - walk.end_s)
                if place.begin_s - place.idle_s >= MIN_STEP_S:
                    break
            elif self._worked(walk, place, limit_s):
                break
        return walk

    def _next(self, place: Place, now_s: float) -> None:
        if place.script is self.place.script:
            place.script = copy.copy(place.script)
        place.job = place.script.next(now_s, self._level)
        place.over = place.job is None
        if place.job is not None:
            place.job = self._woken(place.job, max(place.job.arrived_s - now_s, 0.0))
            place.idle_s, place.begin_s = now_s, max(now_s, place.job.arrived_s)
            place.stage, place.count, place.phase_s, place.begun_s = 0, 0, 0.0, place.begin_s

    def _woken(self, job: Job, rested_s: float) -> Job:
        """The job with a first repetition of its own where queues have to wake up for it."""
        slept = max((after for after in self._naps if after <= rested_s), default=0.0)
        if not slept:
            return job
        part, times, each = job.stages[0]
        rest = ((Stage(part, times - 1, each),) if times > 1 else ()) + job.stages[1:]
        return job._replace(stages=(Stage(part._replace(rested_s=slept), 1, each), *rest))

    def _worked(self, walk: Walk, place: Place, limit_s: float) -> bool:
        """Work on a stage until its end, the limit, or the next question to the policy; True: the step ends here."""
        job, now = place.job, walk.end_s
        assert job is not None
        part, repetitions, _ = stage = job.stages[place.stage]
        each, due = self._each_s(part), self._due_s
        most = repetitions - place.count
        if now + most * each - place.phase_s >= due - SOON_S:
            most = min(max(math.ceil((due - now + place.phase_s - SOON_S) / each), 1), most)
        if place.count == 0 and place.phase_s == 0.0:
            walk.begun.append((part, now))
        seconds = min(most * each - place.phase_s, limit_s - now)
        whole = min(math.floor((place.phase_s + seconds) / each + 1e-9), most)
        walk.spend(part, seconds)
        left = max(place.phase_s + seconds - whole * each, 0.0) if whole < most else 0.0
        if whole:
            _repeated(walk, place, stage, whole, each, left)
        place.phase_s = left
        walk.ask = whole == most and walk.end_s >= due - SOON_S
        if place.count < repetitions:
            return False
        lasts = walk.end_s - place.begin_s >= MIN_STEP_S or self._left_s(place, job) >= MIN_STEP_S
        self._end_stage(walk, place, job)
        return lasts

    def _end_stage(self, walk: Walk, place: Place, job: Job) -> None:
        if place.stage == 0:
            place.first_s = walk.end_s
        place.stage, place.count = place.stage + 1, 0
        if place.stage == len(job.stages):
            walk.done.append(Done(job, place.begin_s, place.first_s, walk.end_s, self._level))
            place.job = None

    def _left_s(self, place: Place, job: Job) -> float:
        """Seconds of the stages after this one."""
        return sum(times * self._each_s(part) for part, times, _ in job.stages[place.stage + 1 :])


def naps(bus: Bus) -> list[float]:
    """Seconds of rest after which some queue sleeps, or deeper; ascending."""
    return sorted({float(rest.after_s.value) for rests in bus.idle for rest in rests})


def _repeated(walk: Walk, place: Place, stage: Stage, whole: int, each_s: float, left_s: float) -> None:
    """So many repetitions have ended, the first of which may have begun at other clocks."""
    part = stage.part
    last = walk.end_s - left_s
    first = last - (whole - 1) * each_s
    if part.phase in ANSWERING:
        walk.pieces.append(Piece(part, place.begun_s, first, 1, stage.each))
        if whole > 1:
            walk.pieces.append(Piece(part, first, last, whole - 1, stage.each))
    place.count, place.begun_s = place.count + whole, last
