"""What the page says: structure, escaping, determinism, size."""

import html as entities
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hetsched.errors import OptionError
from hetsched.plans import Deployment
from hetsched.reports import CheckItem, ComparisonItem, PlanItem, TraceItem, html, render
from hetsched.trace import Trace

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr", "rect", "line", "path", "circle", "use"}


class Outline(HTMLParser):
    """Checks that tags nest, and collects ids, link targets and the text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert len(given) == len(attrs), (tag, attrs)
        self.tags.append((tag, given))
        if "id" in given:
            self.ids.append(str(given["id"]))
        if tag == "a":
            self.links.append(str(given["href"]))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.stack.pop() == tag, (self.getpos(), tag)

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))


@pytest.fixture(scope="module")
def full(sample, graph, deployment) -> str:
    plan = deployment.entries[0].plan
    return html(
        [
            PlanItem(deployment, graph),
            TraceItem(sample.heat(plan, 25.0, 120.0), "Simulated"),
            TraceItem(sample.run(plan, "measured", 4, 1.3, 5)),
            sample.check(plan),
        ]
    )


def test_page_has_every_section_and_every_op(full: str, deployment: Deployment) -> None:
    page = Outline(full)
    plan = deployment.entries[0].plan
    assert len(set(page.ids)) == len(page.ids)
    assert page.links and all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    for heading in (
        "Baselines beside the plan",
        "Placement",
        "Timeline per processor",
        "Memory over time",
        "Did the prediction hold?",
        "Why each op is where it is",
        "Temperature (°C)",
        "Frequency (GHz)",
        "Latency per inference (ms)",
        "Numerical check",
        "Provenance",
    ):
        assert heading in page.text
    for p in plan.placements:
        assert p.op in page.text and p.cause in page.text
    assert plan.baselines[0].reason in page.text  # a refused baseline says why
    assert deployment.model.sha256 in page.text and deployment.soc.sha256 in page.text
    boxes = [a for t, a in page.tags if t == "g" and "data-row" in a]
    assert len(boxes) == len(plan.placements)
    assert sum(t == "rect" and "k-segment" in str(a.get("class")) for t, a in page.tags) >= 3 * len(plan.segments)


def test_answer_is_in_the_header(full: str, deployment: Deployment) -> None:
    page = Outline(full).text
    assert "det on snapdragon-8-gen-3" in page
    assert re.search(r"10\.6 ms per inference predicted \(80 % interval 7\.\d+–1[56]\.\d ms\), 26\.6 mJ, [\d.]+ MB of memory", page)
    assert "no placement can be more than 0.9 % better" in page and "1.55× as fast as the vendor default" in page


def test_page_is_self_contained(full: str) -> None:
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:|//|file:)""", full)
    assert "url(" not in full and "@import" not in full
    assert "default-src 'none'" in full


def test_page_is_deterministic(sample, full: str, graph, deployment) -> None:
    again = html(
        [
            PlanItem(deployment, graph),
            TraceItem(sample.heat(deployment.entries[0].plan, 25.0, 120.0), "Simulated"),
            TraceItem(sample.run(deployment.entries[0].plan, "measured", 4, 1.3, 5)),
            sample.check(deployment.entries[0].plan),
        ]
    )
    assert again == full


def test_untrusted_names_are_escaped_everywhere(sample) -> None:
    evil = "<script>alert(1)</script>\"'&"
    graph = sample.graph(3, evil)
    base = sample.deployment(graph)
    hostile = base.model_copy(
        update={"model": base.model.model_copy(update={"path": f"{evil}.onnx", "dims": {evil: 3}}), "parameters": evil}
    )
    plan = base.entries[0].plan
    trace = sample.run(plan, "measured", 3, 1.2, 1)
    trace.model = trace.soc = ""
    trace.notes = [evil]
    trace.counter(f"temperature/{evil}", evil).sample(0.0, 1.0)
    trace.counter(f"temperature/{evil}", evil).sample(1.0, 2.0)
    checks = CheckItem([{"op": evil, "type": evil, "cosine": 1.0, "snr_db": None, "max_abs": float("inf"), "note": evil}], evil)
    text = html([PlanItem(hostile, graph, title=evil), TraceItem(trace, evil), checks, ComparisonItem([PlanItem(hostile)], evil)])
    page = Outline(text)
    assert text.count("<script") == 1 and not [t for t, a in page.tags if any(k.startswith("on") for k in a)]
    assert evil in page.text and entities.escape(evil, quote=False).split("&#")[0] in text.replace("&#34;", '"').replace("&#39;", "'")


