"""From a plan to something that runs: :func:`compile`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from hetsched.channels_last import channels_last
from hetsched.errors import ModelError, PlanError
from hetsched.graph import Graph
from hetsched.passes.unfuse import parts
from hetsched.plan_rules import check_memory
from hetsched.plans import Plan
from hetsched.runtime.arena import Arena, Scratch, bind_buffers, own_buffers
from hetsched.runtime.assignment import Chosen, Moved, assign
from hetsched.runtime.delegates.base import Delegate, SegmentJob
from hetsched.runtime.executable import LIMIT_S, Executable
from hetsched.runtime.failures import compiling
from hetsched.runtime.fences import FenceBoard
from hetsched.runtime.team import Team
from hetsched.runtime.worker import Gate, Job, Worker
from hetsched.socs import HOST, SoC


def compile(
    graph: Graph, plan: Plan, *, soc: str | SoC = HOST, delegate: Chosen = None, moved: Mapping[str, Moved] | None = None
) -> Executable:  # fmt: skip
    """Prepare a plan for execution on this machine.

    Args:
        graph: the model after the same passes as when it was planned.
        plan: the plan; its buffers and fences are used as they are.
        soc: the SoC the plan was made for, or its id (delegates that compile for a chip need the SoC).
        delegate: run everything with this delegate (a name such as ``null`` or ``ort``, or an object) instead of the plan's, or
            some queues or processors (``{"npu": "qnn", "gpu": "wgpu", "cpu": "numba"}``). A plan for another SoC needs one for each.
        moved: ops that go elsewhere, by name (:mod:`hetsched.runtime.fallback`).

    Raises:
        PlanError: the plan is for another machine or another graph, or names an unknown delegate.
        ModelError: the model's weights are absent.
        UnsupportedModelError: a delegate does not support an op; the message names the user's node and the reason.
    """
    chip, soc = (None, soc) if isinstance(soc, str) else (soc, soc.id)
    assigned = assign(graph, plan, soc, delegate, moved)
    plan, delegates = assigned.plan, assigned.of_segment
    if delegate == "null":
        seconds = sum(s.launch_s + s.transfer_s for s in plan.segments) + sum(p.seconds for p in plan.placements)
        if seconds > LIMIT_S:
            raise PlanError(f"the plan predicts {seconds:.3g} s of work, and the null delegate waits as long: at most {LIMIT_S:g} s")
        # The plan's offsets are for what the target stores (often float16); nothing is computed, so only the ends are needed.
        arena, buffers = Arena(0), own_buffers(graph)
    else:
        _check_weights(graph)
        check_memory(plan, graph)
        arena = Arena(plan.arena_bytes)
        buffers = bind_buffers(graph, plan.buffers, arena)
    last = channels_last(graph, {p.op: p.precision for p in plan.placements}, assigned.of_op)
    board = FenceBoard(len(plan.segments))
    computing = dict.fromkeys(s.queue for s in plan.segments if delegates[s.index].name == "numba")
    teams = {queue: Team(queue, board.spins) for queue in computing}
    scratch = {s.queue: Scratch() for s in plan.segments}
    jobs = _compile_segments(graph, plan, buffers, delegates, last, teams, board, chip, scratch)
    gate = Gate(len(jobs))
    workers = tuple(Worker(queue, tuple(js), board, gate) for queue, js in jobs.items())
    return Executable(
        graph, plan, soc, arena, buffers, last, board, gate, workers, tuple(teams.values()), tuple(scratch.values()), assigned,
    )  # fmt: skip


def _check_weights(graph: Graph) -> None:
    """Refuse a model without its weights before kernels are compiled for the others."""
    read = dict.fromkeys(n for op in graph.ops for part in parts(op) for n in part.inputs if n)
    absent = [t.name for n in read if (t := graph.tensors.get(n)) is not None and t.data is not None and not t.data.is_present]
    if absent:
        raise ModelError(
            f"the weights of {graph.name!r} are absent ({len(absent)} tensors, the first is {absent[0]!r}): "
            "a weightless model can be planned but not run; fetch it with its weights, or give --delegate null"
        )


def _compile_segments(
    graph: Graph,
    plan: Plan,
    buffers: Mapping[str, npt.NDArray[Any]],
    delegates: Mapping[int, Delegate],
    last: frozenset[str],
    teams: Mapping[str, Team],
    board: FenceBoard,
    soc: SoC | None,
    scratch: Mapping[str, Scratch],
) -> dict[str, list[Job]]:
    """The jobs of each queue, in order."""
    placed = {p.op: p for p in plan.placements}
    precision = {name: p.precision for name, p in placed.items()}
    seconds = {name: p.seconds for name, p in placed.items()}
    packed: dict[tuple[str, str], Any] = {}
    jobs: dict[str, list[Job]] = {}
    for segment in plan.segments:
        chosen = delegates[segment.index]
        ops = tuple(graph.ops[graph.op_index[name]] for name in segment.ops)
        own = scratch[segment.queue]
        job = SegmentJob(
            graph, segment, ops, precision, seconds, buffers, packed, own, last, teams.get(segment.queue), board.stop, soc, board.stoppers,
        )  # fmt: skip
        with compiling(chosen.name, segment.index):
            compiled = chosen.compile(job)
        waits = tuple(f for f in plan.fences if f.wait == segment.index)
        jobs.setdefault(segment.queue, []).append(Job(segment.index, chosen, compiled, waits))
    return jobs
