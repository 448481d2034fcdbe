"""``hetsched export``: a plan as files for a vendor's runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.limit_options import Level
from hetsched.cli.shared_options import Json


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command(short_help="Write a plan as files that a vendor's runtime loads")(export)


def export(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file.")],
    to: Annotated[str, typer.Option("--to", metavar="RUNTIME", help="ort, qnn, litert, coreml, openvino, llama.cpp or executorch.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Default: beside the plan.")] = None,
    phase: Annotated[str | None, typer.Option(metavar="PHASE", help="prefill or decode of a language model. Default: decode.")] = None,
    level: Level = 0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the golden inputs.")] = 0,
    as_json: Json = False,
) -> None:
    """Write a plan as a bundle: files, manifest, golden vectors and a runner."""
    from hetsched.app.exporting import export as export_plan
    from hetsched.cli import show
    from hetsched.cli.progress import progress

    folder = output if output is not None else plan.with_name(f"{plan.stem}-{to}")
    with progress(plan.name, as_json):
        manifest = export_plan(plan, to, folder, level=level, seed=seed, phase=phase)
    if as_json:
        show.json({"folder": str(folder), **manifest.model_dump(mode="json")})
        return
    show.line(f"{folder}: {manifest.model} on {manifest.soc} for {manifest.runtime} {manifest.minimum_runtime} or newer")
    rows = [[str(s.index), s.queue, s.file or "-", " ".join(f"{k}={v}" for k, v in sorted(s.settings.items()))] for s in manifest.segments]
    show.table("", ["segment", "on", "file", "settings"], rows, numeric=(0,))
    if "run.py" in manifest.files:
        show.line(f"run it: python {folder / 'run.py'} --allow-cpu")
    if "run_on_phone.sh" in manifest.files:
        show.line(f"on a phone: sh {folder / 'run_on_phone.sh'} onnxruntime_perf_test profile.json")
