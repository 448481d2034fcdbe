"""``hetsched socs`` and ``--set``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.cli import main
from hetsched.soc_figures import figures
from hetsched.soc_files import list_socs, load_soc
from hetsched.soc_words import link_line, memory_lines, processor_lines, trip_lines
from hetsched.socs import SoC

Run = tuple[int, str, str]
Runner = Callable[..., Run]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    def go(*args: object, width: int = 200) -> Run:
        from hetsched.cli import show

        monkeypatch.setattr(sys, "argv", ["hetsched", *map(str, args)])
        monkeypatch.setattr(show.console, "_width", width)
        with pytest.raises(SystemExit) as e:
            main()
        out, err = capsys.readouterr()
        return int(e.value.code or 0), out, err

    return go


def test_the_list_has_every_soc_on_a_line(run: Runner) -> None:
    for width in (80, 200):
        code, out, _ = run("socs", width=width)
        assert code == 0
        starts = [line.split()[0] for line in out.splitlines()[2:]]
        assert starts == [*list_socs(), "host"]
        assert max(len(line) for line in out.splitlines()) <= width


def test_the_list_for_machines(run: Runner) -> None:
    rows = json.loads(run("socs", "--json")[1])
    assert {tuple(r) for r in rows} == {
        ("id", "name", "vendor", "tier", "release", "cpu", "gpu", "npu", "npu_float_tops", "npu_int8_tops", "memory_gb_s",
         "memory_reachable_gb_s", "estimated_share", "heat_basis")
    }  # fmt: skip
    phone = next(r for r in rows if r["id"] == "snapdragon-8-gen-3")
    soc = load_soc("snapdragon-8-gen-3")
    peaks = soc.by_name["npu"].clusters[0].peak_ops_s
    assert (phone["npu_float_tops"], phone["npu_int8_tops"]) == (round(peaks["f16"].value / 1e12, 2), round(peaks["i8"].value / 1e12, 2))
    assert (phone["memory_gb_s"], phone["memory_reachable_gb_s"]) == (67.6, 61.9)
    assert 0 < phone["estimated_share"] < 1


def test_one_soc_is_drawn(run: Runner) -> None:
    code, out, _ = run("socs", "snapdragon-8-gen-3")
    assert code == 0
    soc = load_soc("snapdragon-8-gen-3")
    lines = [line for p in soc.processors for line in processor_lines(soc, p)] + memory_lines(soc)
    texts = [text for _, text in lines] + [link_line(k) for k in soc.links] + trip_lines(soc)
    away = next(r.k_per_w.value for r in soc.thermal.resistances if "ambient" in r.between)
    for text in (*texts, "3 x 3.15 GHz at 0.98 V~ (cores 2-4)", "4 K/W~ to case", f"{away:g} K/W to ambient"):
        assert text in out, text


def test_one_soc_for_machines_is_complete(run: Runner) -> None:
    (dumped,) = json.loads(run("socs", "dimensity-9300", "--json")[1])
    again = SoC.model_validate(dumped)
    assert again == load_soc("dimensity-9300")
    assert figures(again) == figures(load_soc("dimensity-9300"))


def test_all_figures_with_their_sources(run: Runner) -> None:
    shown = _under_headings(run("socs", "apple-a17-pro", "--figures", width=400)[1])
    for f in figures(load_soc("apple-a17-pro")):
        assert f.origin in shown[f.path if "." in f.path else f"whole SoC.{f.path}"]


def _under_headings(out: str) -> dict[str, str]:
    """Heading, a dot and what stands first in a line -> the rest of the line."""
    heading, found = "", {}
    for line in out.splitlines():
        if line.startswith("  "):
            name, _, rest = line.strip().partition(" ")
            found[f"{heading}.{name}"] = rest
        else:
            heading = line.strip()
    return found


def test_two_socs_compared(run: Runner) -> None:
    code, out, _ = run("socs", "snapdragon-8-gen-3", "apple-a17-pro", "--diff")
    assert code == 0
    line = _under_headings(out)["processors.npu.peak_ops_s.i8"]
    a, b = (load_soc(i).by_name["npu"].clusters[0].peak_ops_s["i8"].value / 1e12 for i in ("snapdragon-8-gen-3", "apple-a17-pro"))
    assert line.split() == [f"{a:.4g}", "TOPS", f"{b:.4g}", "TOPS", f"{b / a:.3g}"]
    found = json.loads(run("socs", "snapdragon-8-gen-3", "apple-a17-pro", "--diff", "--json")[1])
    assert found["socs"] == ["snapdragon-8-gen-3", "apple-a17-pro"]
    assert set(found["differences"][0]) == {"path", "a", "b", "ratio"}


def test_what_is_set_is_marked(run: Runner) -> None:
    out = run("socs", "snapdragon-8-gen-3", "--set", "npu.launch_us=20")[1]
    assert "what-if: npu.launch_us = 20" in out and "20 µs! (file: " in out


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["socs", "snapdragon-8-gen-4"], "did you mean"),
        (["socs", "--diff"], "name them"),
        (["socs", "apple-a17-pro", "--diff"], "compares two SoCs, 1 are named"),
        (["socs", "apple-a17-pro", "dimensity-9300", "-o", "x.html"], "draws one SoC"),
        (["socs", "apple-a17-pro", "--set", "npu.int8_tops"], "FIELD=VALUE"),
        (["socs", "apple-a17-pro", "--set", "npu.int8_tops=1", "--set", "npu.int8_tops=2"], "twice"),
        (["socs", "apple-a17-pro", "--set", "npu.int8_top=1"], "did you mean npu.int8_tops"),
    ],
)
def test_refusals(run: Runner, args: list[str], sentence: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert sentence in err and len(err.splitlines()) == 1


def test_a_page(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "soc.html"
    code, out, _ = run("socs", "dimensity-9300", "-o", path)
    assert (code, out) == (0, f"page: {path}\n")
    assert "Dimensity 9300" in path.read_text()


def test_plan_and_simulate_take_set(run: Runner, two_branch: Path, tmp_path: Path) -> None:
    plan = ["plan", two_branch, "--soc", "snapdragon-8-gen-3", "--dim", "width=16", "--solver", "single:npu", "--json"]
    base = json.loads(run(*plan)[1])["latency_ms"]
    set_ = json.loads(run(*plan, "--set", "npu.launch_us=1", "--set", "cpu-npu.sync_us=1", "-o", tmp_path / "p.json")[1])["latency_ms"]
    assert set_ < base
    simulated = json.loads(run("simulate", tmp_path / "p.json", "--json")[1])
    assert simulated["predicted_ms"] == set_
    direct = ["simulate", two_branch, "--soc", "snapdragon-8-gen-3", "--dim", "width=16", "--json"]
    slow = json.loads(run(*direct, "--set", "npu.fp16_tops=0.001", "--set", "gpu.fp16_tops=0.001", "--set", "cpu.fp32_tops=0.01")[1])
    assert slow["predicted_ms"] > json.loads(run(*direct)[1])["predicted_ms"]
    code, _, err = run("simulate", tmp_path / "p.json", "--set", "npu.launch_us=1")
    assert code == 2 and "already a plan" in err


def test_compare_takes_set(run: Runner, two_branch: Path) -> None:
    args = ["compare", two_branch, "--soc", "dimensity-9300", "--soc", "apple-a14", "--dim", "width=16", "--solver", "single:npu", "--json"]
    base = {c["soc"]: c["latency_ms"] for c in json.loads(run(*args)[1])["cells"]}
    fast = {c["soc"]: c["latency_ms"] for c in json.loads(run(*args, "--set", "npu.launch_us=1")[1])["cells"]}
    assert set(base) == {"dimensity-9300", "apple-a14"}
    assert all(fast[soc] < base[soc] for soc in base)
