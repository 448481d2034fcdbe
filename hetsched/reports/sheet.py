"""Pages of tables and scatter plots: what ``compare`` and ``accuracy`` write. One self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Column:
    """A column; numbers are aligned right and sorted by value."""

    name: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text, its value for sorting (numeric columns) and a smaller note below."""

    text: str
    sort: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A row; ``bad`` ones are marked."""

    cells: tuple[Cell, ...]
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a plot of measured over predicted seconds."""

    name: str
    group: str
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot for the template, and the colour of every group."""

    title: str
    svg: Markup
    legend: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Section:
    """A heading, a sentence, plots and a table."""

    title: str
    hint: str = ""
    columns: Sequence[Column] = ()
    rows: Sequence[Line] = ()
    plots: Sequence[Plot] = ()


def plot(title: str, dots: Sequence[Dot]) -> Plot | None:
    """A logarithmic plot of measured over predicted with the diagonal and the factor-of-two band; None without positive points.

    Groups get colours in the order in which they come.

    Raises:
        OptionError: jinja2 is not installed.
    """
    _needed()
    from hetsched.reports.scatter import Pair, scatter

    colours = {g: f"c-run{k % 6}" for k, g in enumerate(dict.fromkeys(d.group for d in dots))}
    pairs = [Pair(d.name, d.group, d.group, d.predicted_s, d.measured_s) for d in dots]
    svg = scatter(pairs, colours, "measured", "measurements")
    return None if svg is None else Plot(title, svg, tuple(colours.items()))


def write(path: Path, title: str, lead: str, sections: Sequence[Section]) -> Path:
    """Write the page to ``path``, whole or not at all.

    Raises:
        OptionError: jinja2 is not installed, or the file cannot be written.
    """
    from hetsched.files import write_atomically

    write_atomically(path, html(title, lead, sections).encode())
    return path


def html(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The page as text: same content, same text.

    Raises:
        OptionError: jinja2 is not installed.
    """
    _needed()
    from hetsched.reports.page import rendered

    return rendered("sheet.html.jinja", {"title": title, "lead": lead, "sections": list(sections)})


def _needed() -> None:
    from hetsched.errors import OptionError

    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError as e:
        raise OptionError("pages need jinja2, which is not installed: pip install 'hetsched[report]'") from e
