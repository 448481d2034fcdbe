"""Tables stay readable on narrow terminals: columns go before words are broken, and what is left out is said."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.cli import main, show, show_policies

Runner = Callable[..., list[str]]
COLUMNS = ["what", "first", "second"]
ROWS = [["apples-and-pears", "12 pieces", "one"], ["plums", "3", "twenty-two"]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    """Lines that a command or a function prints at a width."""

    def go(width: int, *args: object, call: Callable[[], None] | None = None) -> list[str]:
        monkeypatch.setattr(show.console, "_width", width)
        if call is not None:
            call()
            return capsys.readouterr().out.splitlines()
        monkeypatch.setattr(sys, "argv", ["hetsched", *map(str, args)])
        with pytest.raises(SystemExit) as e:
            main()
        out, err = capsys.readouterr()
        assert not e.value.code, err
        return [line.rstrip() for line in out.splitlines()]

    return go


def test_spare_columns_go_one_after_another(shown: Runner) -> None:
    def draw() -> None:
        show.table("fruit", COLUMNS, ROWS, spare=(1, 2))

    assert shown(60, call=draw)[1].split() == COLUMNS
    narrow = shown(30, call=draw)
    assert narrow[1].split() == ["what", "second"] and narrow[-1] == "(no room here for first: widen the terminal, or see --json)"
    assert shown(20, call=draw)[1].split() == ["what"]


def test_groups_share_their_columns(shown: Runner) -> None:
    lines = shown(60, call=lambda: show.grouped("fruit", COLUMNS, {"basket [red]": ROWS[:1], "bag": ROWS[1:]}, numeric=(1,)))
    assert [line.rstrip() for line in lines] == [
        "fruit",
        "  what                  first  second",
        "basket [red]",
        "  apples-and-pears  12 pieces  one",
        "bag",
        "  plums                     3  twenty-two",
    ]


def test_a_wide_head_is_broken_at_a_hyphen(shown: Runner) -> None:
    lines = shown(60, call=lambda: show.grouped("", ["", "a-chip-with-a-long-name"], {"g": [["x", "1 W"]]}, numeric=(1,)))
    assert [line.strip() for line in lines] == ["a-chip-with-", "a-long-name", "g", "x           1 W"]


def _table(lines: list[str], title: str) -> list[str]:
    """The lines of the table with a title, without the line on what is left out."""
    start = lines.index(title) + 1
    end = next((i for i in range(start, len(lines)) if not lines[i] or lines[i].startswith("(")), len(lines))
    return lines[start:end]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_two_socs_side_by_side(shown: Runner, width: int) -> None:
    lines = shown(width, "socs", "snapdragon-8-elite-gen-5", "snapdragon-7-plus-gen-3", "--diff")
    assert max(map(len, lines)) <= width
    npu = lines.index("processors.npu")
    assert any(line.startswith("  peak_ops_s.i8 ") and line.count("TOPS") == 2 for line in lines[npu:])
    assert all(line.startswith(("  ", "processors", "memory", "links", "thermal", "whole SoC")) for line in lines[1:-1])


@pytest.mark.parametrize("width", [80, 100, 140])
def test_accuracy_breaks_no_line(shown: Runner, width: int) -> None:
    lines = shown(width, "accuracy", "snapdragon-8-gen-3", "dimensity-9300")
    assert max(map(len, lines)) <= max(width, 100)
    body = _table(lines, "by chip")
    assert max(map(len, body)) <= width
    rows = [line for line in body[1:] if line.startswith("  ")]
    assert rows and all(line.endswith(("%", "-")) for line in rows)
    assert "median" in body[0] and any("in 25 %" in line for line in lines)
    chips = [line for line in body[1:] if not line.startswith("  ")]
    assert set(chips) == {"snapdragon-8-gen-3", "dimensity-9300"}


@pytest.mark.parametrize(("width", "heads"), [(80, 4), (100, 6), (160, 9)])
def test_compare_leaves_columns_out(shown: Runner, two_branch: Path, width: int, heads: int) -> None:
    chips = ("snapdragon-8-elite-gen-5", "qcs6490")
    args = ["compare", two_branch, "--dim", "width=16", *(a for c in chips for a in ("--soc", c)), "--target", "33ms"]
    lines = shown(width, *args)
    head, *rows = _table(lines, "two_branch")[: len(chips) + 1]
    assert max(map(len, (head, *rows))) <= width
    assert {row.split()[0] for row in rows} == set(chips)
    assert "verdict" in head and "latency" in head and "holds" in head
    every = ("SoC", "tier", "verdict", "latency", "80 %", "energy", "NPU memory", "first compile", "holds")
    assert len([c for c in every if c in head]) == heads


RUN = {
    "peak_temperatures_c": {"skin": 52.9, "npu": 88.1}, "throttled": {"steps": 3, "seconds": 1234.0}, "average_power_w": 3.43,
    "energy_j": {"npu": 12345.0, "base": 1.0}, "levels": {"switches": 123, "seconds": {"0": 60.0}}, "model": "m", "soc": "s",
    "thermal_status": {"worst": "MODERATE", "skin_c": {"max": 43.2}}, "power_basis": "volts are estimates", "heat_basis": "",
    "ambient_c": 35.0, "duration_s": 3600.0, "trace_path": None, "case": None, "battery": None,
}  # fmt: skip
INFERENCES = {
    "inferences": 1234567, "latency_ms": {"median": 1234.0, "p90": 1234.0, "p99": 0.605},
    "arrivals": {"arrived": 9, "done": 8, "dropped": 1, "late": 0, "deadline_ms": 33.0, "missed": 0.111},
}  # fmt: skip
CHAT = {
    "tokens": 98765, "decode_tok_s": {"mean": 30.0, "first_minute": 31.0, "last_minute": 29.0}, "ttft_ms": {"median": 1234.0},
    "energy_per_token_j": 0.084, "note": "every turn begins a new conversation",
}  # fmt: skip


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (INFERENCES, ("inferences 1234567", "latency, p99 605 µs", "missed 11.1%")),
        (CHAT, ("tokens of answers 98765", "tok/s, first minute 31", "tok/s, last minute 29", "first token, median 1.23 s", "a token")),
    ],
)  # fmt: skip
def test_four_policies_fit(shown: Runner, own: dict[str, object], told: tuple[str, ...]) -> None:
    names = ("static", "reactive", "predictive", "battery-saver")
    lines = shown(80, call=lambda: show_policies.comparison("A Chip", dict.fromkeys(names, RUN | own)))
    assert lines[0] == "m on A Chip at 35 °C, 3600 s"
    table = lines[1 : next(k for k, line in enumerate(lines) if line.startswith(("every", "static:")))]
    assert max(len(line.rstrip()) for line in table) <= 80 and table[0].split() == list(names)
    rows = [" ".join(line.split()) for line in lines]
    phone = ("skin at most 43.2 °C", "status at worst MODERATE", "hottest part 88.1 °C", "time throttled 34%", "energy, whole phone 12.3")
    for text in (*told, *phone, "power 3.43 W", "switches 123"):
        assert any(row.startswith(text) for row in rows), text
    assert "static: at level 0 for 60 s" in lines and "(volts are estimates)" in lines


def test_figures_that_no_policy_has_take_no_row(shown: Runner) -> None:
    bare = RUN | INFERENCES | {"arrivals": None, "thermal_status": None, "levels": None}
    lines = shown(80, call=lambda: show_policies.comparison("A Chip", {"static": bare, "reactive": bare}))
    assert not any(line.startswith(("missed", "skin", "status")) for line in lines)


def test_levels_fit(shown: Runner) -> None:
    level = {
        "phase": "prefill", "level": 3, "same_as": None, "latency_ms": 1234.0, "energy_mj": 1234.0, "power_w": 12.34,
        "places": ["cpu f32", "cpu w8a8", "gpu f16"], "switch_weight_mb": 1234.0, "switch_ms": 1234.0,
    }  # fmt: skip
    lines = shown(80, call=lambda: show.levels([level]))
    assert max(len(line.rstrip()) for line in lines[:3]) <= 80 and "cpu f32, cpu w8a8, gpu f16" in lines[2]
