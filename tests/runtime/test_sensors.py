"""What a machine shows of its heat, battery and cores."""

from __future__ import annotations

from pathlib import Path

from hetsched.runtime.sensors import Readings, Zone, core_speeds, read_machine


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_what_is_absent_or_absurd_is_left_out(tmp_path: Path) -> None:
    assert read_machine(tmp_path / "nothing") == Readings()
    write(tmp_path, **{
        "class/thermal/thermal_zone0/temp": "41500\n", "class/thermal/thermal_zone0/type": "VIRTUAL-SKIN\n",
        "class/thermal/thermal_zone0/trip_point_0_temp": "43000\n", "class/thermal/thermal_zone0/trip_point_0_type": "passive\n",
        "class/thermal/thermal_zone0/trip_point_1_temp": "39000\n", "class/thermal/thermal_zone0/trip_point_1_type": "passive\n",
        "class/thermal/thermal_zone0/trip_point_2_temp": "55000\n", "class/thermal/thermal_zone0/trip_point_2_type": "critical\n",
        "class/thermal/thermal_zone0/trip_point_3_temp": "-274000\n", "class/thermal/thermal_zone0/trip_point_3_type": "passive\n",
        "class/thermal/thermal_zone1/temp": "-274000\n", "class/thermal/thermal_zone2/temp": "none\n",
        "class/thermal/thermal_zone3/type": "x\n",
        "class/thermal/thermal_zone10/temp": "-5000\n", "class/thermal/thermal_zone10/type": "modem\n",
        "class/power_supply/AC/type": "Mains\n", "class/power_supply/AC/capacity": "3\n",
        "class/power_supply/BAT0/type": "Battery\n", "class/power_supply/BAT0/capacity": "40\n",
        "class/power_supply/BAT1/type": "Battery\n", "class/power_supply/BAT1/capacity": "60\n",
        "class/power_supply/BAT2/type": "Battery\n", "class/power_supply/BAT2/capacity": "255\n",
        "class/power_supply/mouse/type": "Battery\n", "class/power_supply/mouse/scope": "Device\n",
        "class/power_supply/mouse/capacity": "1\n",
    })  # fmt: skip
    zones = (Zone("VIRTUAL-SKIN", 41.5, (39.0, 43.0), 55.0), Zone("modem", -5.0))
    assert read_machine(tmp_path) == Readings(zones, 0.5)
    assert [z.skin for z in zones] == [True, False]


def test_speeds_of_cores(tmp_path: Path) -> None:
    cpus = "devices/system/cpu/cpu"
    assert core_speeds((0, 1), tmp_path) == (1.0, 1.0)
    write(tmp_path, **{f"{cpus}{n}/cpufreq/cpuinfo_max_freq": f"{f}\n" for n, f in enumerate((2000000, 2000000, 3300000))})
    assert core_speeds((0, 2), tmp_path) == (2e6, 3.3e6)
    write(tmp_path, **{f"{cpus}{n}/cpu_capacity": f"{c}\n" for n, c in enumerate((325, 325))})
    assert core_speeds((0, 1), tmp_path) == (325.0, 325.0) and core_speeds((0, 2), tmp_path) == (2e6, 3.3e6)
