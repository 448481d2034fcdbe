"""``hetsched calibrate``: units for people, stable keys for machines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hetsched.cli import machine, main, show, show_machine

MEASURED: dict[str, Any] = {
    "version": 4, "fingerprint": "f", "model": "A CPU [fast]", "cores": [0, 1], "read_one_bytes_s": 2.2e10, "read_all_bytes_s": 5.3e10,
    "peak_f32_ops_s": 1.546e11, "peak_i8_ops_s": 9.126e11, "rates": {"conv/f32": 9.7e10, "transposed/f32": 3.89e10, "conv/i8": 4.035e11},
    "vector_bytes_s": 4e10, "vector": {"elementwise": 1.0, "softmax": 8.0, "matrix/conv/f32": 3.9}, "op_overhead_s": 7.1e-7,
    "launch_s": 2.84e-6, "sync_s": 7.1e-6, "sync_estimated": True, "serial_share": 0.1,
    "spread": 0.12, "others": 0.016, "notes": ["it was busy"],
}  # fmt: skip


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_every_figure_has_a_unit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show.console, "_width", 80)
    show_machine.measurement(MEASURED)
    found = lines(capsys)
    assert max(len(" ".join(line)) for line in found) <= 110
    for row in (
        "memory, read by one core 22 GB/s", "memory, read by all 2 cores 53 GB/s", "cost of starting an operator 710 ns",
        "signal from core to core 7.1 µs (assumed)", "peak 155 913", "conv 97 404", "transposed 38.9 -", "elementwise 40", "softmax 5",
        "quality: repeats 12% apart, other programs used 0.016 cores", "note: it was busy",
    ):  # fmt: skip
        assert row.split() in found, row
    assert not any(line and line[0].startswith("matrix/") for line in found)


def test_the_keys_for_machines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Those of a measurement without the probes that it was made from; the names are a promise."""
    from hetsched_cost_models import host
    from hetsched_cost_models.host.measurement import HostMeasurement

    kept = {k: v for k, v in MEASURED.items() if k != "notes"} | {"cores": (0, 1), "probe_s": (1.0,)}
    monkeypatch.setattr(host, "calibrate", lambda **_: HostMeasurement(**kept))
    monkeypatch.setattr(sys, "argv", ["hetsched", "calibrate", "--json"])
    with pytest.raises(SystemExit) as e:
        main()
    found = json.loads(capsys.readouterr().out)
    assert not e.value.code and set(found) == set(MEASURED)
    assert found["cores"] == [0, 1] and "assumed" in found["notes"][0]
    assert machine.calibrate(quiet=True) == found
