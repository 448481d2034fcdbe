"""``hetsched socs``: the list, a drawing, all figures, two compared, or a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from hetsched.cli import machine, options, show, show_socs
from hetsched.errors import OptionError
from hetsched.files import check_page
from hetsched.socs import SoC


def socs(ids: Sequence[str], *, diff: bool, figures: bool, what_if: Sequence[str], output: Path | None, as_json: bool) -> None:
    """Show what was asked for.

    Raises:
        OptionError: the options do not go together.
        SoCError: no such SoC or no such field.
    """
    if not ids:
        if diff or figures or what_if or output is not None:
            raise OptionError("--diff, --figures, --set and -o are about SoCs: name them, as in 'hetsched socs snapdragon-8-gen-3'")
        rows = machine.soc_rows()
        if as_json:
            show.json(rows)
        else:
            show_socs.table(rows)
        return
    found = _chosen(ids, what_if)
    if diff:
        _compare(found, as_json)
    elif output is not None:
        _page(ids, found, output, as_json)
    elif as_json:
        show.json([s.model_dump(mode="json") for s in found])
    else:
        for soc in found:
            (show_socs.sources if figures else show_socs.draw)(soc)


def _chosen(ids: Sequence[str], what_if: Sequence[str]) -> list[SoC]:
    from hetsched.app.inputs import soc

    overrides = options.settings(what_if)
    return [soc(i, overrides) for i in ids]


def _compare(found: Sequence[SoC], as_json: bool) -> None:
    from hetsched.soc_figures import differences

    if len(found) != 2:
        raise OptionError(f"--diff compares two SoCs, {len(found)} are named")
    lines = differences(*found)
    if as_json:
        ids = {"socs": [s.id for s in found]}
        show.json(ids | {"differences": [asdict(d) | {"ratio": d.ratio} for d in lines]})
    else:
        show_socs.difference(found[0], found[1], lines)


def _page(ids: Sequence[str], found: Sequence[SoC], output: Path, as_json: bool) -> None:
    from hetsched.app.reporting import draw_soc

    if len(found) != 1:
        raise OptionError(f"-o draws one SoC, {len(found)} are named")
    check_page(output, ids)
    path = draw_soc(found[0], output)
    if as_json:
        show.json({"page_path": str(path), "bytes": path.stat().st_size})
    else:
        show.line(f"page: {path}")
