"""``hetsched import``: reads, writes and shows a profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.app.importing import Imported
from hetsched.app.importing import import_profile as read_profile
from hetsched.cli import options, show
from hetsched.cli.progress import progress
from hetsched.files import check_destination

_SHOWN = 8


def import_one(
    profile: Path, *, model: Path | None, soc: str | None, queue: str | None, dim: Sequence[str], output: Path | None, as_json: bool
) -> None:
    """Read a profile, write what is asked for and print what was found."""
    dims = options.dims(dim)
    if output is not None:
        check_destination(output, (profile, model, soc))
    with progress(profile.name, as_json):
        found = read_profile(profile, model, soc, queue=queue, dims=dims, planned=output is not None and output.suffix == ".html")
    if output is not None:
        found.save(output)
    if as_json:
        show.json(found.summary() | {"output": None if output is None else str(output)})
    else:
        _show(found, output)


def _show(found: Imported, output: Path | None) -> None:
    s = found.summary()
    runs = f"{s['runs']} inference{'s' if s['runs'] != 1 else ''}"
    operators = f"{s['operators']} operator{'s' if s['operators'] != 1 else ''}"
    show.line(f"{s['profile']}: {s['format']}, {operators} on {', '.join(s['queues'])}, {runs}")
    slowest = sorted(found.profile.per_op(), key=lambda t: (-t.seconds, t.name))[:_SHOWN]
    total = sum(t.seconds for t in found.profile.per_op())
    show.line(f"  operators take {show.seconds(total)} per inference; the slowest:")
    rows = [[t.name or "-", t.type or "-", t.queue, show.seconds(t.seconds), f"{t.seconds / total:.1%}" if total else "-"] for t in slowest]
    show.table("", ["operator", "type", "on", "time", "share"], rows, numeric=(3, 4))
    if found.measured is not None:
        show.line(
            f"matched: {s['matched']} of {s['model_ops']} operators of {s['model']} ({s['matched_by_name']} by name, "
            f"{s['matched'] - s['matched_by_name']} by type and shape)"
        )
        if found.unmatched:
            more = f" and {len(found.unmatched) - 5} more" if len(found.unmatched) > 5 else ""
            show.line(f"  of the profile, not found in the model: {', '.join(found.unmatched[:5])}{more}")
    for note in found.profile.notes:
        show.line(f"note: {note}")
    if output is not None:
        what = {".json": "measured times", ".html": "page"}.get(output.suffix, "trace")
        show.line(f"{what}: {output}")
