"""Pages of tables and plots."""

from __future__ import annotations

from hetsched.reports import sheet


def page(**change: object) -> str:
    plot = sheet.plot("chip <x>", [sheet.Dot("net", "float", 1e-3, 2e-3), sheet.Dot("other", "w8a8", 2e-3, 2e-3)])
    columns = [sheet.Column("name"), sheet.Column("ms", numeric=True)]
    lines = [sheet.Line((sheet.Cell("<b>", note="n & m"), sheet.Cell("2", 2.0)), bad=True)]
    return sheet.html("Title", "Lead.", [sheet.Section("One", "Hint.", columns, lines, [] if plot is None else [plot])])


def test_it_is_self_contained_and_escaped() -> None:
    text = page()
    assert "&lt;b&gt;" in text and "n &amp; m" in text and "<b>" not in text.partition("<main>")[2].partition("</main>")[0]
    assert "http" not in text.partition("<body>")[2].partition("<script>")[0]
    assert 'data-v="2.0"' in text and 'class="bad"' in text and 'id="s0"' in text


def test_plots_hold_a_dot_for_every_measurement() -> None:
    plot = sheet.plot("p", [sheet.Dot("net", "float", 1e-3, 2e-3), sheet.Dot("zero", "float", 0.0, 1.0)])
    assert plot is not None and str(plot.svg).count("<circle") == 1 and "1 measurements" in str(plot.svg)
    assert sheet.plot("p", []) is None


def test_the_same_content_is_the_same_text() -> None:
    assert page() == page()
