"""The page of one SoC: well-formed, complete, and safe with names from a file."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from hetsched.reports.soc_page import soc_html
from hetsched.soc_figures import figures
from hetsched.soc_files import load_soc, overridden

VOID = {"meta", "rect", "line"}


class Tags(HTMLParser):
    """Checks that tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["snapdragon-8-gen-3", "apple-m1"])
def test_the_page_is_well_formed_and_has_every_figure(name: str) -> None:
    soc = load_soc(name)
    page = soc_html(soc)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.seen.count("svg") == 2
    assert "script" not in tags.seen
    for f in figures(soc):
        assert f"<td>{f.path}</td>" in page
    assert re.search(r"(src|href)=", page) is None


def test_nothing_is_drawn_outside() -> None:
    page = soc_html(load_soc("snapdragon-8-gen-3"))
    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        _, _, width, height = (float(v) for v in re.search(r'viewBox="([^"]*)"', svg)[1].split())  # type: ignore[index]
        boxes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg)
        assert boxes
        assert all(float(x) + float(w) <= width and float(y) + float(h) <= height for x, y, w, h in boxes)


def test_names_are_escaped() -> None:
    soc = load_soc("snapdragon-8-gen-3").model_copy(update={"name": "<script>alert(1)</script>", "notes": ("a <b>note</b>",)})
    page = soc_html(soc)
    assert "<script>" not in page and "<b>note" not in page


def test_what_is_set_is_marked() -> None:
    page = soc_html(overridden(load_soc("snapdragon-8-gen-3"), {"npu.launch_us": "20"}))
    assert "What-if: npu.launch_us = 20" in page and "20 µs! (file: " in page
