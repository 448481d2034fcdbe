"""``hetsched run``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.app.running import Ran, run
from hetsched.cli import traces
from hetsched.cli.progress import progress
from hetsched.cli.simulating import plan_options
from hetsched.files import check_destination, write_atomically


def run_one(
    target: Path,
    *,
    soc: str | None,
    inputs: Path | None,
    check: bool,
    repeat: int,
    seed: int,
    delegate: str | None,
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
            target, soc, inputs=inputs, check=check, repeat=repeat, seed=seed, delegate=delegate,
            level=level, **plan_options(target, precision, dim, ranges),
        )  # fmt: skip
    traces.write(result.trace, trace)
    if output is not None:
        write_outputs(result, output)
    return result


def write_outputs(result: Ran, path: Path) -> None:
    """Write the graph outputs as ``.npz``."""
    import io

    import numpy as np

    data = io.BytesIO()
    np.savez(data, **result.outputs)  # type: ignore[arg-type]
    write_atomically(path, data.getvalue())
