"""The plan for a nearly empty battery: the CPU alone, two of its cores, weights in few bits, least energy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

from hetsched.app.planning_task import Task
from hetsched.errors import InfeasibleError
from hetsched.graph import Graph
from hetsched.socs import Processor, SoC


def narrowed_task(task: Task, graph: Graph, target: str | None) -> Task:
    """The task on two cores of the CPU.

    Args:
        task: with the clocks and the precision of the level.
        graph: what is planned.
        target: ``processor:cores``, chosen already for another phase of the model; None: the pair of cores that takes the least energy.

    Raises:
        InfeasibleError: the SoC file does not list two cores, or nothing can be placed on any pair.
    """
    queue, processor = _cpu_queue(task.chip)
    clocks = {n: f for n, f in task.clocks.items() if n == processor.name}
    on = replace(task, off=tuple(q for q in task.chip.queues if q != queue), clocks=clocks)
    if target is None:
        joules = dict(_joules(on, graph, queue, processor))
        if not joules:
            raise InfeasibleError(f"the file of {task.chip.id} does not list two cores of {processor.name!r} on which the model could run")
        target = min(joules, key=lambda t: joules[t])
    return replace(on, chip=task.chip.narrowed({queue: target}))


def pairs(processor: Processor) -> tuple[str, ...]:
    """Queue targets of two cores: for every pair of clusters, and every cluster of two or more, the first cores."""
    clusters = [c.cores for c in processor.clusters]
    across = [(a[0], b[0]) if a is not b else a[:2] for a, b in combinations_with_replacement([c for c in clusters if c], 2)]
    chosen = [cores for cores in across if len(cores) == 2]
    return tuple(f"{processor.name}:{','.join(map(str, sorted(cores)))}" for cores in chosen)


def _cpu_queue(chip: SoC) -> tuple[str, Processor]:
    """The first queue of the CPU, which also submits the work, and its processor."""
    found = ((name, chip.by_name[target.partition(":")[0]]) for name, target in chip.queues.items())
    return next((name, p) for name, p in found if p.kind == "cpu")


def _joules(task: Task, graph: Graph, queue: str, processor: Processor) -> Iterator[tuple[str, float]]:
    """What an inference takes on every pair of cores that can run the model, on a SoC of that queue alone."""
    for target in pairs(processor):
        chip = task.chip.model_copy(update={"queues": {queue: target}})
        alone = replace(task, chip=chip, off=(), forced=None, forbidden=None)  # which speak of queues that are not there
        costed = alone.costed(graph)
        try:
            yield target, alone.built(costed, alone.solved(costed)).prediction.energy_j
        except InfeasibleError:
            continue
