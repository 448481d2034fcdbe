"""The page in a real browser: no console message, no sideways scroll, and its controls work.

Chromium is driven over ``--remote-debugging-pipe`` (null-terminated JSON on two pipes), so that nothing but the browser
itself is needed. Skipped, visibly, where there is none.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched.reports import ComparisonItem, PlanItem, TraceItem, render

BROWSER = next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if b), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium here: the page is not tried in a browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Page:
    """One tab. ``messages`` collects whatever the console, the log or an uncaught exception says."""

    def __init__(self, to: int, back: int) -> None:
        self.to, self.back, self.buffer, self.number = to, back, b"", 0
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: object) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def receive(self) -> dict:
        while b"\0" not in self.buffer:
            data = os.read(self.back, 1 << 20)
            assert data, "chromium ended"
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(line)
        method, params = message.get("method", ""), message.get("params", {})
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.messages.append(json.dumps(params))
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"][:120])
        return message

    def open(self, path: Path, width: int, dark: bool = False) -> None:
        self.messages.clear()
        self.requests.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 700)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=path.as_uri())
        until = time.monotonic() + 30
        while self.js("document.documentElement?.dataset.ready") != "1":
            assert time.monotonic() < until, f"the page's script did not finish: {self.messages}"
            time.sleep(0.02)

    def js(self, expression: str) -> object:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    ours, theirs = os.pipe(), os.pipe()

    def wire() -> None:  # the browser reads descriptor 3 and writes descriptor 4
        incoming, outgoing = os.dup(ours[0]), os.dup(theirs[1])
        os.dup2(incoming, 3)
        os.dup2(outgoing, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [str(BROWSER), *FLAGS, f"--user-data-dir={profile}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=wire,
            close_fds=False,
        )
        os.close(ours[0])
        os.close(theirs[1])
        try:
            yield Page(ours[1], theirs[0])
        finally:
            process.terminate()
            process.wait(20)
            os.close(ours[1])
            os.close(theirs[0])


@pytest.fixture(scope="module")
def report(sample, graph, deployment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = deployment.entries[0].plan
    path = tmp_path_factory.mktemp("report") / "report.html"
    items = [
        PlanItem(deployment, graph),
        TraceItem(sample.heat(plan, 25.0), "Simulated, 25 °C"),
        TraceItem(sample.heat(plan, 35.0), "Simulated, 35 °C"),
        TraceItem(sample.run(plan, "measured", 5, 1.3, 5), "Measured on this machine, with a rather long title"),
        sample.check(plan),
        ComparisonItem(
            [PlanItem(sample.deployment(graph, s)) for s in ("snapdragon-8-gen-3", "dimensity-9300", "apple-a17-pro")], "Three phones"
        ),
    ]
    render(items, path)
    return path


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_is_silent_and_fits(page: Page, report: Path, width: int, dark: bool) -> None:
    page.open(report, width, dark)
    assert page.js("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    too_wide = """Array.from(document.querySelectorAll('body *')).filter(e => {
        for (let p = e.parentElement; p; p = p.parentElement) if (getComputedStyle(p).overflowX !== 'visible') return false;
        const box = e.getBoundingClientRect();
        return box.right > innerWidth + 1 || box.left < -1;
    }).map(e => e.outerHTML.slice(0, 120))"""
    assert page.js(too_wide) == []
    assert page.messages == []
    assert page.requests == [report.as_uri()]  # nothing is fetched
    background = str(page.js("getComputedStyle(document.body).backgroundColor"))
    assert (sum(int(v) for v in background.strip("rgb()").split(",")) < 200) == dark


def test_text_has_contrast_in_both_schemes(page: Page, report: Path) -> None:
    contrast = """(() => {
        const linear = (x) => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
        const luminance = (c) => {
            const [r, g, b] = c.match(/[0-9.]+/g).map(x => linear(x / 255));
            return .2126 * r + .7152 * g + .0722 * b;
        };
        const behind = (e) => {
            for (; e; e = e.parentElement) {
                const c = getComputedStyle(e).backgroundColor;
                if (!/, 0\\)$/.test(c)) return c;
            }
        };
        const texts = 'h1, h2, h3, p, td, th button, small, dt, dd, nav a, .badge, .tile div, .seg button, summary, li';
        return Array.from(document.querySelectorAll(texts)).filter(e => e.offsetParent).map(e => {
            const a = luminance(getComputedStyle(e).color), b = luminance(behind(e));
            return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.outerHTML.slice(0, 100)];
        }).filter(([ratio]) => ratio < 4.5).slice(0, 5);
    })()"""
    for dark in (False, True):
        page.open(report, 1280, dark)
        assert page.js(contrast) == []


def test_controls_work(page: Page, report: Path) -> None:
    page.open(report, 1280)
    rows = "document.querySelectorAll('#p0-table tbody > tr[id]:not([hidden])').length"
    every = page.js(rows)
    page.js("{ const f = document.querySelector('[data-filter]'); f.value = 'resize gpu'; f.dispatchEvent(new Event('input')); }")
    assert page.js(rows) == 4 and page.js("document.getElementById('p0-table-count').textContent") == f"4 of {every} ops"
    page.js("{ const f = document.querySelector('[data-filter]'); f.value = ''; f.dispatchEvent(new Event('input')); }")
    page.js("document.querySelector('#p0-table th:nth-child(5) button').click()")
    times = page.js("Array.from(document.querySelectorAll('#p0-table tbody > tr[id]')).map(r => Number(r.cells[4].dataset.v))")
    assert len(times) == every and times == sorted(times, reverse=True)
    page.js("document.querySelector('[data-view=segs]').click()")
    assert page.js("[...document.querySelectorAll('.canvas')].map(c => c.offsetHeight > 0)") == [False, True]
    page.js("document.querySelector('[data-view=ops]').click(); document.querySelector('.views [data-zoom=fit]').click()")
    assert page.js("(() => { const c = document.querySelector('.canvas'); return c.scrollWidth <= c.clientWidth + 1; })()")
    before = page.js("document.querySelector('.lanewidth').offsetWidth")
    page.js("document.querySelector('.times [data-zoom=in]').click()")
    assert page.js("document.querySelector('.lanewidth').offsetWidth") > 1.5 * before
    page.js("document.querySelector('g.n[data-row]').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert page.js("document.querySelectorAll('tr.flash').length") == 1
    assert page.js("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert page.messages == []


def test_cursor_reads_the_curve(page: Page, report: Path) -> None:
    page.open(report, 1280)
    text = """(() => {
        const chart = document.querySelector('#t0 svg.curves'), box = chart.getBoundingClientRect(), tip = document.getElementById('tip');
        const move = {bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + 40};
        chart.dispatchEvent(new PointerEvent('pointermove', move));
        return tip.hidden ? 'hidden' : tip.textContent;
    })()"""
    lines = str(page.js(text)).split("\n")
    assert lines[0] == "5:00 min" and lines[1].startswith("inference: ") and lines[1].endswith(" ms")
    assert 10 < float(lines[1].split()[1]) < 20


def test_hostile_names_run_nothing(page: Page, sample, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"
    graph = sample.graph(4, evil)
    render(
        [PlanItem(sample.deployment(graph), graph), TraceItem(sample.run(sample.plan(graph), "measured", 3, 1.2, 1), evil)],
        tmp_path / "evil.html",
    )
    page.open(tmp_path / "evil.html", 1280)
    assert page.js("document.scripts.length") == 1 and page.js("document.images.length") == 0
    assert page.js("document.querySelector('#p0-table td.op').textContent").startswith(evil)
    page.js("document.querySelector('g.n').dispatchEvent(new PointerEvent('pointermove', {bubbles: true}))")
    assert page.js("document.getElementById('tip').children.length") == 0
    assert page.messages == [] and page.js("document.images.length") == 0
