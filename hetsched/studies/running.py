"""Runs the scenarios of a study that have no record yet, on processes of this machine or on a Dask cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetsched.errors import ExecutionError, OptionError
from hetsched.scenarios import Prepared, Subject
from hetsched.studies.folder import Folder
from hetsched.studies.study_file import Study
from hetsched.studies.work import Batch, Failure, work

#: Batches a worker gets, so that all of them end at about the same time.
SHARES = 12
MAX_BATCH = 64
#: Processes at most: each takes some 100 MB.
MAX_WORKERS = 256
Progress = Callable[[int, int], None]
#: Runs batches somewhere and yields each with what failed in it, in any order.
Runner = Callable[[Sequence[Batch]], Iterator[tuple[Batch, tuple[Failure, ...]]]]


@dataclass(frozen=True)
class Ran:
    """A study that ran: its scenarios in order, how many of them were there already, and what failed."""

    scenarios: tuple[Prepared, ...]
    kept: int
    failures: tuple[Failure, ...]


def prepared(study: Study, subject: Subject, files: Path) -> tuple[Prepared, ...]:
    """Every scenario of a study, checked, in order; those that are the same count once.

    Args:
        study: the study.
        subject: knows what a scenario is.
        files: the folder in which models are looked for first.

    Raises:
        InputError: a key or a value is wrong.
    """
    found = [subject.prepare(inputs, files) for inputs in study.scenarios()]
    return tuple({p.key: p for p in found}.values())


def run(
    scenarios: Sequence[Prepared],
    subject: Subject,
    folder: Folder,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    curves: bool = True,
    progress: Progress | None = None,
) -> Ran:
    """Run what has no record yet. Killed at any time, the next call goes on from there.

    Args:
        scenarios: from :func:`prepared`.
        subject: knows how to plan and simulate them; it is sent to other processes.
        folder: where records are kept.
        workers: processes; None: one for every processor that this one may use. 1: no other process.
        cluster: address of a Dask scheduler, in place of processes.
        curves: keep curves over time.
        progress: called with how many scenarios are done, of how many.

    Raises:
        OptionError: the folder or the cluster cannot be used, a record in it is damaged, or there are too many ``workers``.
        ExecutionError: a worker was killed.
    """
    if workers is not None and workers > MAX_WORKERS:
        raise OptionError(f"--workers {workers} are too many processes for one machine: give {MAX_WORKERS} at most, or a --cluster")
    folder.prepare()
    with folder.alone():
        folder.sweep()
        there = folder.recorded()
        for s in scenarios:
            if s.key in there:
                folder.read(s.key)
        missing = [s for s in scenarios if s.key not in there]
        done, failures = len(scenarios) - len(missing), list[Failure]()
        say = progress or (lambda _done, _of: None)
        say(done, len(scenarios))
        count = min(workers or available(), max(1, len(missing)))
        with _runner(subject, count, cluster) as (runner, size):
            for batch, failed in runner(batches(missing, folder.path.resolve(), size, curves)):
                failures += failed
                done += len(batch.scenarios)
                say(done, len(scenarios))
        order = {s.key: k for k, s in enumerate(scenarios)}
        failures.sort(key=lambda f: order[f.key])
        return Ran(tuple(scenarios), len(scenarios) - len(missing), tuple(failures))


def available() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def batches(scenarios: Iterable[Prepared], folder: Path, workers: int, curves: bool) -> list[Batch]:
    """Scenarios in batches of one plan each.

    The first batches are of different plans, so that workers do not wait for each other's. A plan whose scenarios are more than a fair
    share is divided.

    Args:
        scenarios: in any order.
        folder: of the study.
        workers: how many will work on them.
        curves: keep curves over time.
    """
    by_plan: dict[str, list[Prepared]] = {}
    for s in scenarios:
        by_plan.setdefault(s.plan_key, []).append(s)
    total = sum(map(len, by_plan.values()))
    size = max(1, min(MAX_BATCH, total // (workers * SHARES))) if workers > 1 else 1
    turns: list[tuple[int, Batch]] = []
    for own in by_plan.values():
        turns += [(k, Batch(folder, tuple(own[at : at + size]), curves)) for k, at in enumerate(range(0, len(own), size))]
    return [batch for _, batch in sorted(turns, key=lambda t: t[0])]


@contextmanager
def _runner(subject: Subject, workers: int, cluster: str | None) -> Iterator[tuple[Runner, int]]:
    """What runs batches, and how many it runs at once."""
    if cluster is not None:
        from hetsched.studies.cluster import connected

        with connected(cluster, subject) as found:
            yield found
    elif workers == 1:
        yield (lambda all_: ((b, work(subject, b)) for b in all_)), 1
    else:
        yield (lambda all_: _on_processes(subject, all_, workers)), workers


def _on_processes(subject: Subject, all_: Sequence[Batch], workers: int) -> Iterator[tuple[Batch, tuple[Failure, ...]]]:
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, get_context("spawn"), _end_with_parent) as pool:
        waiting: dict[Any, Batch] = {pool.submit(work, subject, b): b for b in all_}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BrokenProcessPool as e:
            raise ExecutionError("a worker was killed, perhaps for want of memory: run the study again, with fewer --workers") from e
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _end_with_parent() -> None:
    """Let this process end as soon as the one that started it is gone: its pipes alone would not tell."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is None:
        raise OptionError("a worker of a study is started by the study")

    def watch(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()
