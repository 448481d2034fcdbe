"""The page: which charts a study gets, what they show, that nothing in it is trusted or fetched."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from hetsched.scenarios import Curve, Findings, Scalar
from hetsched.studies import charts
from hetsched.studies.axes import axes_of, colours, label, panels
from hetsched.studies.page import html
from hetsched.studies.results import Row
from hetsched.studies.study_file import Study


def row(key: str, rate: float, skin: float, **inputs: Scalar) -> Row:
    figures = {
        "inferences": 60 * rate, "rate": rate, "rate_first_minute": rate, "rate_last_minute": rate / 2, "held": 0.5, "skin_c": skin,
        "energy_j": 9.0,
    }  # fmt: skip
    curves = {"rate": Curve("1/s", (0.0, 1.0), (rate, rate / 2)), "skin": Curve("degC", (0.0, 1.0, 2.0), (25.0, 30.0, skin))}
    return Row(key, {"duration_s": 600.0, **inputs}, Findings(figures, curves))


ROWS = [
    row(f"{soc}{policy}{ambient}", 100.0 - 10 * k, 40.0 + k, soc=soc, ambient_c=ambient, policy=policy)
    for k, (soc, ambient, policy) in enumerate((s, a, p) for s in ("a", "b") for a in (25.0, 35.0) for p in ("static", "reactive"))
]


def test_one_axis_is_a_colour_and_the_others_are_panels() -> None:
    axes = axes_of(ROWS)
    assert axes.all == ("soc", "ambient_c", "policy") and axes.colour == "policy" and axes.rest == ("soc", "ambient_c")
    assert list(panels(ROWS, axes)) == ["a · 25 °C", "a · 35 °C", "b · 25 °C", "b · 35 °C"]
    assert colours(ROWS, axes) == {"static": 0, "reactive": 1}
    many = [row(str(k), 10.0, 30.0 + k, soc=f"chip {k}") for k in range(12)]
    assert axes_of(many).colour is None and label(many[3], axes_of(many).all) == "chip 3"


def test_inputs_that_accompany_a_variant_are_no_axes() -> None:
    rows = [row(f"{v}{s}", 1.0, 30.0, variant=v, soc=s, **{"set.x": len(v)}) for v in ("one", "three") for s in ("a", "b")]
    assert axes_of(rows).all == ("variant", "soc")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_nothing_beats_what_is_on_the_front(points: list[tuple[int, int]]) -> None:
    front = charts.front_of(points)
    assert set(front) <= set(points)
    for x, y in points:
        beaten = any((a <= x and b >= y) and (a, b) != (x, y) for a, b in points)
        assert ((x, y) in front) == (not beaten)


def specs(page: str) -> list[dict[str, object]]:
    return [json.loads(s) for s in re.findall(r'<script type="application/json">(.*?)</script>', page, re.S)]


def test_the_page_draws_every_scenario() -> None:
    page = html(Study(title="Hot?", question="Is it?"), ROWS)
    held, compared, heat = specs(page)
    assert [len(f["data"]) for f in (held, compared, heat)] == [8 + 2, 4, 2 + 4]  # type: ignore[arg-type]
    assert page.count('class="curves"') == 2 * 4 and page.count("<figure") == 8
    assert "8 scenarios: 2 × SoC, 2 × around the phone, 2 × policy." in page
    assert html(Study(title="Hot?", question="Is it?"), ROWS) == page


def test_a_study_that_varies_one_thing_and_one_that_varies_nothing() -> None:
    one = html(Study(title="t"), [row(str(k), 10.0, 30.0 + k, soc=f"chip {k}") for k in range(12)])
    assert len(specs(one)) == 2 and "What each choice does" not in one
    single = html(Study(title="t"), ROWS[:1])
    assert len(specs(single)) == 1
    refused = html(Study(title="t"), [Row("x", {"soc": "a"}, Findings({}, refused="it does not fit")), *ROWS])
    assert "1 cannot run" in refused and "it does not fit" in refused


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [v for k, v in attrs if k in ("src", "href") and v and not v.startswith(("#", "data:"))]


def test_names_are_text_and_nothing_is_fetched() -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    rows = [row(str(k), 10.0, 30.0 + k, soc=f"{evil}{k}", policy=p) for k, p in enumerate(("static", "reactive"))]
    page = html(Study(title=evil, question=evil), rows)
    found = _Links()
    found.feed(page)
    assert not found.outside and "img" not in found.tags
    assert page.count("plotly.js v") == 1 and "default-src 'none'" in page
    assert all("<img" not in json.dumps(s) for s in specs(page))
