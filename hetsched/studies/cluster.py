"""Batches on an existing Dask cluster (the extra ``cluster``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hetsched.errors import ExecutionError, OptionError
from hetsched.scenarios import Subject
from hetsched.studies.work import Batch, Failure, work

if TYPE_CHECKING:
    from hetsched.studies.running import Runner

CONNECT_S = 20


@contextmanager
def connected(address: str, subject: Subject) -> Iterator[tuple[Runner, int]]:
    """What runs batches on the workers of the scheduler at ``address``, and how many it runs at once.

    Raises:
        OptionError: distributed is not installed, nothing answers, or there are no workers.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError as e:
        raise OptionError("--cluster needs distributed, which is not installed: pip install 'hetsched[cluster]'") from e
    try:
        client: Any = Client(address, timeout=CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError) as e:
        raise OptionError(f"no Dask scheduler answers at --cluster {address}: start one with 'dask scheduler', and workers") from e
    with client, client.as_current():
        threads = sum(w["nthreads"] for w in client.scheduler_info(n_workers=-1)["workers"].values())
        if not threads:
            raise OptionError(f"the Dask cluster at {address} has no workers: start some with 'dask worker {address}'")

        def runner(all_: Sequence[Batch]) -> Iterator[tuple[Batch, tuple[Failure, ...]]]:
            from distributed import KilledWorker, as_completed

            waiting = {client.submit(work, subject, b, pure=False): b for b in all_}
            try:
                for future in as_completed(list(waiting)):  # type: ignore[no-untyped-call]
                    yield waiting[future], future.result()
            except KilledWorker as e:
                raise ExecutionError(f"a worker of the cluster at {address} was killed: run the study again") from e

        yield runner, threads
