"""``hetsched run``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.app.running import Ran, run
from hetsched.cli import options, traces
from hetsched.cli.progress import progress
from hetsched.errors import OptionError
from hetsched.files import check_destination, write_atomically
from hetsched.runtime.executable import LIMIT_S


def run_one(
    target: Path,
    *,
    soc: str | None,
    inputs: Path | None,
    check: bool,
    repeat: int,
    seed: int,
    delegate: Sequence[str],
    fallback: str,
    timeout_s: float | None,
    precision: str,
    ranges: Path | None,
    dim: Sequence[str],
    level: int,
    trace: Path | None,
    output: Path | None,
    quiet: bool,
) -> Ran:
    """Run a plan file, or plan a model first."""
    traces.check_name(trace, (target, soc, inputs, ranges))
    if output is not None:
        check_destination(output, (target, soc, inputs, ranges, trace))
    with progress("running", quiet) as bar:
        bar.stage("planning and compiling")
        result = run(
            target, soc, inputs=inputs, check=check, repeat=repeat, seed=seed, delegate=delegates_of(delegate),
            fallback=fallback, level=level, timeout_s=LIMIT_S if timeout_s is None else timeout_s,
            **options.plan_options(target, precision, dim, ranges),
        )  # fmt: skip
    if trace is not None:
        traces.write(result.trace, trace)
    if output is not None:
        write_outputs(result, output)
    return result


def delegates_of(given: Sequence[str]) -> str | dict[str, str] | None:
    """``NAME`` for everything, or ``QUEUE=NAME`` as often as there are queues.

    Raises:
        OptionError: both, a queue twice, or nothing where a name should be.

    Examples:
        >>> delegates_of(["null"]), delegates_of(["npu=qnn", "cpu=numba"]), delegates_of([])
        ('null', {'npu': 'qnn', 'cpu': 'numba'}, None)
    """
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    chosen: dict[str, str] = {}
    for text in given:
        queue, equals, name = (part.strip() for part in text.rpartition("="))
        if not (queue and equals and name):
            raise OptionError(f"--delegate {text!r} names no queue: with several, write each as npu=qnn, gpu=wgpu, cpu=numba")
        if queue in chosen:
            raise OptionError(f"--delegate {text!r}: {queue} has {chosen[queue]} already")
        chosen[queue] = name
    return chosen or None


def write_outputs(result: Ran, path: Path) -> None:
    """Write the graph outputs as ``.npz``."""
    import io

    import numpy as np

    data = io.BytesIO()
    np.savez(data, **result.outputs)  # type: ignore[arg-type]
    write_atomically(path, data.getvalue())