def test_a_plan_alone_and_a_trace_alone(sample, deployment: Deployment) -> None:
    alone = Outline(html([deployment]))
    assert "when the model file is at hand" in alone.text
    assert sum(t == "svg" and a.get("class") == "graph" for t, a in alone.tags) == 1  # segments only
    trace = Outline(html([sample.heat(deployment.entries[0].plan, 25.0, 60.0)]))
    assert "Temperature" in trace.text and "Placement" not in trace.text
    assert "Numerical check" in Outline(html([CheckItem([])])).text
    assert "imported" in Outline(html([Trace("imported")])).text


def test_several_plans_are_compared(sample, graph) -> None:
    plans = [PlanItem(sample.deployment(graph, s)) for s in ("snapdragon-8-gen-3", "apple-a17-pro")]
    page = Outline(html(plans))
    assert "det on snapdragon-8-gen-3 and apple-a17-pro" in page.text and "Comparison" in page.text
    assert {"p0", "p1", "compare0"} <= set(page.ids)


def test_tabs_say_what_tells_plans_apart(sample, graph) -> None:
    one, other = (sample.deployment(graph, s) for s in ("snapdragon-8-gen-3", "apple-a17-pro"))
    renamed = one.model_copy(update={"model": one.model.model_copy(update={"path": "other.onnx"})})

    def tabs(*deployments: Deployment) -> list[str]:
        return re.findall(r'<a href="#p\d+">([^<]*)</a>', html([PlanItem(d) for d in deployments]))

    assert tabs(one, other) == ["snapdragon-8-gen-3", "apple-a17-pro"]
    assert tabs(one, renamed) == ["det", "other"]
    assert tabs(one, renamed, other) == ["det · snapdragon-8-gen-3", "other · snapdragon-8-gen-3", "det · apple-a17-pro"]
    assert tabs(one, one, one) == ["snapdragon-8-gen-3", "snapdragon-8-gen-3 (2)", "snapdragon-8-gen-3 (3)"]


def test_traces_join_the_plan_of_their_soc(sample, graph) -> None:
    plans = [PlanItem(sample.deployment(graph, s)) for s in ("apple-a17-pro", "snapdragon-8-gen-3")]
    run = sample.run(plans[0].deployment.entries[0].plan, "measured", 3, 1.2, 1)  # says snapdragon-8-gen-3
    page = Outline(html([*plans, TraceItem(run, "on the device")]))
    assert "p1-measured" in page.ids and "p0-measured" not in page.ids


def test_400_ops_stay_small(sample, tmp_path: Path) -> None:
    graph = sample.graph(86)
    deployment = sample.deployment(graph)
    plan = deployment.entries[0].plan
    assert len(plan.placements) > 370
    path = tmp_path / "r.html"
    render(
        [
            PlanItem(deployment, graph),
            TraceItem(sample.heat(plan, 25.0)),
            TraceItem(sample.heat(plan, 35.0)),
            TraceItem(sample.run(plan, "measured", 5, 1.3, 5)),
            sample.check(plan),
        ],
        path,
    )
    assert path.stat().st_size < 6_000_000
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_bad_requests_are_refused(deployment: Deployment, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="at least one"):
        render([], tmp_path / "a.html")
    with pytest.raises(OptionError, match="a str"):
        render(["plan.json"], tmp_path / "a.html")  # type: ignore[list-item]
    with pytest.raises(OptionError, match="cannot write"):
        render([deployment], tmp_path / "absent" / "a.html")
    assert list(tmp_path.iterdir()) == []


def test_without_jinja2_one_sentence_says_what_to_install(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    import hetsched.reports

    monkeypatch.delitem(sys.modules, "hetsched.reports.page")
    monkeypatch.delattr(hetsched.reports, "page")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(OptionError, match=r"jinja2.*pip install 'hetsched\[report\]'"):
        html([deployment])
