"""``hetsched calibrate-ranges``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.app.calibrating_ranges import CalibratedRanges, calibrate_ranges
from hetsched.cli import options, show
from hetsched.cli.progress import progress


def calibrate_one(
    model: Path,
    inputs: Sequence[Path],
    *,
    method: str,
    percentile: float,
    granularity: str,
    symmetric: bool,
    dim: Sequence[str],
    output: Path | None,
    quiet: bool,
) -> CalibratedRanges:
    """Run a model on samples and write its ranges."""
    dims = options.dims(dim)
    with progress(model.name, quiet) as bar:
        bar.stage("running samples")
        return calibrate_ranges(
            model, inputs, method=method, percentile=percentile, granularity=granularity, symmetric=symmetric, dims=dims,  # type: ignore[arg-type]
            output=output, progress=bar.share,
        )  # fmt: skip


def show_ranges(found: CalibratedRanges) -> None:
    """What was found and what to do with it."""
    s = found.summary()
    how = s["method"] if s["percentile"] is None else f"{s['method']} {s['percentile']:g}"
    kind = "symmetric, " if s["symmetric"] else ""
    samples = f"{s['samples']} sample" + ("s" if s["samples"] > 1 else "")
    show.line(f"{s['model']}: {s['ranges']} of {s['tensors']} float tensors have a range")
    show.line(f"  {how}, {kind}per {s['granularity']}, {samples}")
    if s["granularity"] == "channel":
        show.line("  ranges per channel are for reports: integer kernels need '--granularity tensor'")
    show.line(f"ranges: {s['ranges_path']}")
